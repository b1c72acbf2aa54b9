package llm

import (
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	for body, want := range map[string]Request{
		``:                                      {},
		`not json`:                              {Text: 8},
		`[1]`:                                   {Text: 3},
		`{"model":"m","max_tokens":9}`:          {"m", 28, 9, false},
		`{"model":"m","max_tokens":"9"}`:        {"m", 30, 9, false},
		`{"max_tokens":" 1_0 ","n":"3"}`:        {"", 30, 30, false},
		`{"max_tokens":"NaN","n":"Inf"}`:        {"", 30, 0, false},
		`{"max_tokens":"many","n":[2]}`:         {"", 29, 0, false},
		`{"model":7,"max_tokens":-9}`:           {"", 27, 0, false},
		`{"max_completion_tokens":9,"n":3}`:     {"", 33, 27, false},
		`{"max_output_tokens":9,"stream":true}`: {"", 37, 9, true},
		`{"max_tokens":7,"max_tokens":5}`:       {"", 31, 7, false},
		`{"Max_Tokens":7,"max_tokens":5}`:       {"", 31, 7, false},
		`{"model":"dear","model":"cheap"}`:      {"", 32, 0, false}, // which of both is asked, nobody knows
		`{"model":"dear","MODEL":"cheap"}`:      {"", 32, 0, false},
		`{"model":"dear","mod\u0065l":"x"}`:     {"", 33, 0, false},
		`{"model":"dear","modelId":"cheap"}`:    {"", 34, 0, false},
		`{"max_tokens":1e300,"n":1e300}`:        {"", 30, most, false},
		`{"generationConfig":{"maxOutputTokens":8,"candidateCount":2}}`: {"", 61, 16, false},
		`{"modelId":"x","inferenceConfig":{"maxTokens":8}}`:             {"x", 49, 8, false},
		`{"model":"` + strings.Repeat("x", 65) + `"}`:                   {"", 77, 0, false},
	} {
		if got := ParseRequest([]byte(body)); got != want {
			t.Errorf("ParseRequest(%s) = %+v, want %+v", body, got, want)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":9,"n":2,"stream":true,"generationConfig":{"maxOutputTokens":8}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := ParseRequest(body)
		if r.Text != int64(len(body)) || r.MaxOutput < 0 || r.MaxOutput > most || len(r.Model) > mostModel {
			t.Errorf("ParseRequest(%q) = %+v, out of bounds", body, r)
		}
	})
}

// The quantile that is followed is that of what comes, whatever its distribution, and follows a change.
func TestQuantileIsFollowed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	draws := map[string]func() float64{
		"uniform":     rng.Float64,
		"exponential": rng.ExpFloat64,
		"heavy":       func() float64 { return math.Pow(1-rng.Float64(), -0.7) },
		"two values":  func() float64 { return float64(1 + 999*rng.IntN(2)) },
	}
	for name, draw := range draws {
		var q quantile
		for _, scale := range []float64{1, 100, 0.01} {
			for range 5000 {
				q.add(scale*draw(), 0.95, long)
			}
			within := 0
			for range 20_000 {
				v := scale * draw()
				if v <= q.at {
					within++
				}
				q.add(v, 0.95, long)
			}
			if share := float64(within) / 20_000; share < 0.93 || share > 0.99 {
				t.Errorf("%s × %v: %.3f of the values were within, want 0.95", name, scale, share)
			}
		}
	}
}

// What is the same each time, as how many tokens a byte is mostly is, stays within four hundredths of it: answers that
// are cut off pay by that.
func TestWhatIsTheSameEachTime(t *testing.T) {
	e := NewEstimator(EstimatorOptions{})
	r := Request{Model: "m", Text: 3000}
	for n := range 2000 {
		e.Learn(&r, Usage{Input: 600, Output: 100_000}, 300_000)
		if got := e.Written(&r, 300_000); got < 99_000 || n >= early && got > 104_000 {
			t.Fatalf("after %d answers 300,000 bytes are taken for %d tokens, want 100,000", n, got)
		}
	}
}

func TestEstimateLearnsFromAnswers(t *testing.T) {
	e := NewEstimator(EstimatorOptions{})
	r := Request{Model: "m", Text: 3000, MaxOutput: 1000}
	if got := e.Estimate(&r); got != (Usage{Input: 1000, Output: 1000}) {
		t.Errorf("nothing learned: %+v, want 1000 and 1000", got)
	}
	for range 50 {
		e.Learn(&r, Usage{Input: 600, Output: 200}, 1000)
	}
	if got := e.Estimate(&r); got.Input < 590 || got.Input > 720 || got.Output < 190 || got.Output > 240 {
		t.Errorf("learned: %+v, want about 600 and 200", got)
	}
	if got := e.Written(&r, 500); got < 95 || got > 120 {
		t.Errorf("500 bytes of text are %d tokens, want about 100", got)
	}
	short := Request{Model: "m", Text: 3000, MaxOutput: 10}
	if got := e.Estimate(&short); got.Output != 10 {
		t.Errorf("a request for 10 tokens is taken for %d", got.Output)
	}
	whole := NewEstimator(EstimatorOptions{Whole: true})
	for range 50 {
		whole.Learn(&r, Usage{Input: 600, Output: 200}, 1000)
	}
	if got := whole.Estimate(&r); got.Output != 1000 {
		t.Errorf("Whole: output %d, want 1000", got.Output)
	}
}

// A caller whose requests or answers have few bytes and many tokens (images by their addresses, thoughts) has nobody
// else's texts cost more than a token a byte and what such requests take, nor answers more than they may have.
func TestTokensThatAreInNoTextAreNobodyElses(t *testing.T) {
	e := NewEstimator(EstimatorOptions{})
	usual := Request{Model: "m", Text: 3000, MaxOutput: 1000}
	odd := Request{Model: "m", Text: 60, MaxOutput: 100_000}
	for n := range 400 {
		if n%50 == 0 { // less often than 95 of 100 leave out
			e.Learn(&odd, Usage{Input: 500_000, Output: 90_000}, 2)
		}
		e.Learn(&usual, Usage{Input: 750, Output: 250}, 1000)
		long := Request{Model: "m", Text: 30_000, MaxOutput: 4000}
		if got := e.Estimate(&long).Input; got > 10_001 {
			t.Fatalf("after %d answers a text of 30,000 bytes is estimated as %d tokens, want 10,000 at most", n, got)
		}
		if got := e.Written(&long, 4000); got > 1335 {
			t.Fatalf("after %d answers 4000 bytes of an answer are taken for %d tokens, want 1334 at most", n, got)
		}
	}
	// Where all requests are such ones they are known, and their answers have no more than they may.
	for range 400 {
		e.Learn(&odd, Usage{Input: 500_000, Output: 90_000}, 2)
	}
	if got := e.Estimate(&odd).Input; got < 490_000 || got > 700_000 {
		t.Errorf("estimated as %d tokens, want about 500,000", got)
	}
	if got := e.Written(&usual, 300); got != 1000 {
		t.Errorf("an answer that may have 1000 tokens is taken for %d", got)
	}
	if got := e.Written(&usual, 6000); got != 2000 {
		t.Errorf("6000 bytes of an answer that may have 1000 tokens are taken for %d, want a third", got)
	}
	// Who is denied for what others took is not denied for ever.
	for n := 0; e.Estimate(&usual).Input > 2000; n++ {
		if n == 10_000 {
			t.Fatal("what is denied is never estimated as less")
		}
	}
}

// Clients choose the names of models: what is kept of them is bounded.
func TestModelsAreBounded(t *testing.T) {
	e := NewEstimator(EstimatorOptions{})
	for i := range 10_000 {
		r := Request{Model: strings.Repeat("x", i%60) + string(rune('a'+i%26)), Text: 10}
		e.Learn(&r, Usage{Input: 5}, 0)
	}
	if len(e.by) > maxModels+1 {
		t.Errorf("%d models are kept, want %d and the others", len(e.by), maxModels)
	}
}

func cents(v float64) *float64 { return &v }

func TestPrices(t *testing.T) {
	m, err := NewMeter(MeterOptions{Count: Money, Prices: []Price{
		{Model: "*", Input: 1, Output: 2},
		{Model: "big-*", Input: 2.5, Output: 10, Cached: cents(1.25)},
		{Model: "big-*", Above: 200_000, Input: 5, Output: 15},
		{Model: "big-mini", Input: 0.075, Output: 0.3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model string
		u     Usage
		want  int64 // millionths
	}{
		{"other", Usage{Input: 100, Output: 10}, 120},
		{"big-one", Usage{Input: 100, Cached: 60, Output: 10}, 40*2.5 + 60*1.25 + 100},
		{"big-one", Usage{Input: 200_000, Output: 1}, 500_010},
		{"big-one", Usage{Input: 200_001, Cached: 1, Output: 1}, 1_000_020},
		{"big-mini", Usage{Input: 1, Output: 0}, 1}, // 0.075, rounded up
		{"big-mini", Usage{Input: 1000, Output: 0}, 75},
		{"other", Usage{}, 1},
		{"", Usage{Input: 100, Output: 10}, 100*5 + 10*15}, // nobody knows which
	} {
		if got := m.cost(c.model, c.u); got != c.want {
			t.Errorf("%s, %+v costs %d, want %d", c.model, c.u, got, c.want)
		}
	}
	dear, err := NewMeter(MeterOptions{Count: Money, Prices: []Price{{Model: "a", Input: 1}, {Model: "b", Input: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := dear.cost("nobody's", Usage{Input: 10}); got != 90 {
		t.Errorf("a model without a price costs %d, want 90, as the dearest does", got)
	}
}

// TestMoneyIsExact compares with big numbers.
func TestMoneyIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		p := priced{input: rng.Uint64N(1e12 + 1), cached: rng.Uint64N(1e12 + 1), output: rng.Uint64N(1e12 + 1)}
		u := Usage{Input: rng.Int64N(most + 1), Output: rng.Int64N(most+1) >> rng.IntN(41)}
		u.Cached = rng.Int64N(u.Input + 1)
		sum := new(big.Int)
		for _, part := range [][2]uint64{{uint64(u.Input - u.Cached), p.input}, {uint64(u.Cached), p.cached},
			{uint64(u.Output), p.output}} {
			sum.Add(sum, new(big.Int).Mul(new(big.Int).SetUint64(part[0]), new(big.Int).SetUint64(part[1])))
		}
		sum.Add(sum, big.NewInt(999_999)).Div(sum, big.NewInt(1_000_000))
		want := int64(math.MaxInt64)
		if sum.IsInt64() {
			want = sum.Int64()
		}
		if got := p.money(u); got != want {
			t.Fatalf("%+v at %+v costs %d, want %d", u, p, got, want)
		}
	}
}

func TestNewMeterNamesEveryFault(t *testing.T) {
	_, err := NewMeter(MeterOptions{Count: 9, EstimatorOptions: EstimatorOptions{Quantile: 2, MaxOutput: -1},
		Prices: []Price{{Model: "a*b", Above: -1, Input: -1, Output: math.NaN()}}})
	for _, want := range []string{"Count is 9", "Quantile is 2", "MaxOutput is -1", `model is "a*b"`, "above is -1",
		"input is -1", "output is NaN"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one that says %q", err, want)
		}
	}
	if _, err := NewMeter(MeterOptions{Count: Money}); err == nil || !strings.Contains(err.Error(), "Prices is empty") {
		t.Errorf("money without prices: %v", err)
	}
}

// What an exchange costs, by how it ended.
func TestCostOfAnExchange(t *testing.T) {
	ask := `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`
	for _, c := range []struct {
		name          string
		status        int
		kind, answer  string
		complete      bool
		want          int64
		learnedOutput bool
	}{
		{"told", 200, "application/json", `{"usage":{"prompt_tokens":20,"completion_tokens":3}}`, true, 23, true},
		{"says nothing", 200, "text/plain", "hello", true, 26 + 100, false},
		{"refused", 429, "application/json", `{"error":{"message":"no"}}`, true, 1, false},
		{"a stream that says nothing", 200, "text/event-stream",
			"data: {\"choices\":[{\"delta\":{\"content\":\"abcdef\"}}]}\n\n",
			true, 26 + 2, false},
		{"left in the middle", 200, "text/event-stream",
			"data: {\"choices\":[{\"delta\":{\"content\":\"abcdef\"}}]}\n\n", false,
			26 + 2, false},
		{"left at once", 200, "text/event-stream", "", false, 26 + 100, false},
		{"left when the input was told", 200, "text/event-stream",
			"data: {\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n", false, 10, false},
		{"failed amid an answer", 500, "application/json", `{"usa`, false, 26 + 100, false},
	} {
		m, err := NewMeter(MeterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		x, estimate := m.Ask(r, []byte(ask), true)
		if estimate != 26+100 {
			t.Fatalf("estimate %d, want 126: a third of %d bytes, and 100", estimate, len(ask))
		}
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("the answer may come as %q", got)
		}
		x.Begin(c.status, http.Header{"Content-Type": {c.kind}})
		x.Write([]byte(c.answer))
		if got := x.Cost(c.complete); got != c.want {
			t.Errorf("%s: %d tokens, want %d", c.name, got, c.want)
		}
	}
}

func TestModelInThePath(t *testing.T) {
	for path, want := range map[string]string{
		"/v1beta/models/gemini-x:generateContent": "gemini-x", "/model/anthropic.x-v2/converse": "anthropic.x-v2",
		"/v1/chat/completions": "", "/models/": "", "/models/x": "", "/models/" + strings.Repeat("x", 70) + ":y": "",
	} {
		if got := modelIn(path); got != want {
			t.Errorf("modelIn(%q) = %q, want %q", path, got, want)
		}
	}
}
