package config_test

import (
	"strings"
	"testing"
)

// TestLanguageModelsNameEveryFault: of a price each field by its own name, and each fault once.
func TestLanguageModelsNameEveryFault(t *testing.T) {
	_, err := readText(t, `language_models:
  - endpoints: [POST /v1/chat, POST /v1/chat]
    count: coins
    estimate: half
    quantile: 2
    max_output: -1
    at_end: stop
    max_bytes: 1
    prices: [{model: "*", input: -1}, {input: 1, cached: 2000000, above: -1}, {model: "*"}]
  - prices: [{model: "*"}]
`)
	if err == nil {
		t.Fatal("Complete takes settings that are all wrong")
	}
	for _, want := range []string{
		`[0].endpoints is "POST /v1/chat", want each endpoint once: language_models[0].endpoints has it`,
		`[0].count is "coins", want tokens, input, output or money`,
		`[0].estimate is "half", want learned or whole`,
		`[0].quantile is "2", want 0.5 to 0.999`,
		`[0].max_output is "-1", want 1 to`,
		`[0].at_end is "stop", want run or cut`,
		`[0].max_bytes is "1B", want 64B to 64MiB`,
		`[0].prices[0].input is -1, want 0 to 1000000 for a million tokens`,
		`[0].prices[1].cached is 2e+06, want 0 to 1000000 for a million tokens`,
		`[0].prices[1].model is "", want a name`,
		`[0].prices[1].above is -1, want 0 or more tokens`,
		`[0].prices[2].model is "*", want each model once for each above`,
		`[1].endpoints is "", want an endpoint at least`,
		`[1].count is "tokens", want money, since prices are set`,
	} {
		if !strings.Contains(err.Error(), "language_models"+want) {
			t.Errorf("%s is not said of\n%v", want, err)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 14 {
		t.Errorf("%d lines, want 14, one for each fault:\n%v", lines, err)
	}
}
