package llm

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Count is what a request is charged for.
type Count uint8

const (
	Tokens Count = iota // that the model reads and writes
	Input               // that it reads
	Output              // that it writes
	Money               // what they cost by a table of prices, in millionths of its currency
)

// Price is what a model takes for a million tokens, in the currency that limits are in.
type Price struct {
	// Model is its name, or the beginning of names with "*" behind it; "*" alone is every model.
	Model string

	// Above makes it the price of requests whose input has more tokens than that. Default 0: of all.
	Above int64

	Input, Output float64

	// Cached is for input that the model had read before. Default: what Input says.
	Cached *float64
}

// priced is a Price in millionths of a millionth of the currency for one token.
type priced struct {
	Price
	input, cached, output uint64
}

// dearest is the highest price of a million tokens that is taken.
const dearest = 1e6 // so that a sum of prices stays within 64 bits

// CheckPrice says what is wrong with a price, of each field that is.
func CheckPrice(p Price) (errs []error) {
	for _, field := range [...]struct {
		name string
		v    *float64
	}{{"input", &p.Input}, {"cached", p.Cached}, {"output", &p.Output}} {
		if v := field.v; v != nil && !(*v >= 0 && *v <= dearest) {
			errs = append(errs, fmt.Errorf("%s is %v, want 0 to %d for a million tokens", field.name, *v,
				int64(dearest)))
		}
	}
	if p.Model == "" || strings.Contains(strings.TrimSuffix(p.Model, "*"), "*") {
		errs = append(errs, fmt.Errorf("model is %q, want a name, the beginning of names with * behind it, or *",
			p.Model))
	}
	if p.Above < 0 {
		errs = append(errs, fmt.Errorf("above is %d, want 0 or more tokens", p.Above))
	}
	return errs
}

func compile(p Price) priced {
	cached := p.Input
	if p.Cached != nil {
		cached = *p.Cached
	}
	of := func(v float64) uint64 { return uint64(math.Round(v * 1e6)) }
	return priced{p, of(p.Input), of(cached), of(p.Output)}
}

// price is the row for a model and so much input: of those that fit, the one with the longest name, then with the
// highest Above. A model that none fits, or that nobody knows, costs what the dearest row does: clients choose what
// they send.
func price(all []priced, model string, input int64) *priced {
	var found *priced
	for i := range all {
		p := &all[i]
		if model == "" || !fits(p.Model, model) || p.Above > 0 && input <= p.Above {
			continue
		}
		if found == nil || len(p.Model) > len(found.Model) ||
			len(p.Model) == len(found.Model) && p.Above > found.Above {
			found = p
		}
	}
	if found != nil {
		return found
	}
	for i := range all {
		if p := &all[i]; found == nil || p.input+p.output > found.input+found.output {
			found = p
		}
	}
	return found
}

func fits(pattern, model string) bool {
	if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(model, beginning)
	}
	return pattern == model
}

// money is what u costs, in millionths, rounded up.
func (p *priced) money(u Usage) int64 {
	var hi, lo uint64
	for _, part := range [...]struct {
		tokens int64
		price  uint64
	}{{u.Input - u.Cached, p.input}, {u.Cached, p.cached}, {u.Output, p.output}} {
		h, l := bits.Mul64(uint64(part.tokens), part.price)
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	const million = 1_000_000
	if hi >= million {
		return math.MaxInt64
	}
	whole, rest := bits.Div64(hi, lo, million)
	if rest > 0 {
		whole++
	}
	return int64(min(whole, math.MaxInt64))
}
