package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/llm"
)

// LanguageModel says what requests to language models cost at some endpoints: by their bodies
// before they are answered, and by what the answers say. Endpoints is required.
type LanguageModel struct {
	// Endpoints are some of openapi or routes: "POST /v1/chat/completions".
	Endpoints []string `yaml:"endpoints"`

	// Count is what a request costs: tokens (default) that the model reads and writes, those of its input or its output
	// alone, or money, in millionths of the currency of prices.
	Count string `yaml:"count"`

	// Prices are what models take, for count: money. The row with the longest name that fits counts.
	Prices []ModelPrice `yaml:"prices"`

	// Estimate is how much output is taken before it is known: learned (default), what most answers of the model have
	// had, or whole, all that a request allows for.
	Estimate string `yaml:"estimate"`

	// Quantile is the share of requests that are to take no more than what is estimated. Default 0.95.
	Quantile float64 `yaml:"quantile"`

	// MaxOutput is how many tokens are written at most to a request that does not say it. Default 4096.
	MaxOutput int64 `yaml:"max_output"`

	// AtEnd is what happens to an answer whose caller has no more: run (default) passes it on and
	// has it owed, cut ends it.
	AtEnd string `yaml:"at_end"`

	// MaxBytes is how much of a body is held and read. Longer ones are taken by their length. Default 1MiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// ReadTimeout is how long that may take to arrive. Default 10s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
}

// ModelPrice is what a model takes for a million tokens.
type ModelPrice struct {
	// Model is its name, or the beginning of names with * behind it; * alone is every model.
	Model string `yaml:"model"`

	// Above makes it the price of requests with more tokens of input. Default 0: of all.
	Above int64 `yaml:"above"`

	// Input and Output are what a million tokens cost.
	Input  float64 `yaml:"input"`
	Output float64 `yaml:"output"`

	// Cached is for input that the model had read before. Default: what input says.
	Cached *float64 `yaml:"cached"`
}

// Counts are the values of LanguageModel.Count.
var Counts = map[string]llm.Count{"tokens": llm.Tokens, "input": llm.Input, "output": llm.Output, "money": llm.Money}

// Meter is what m asks for.
func (m *LanguageModel) Meter() (*llm.Meter, error) {
	o := llm.MeterOptions{Count: Counts[m.Count], EstimatorOptions: llm.EstimatorOptions{
		Quantile: m.Quantile, MaxOutput: m.MaxOutput, Whole: m.Estimate == "whole",
	}}
	for _, p := range m.Prices {
		o.Prices = append(o.Prices, llm.Price(p))
	}
	return llm.NewMeter(o)
}

// languageModels checks the list and fills in what its entries leave out; whether the registry has the endpoints is
// found when it is built.
func (c *checker) languageModels(list []LanguageModel) {
	for n := range list {
		m := &list[n]
		field := func(name string) string { return fmt.Sprintf("language_models[%d].%s", n, name) }
		if len(m.Endpoints) == 0 {
			c.wrong(field("endpoints"), "", "an endpoint at least, such as POST /v1/chat/completions")
		}
		for _, endpoint := range m.Endpoints {
			c.once(field("endpoints"), endpoint)
		}
		fill(&m.Count, "tokens")
		fill(&m.Estimate, "learned")
		fill(&m.AtEnd, "run")
		fill(&m.Quantile, 0.95)
		fill(&m.MaxOutput, 4096)
		fill(&m.MaxBytes, 1<<20)
		fill(&m.ReadTimeout, 10*time.Second)
		c.oneOf(field("count"), m.Count, "tokens", "input", "output", "money")
		c.oneOf(field("estimate"), m.Estimate, "learned", "whole")
		c.oneOf(field("at_end"), m.AtEnd, "run", "cut")
		c.size(field("max_bytes"), m.MaxBytes, 64, 64<<20)
		c.between(field("max_output"), m.MaxOutput, 1, 1<<40)
		c.duration(field("read_timeout"), m.ReadTimeout, time.Millisecond, 10*time.Minute)
		if !(m.Quantile >= 0.5 && m.Quantile <= 0.999) {
			c.wrong(field("quantile"), fmt.Sprint(m.Quantile), "0.5 to 0.999")
		}
		if m.Count == "money" && len(m.Prices) == 0 {
			c.wrong(field("prices"), "",
				"a price at least, since count is money: {model: \"*\", input: 2.5, output: 10}")
		}
		if count, ok := Counts[m.Count]; ok && count != llm.Money && len(m.Prices) > 0 {
			c.wrong(field("count"), m.Count, "money, since prices are set")
		}
		c.prices(field("prices"), m.Prices)
	}
}

func (c *checker) prices(field string, list []ModelPrice) {
	for n, p := range list {
		if slices.ContainsFunc(list[:n], func(o ModelPrice) bool { return o.Model == p.Model && o.Above == p.Above }) {
			c.wrong(fmt.Sprintf("%s[%d].model", field, n), p.Model, "each model once for each above")
		}
		for _, err := range llm.CheckPrice(llm.Price(p)) {
			c.errs = append(c.errs, fmt.Errorf("%s[%d].%w", field, n, err))
		}
	}
}
