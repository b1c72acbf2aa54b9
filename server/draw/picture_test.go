package draw_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/draw"
)

func rule(limit int64, per time.Duration, burst int64, algorithm string) policy.Rule {
	r := policy.Rule{Endpoint: "GET /v1/items/{id}", Limit: limit, Per: per, Burst: burst}
	if err := r.Algorithm.UnmarshalText([]byte(algorithm)); err != nil {
		panic(err)
	}
	return r
}

func of(t *testing.T, r policy.Rule) draw.Picture {
	t.Helper()
	p, err := draw.Of(r, policy.CompileOptions{})
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return p
}

// What a picture says, for each algorithm.
func TestOf(t *testing.T) {
	for _, test := range []struct {
		rule                policy.Rule
		atOnce, first, idle int64
		full                float64
		passed              []int64 // in the first cells
		says                string
	}{
		{rule(5, time.Second, 10, "token_bucket"), 10, 15, 10, 2, []int64{10, 1, 1, 1, 1},
			"10 at once after a silence, 15 in the first second; then 5 per second, one every 200ms; 2s of silence " +
				"and the bucket is full again."},
		{rule(3, time.Hour, 0, "token_bucket"), 3, 3, 3, 3600, []int64{3, 0, 1, 0, 0, 1},
			"3 at once after a silence, and no more in the first second; then 3 per hour, one every 20m; 1h of " +
				"silence and the bucket is full again."},
		{rule(100, 24*time.Hour, 700, "token_bucket"), 700, 700, 700, 7 * 86400, []int64{769, 70, 70, 70},
			"700 at once after a silence, and no more in the first second; then 100 per day, one every 14m24s; 7 " +
				"days of silence and the bucket is full again."},
		{rule(1_000_000, time.Second, 5, "token_bucket"), 5, 1_000_005, 5, 5e-6, []int64{5, 0, 1, 0, 1},
			"5 at once after a silence, 1,000,005 in the first second; then 1,000,000 per second, one every 1µs; " +
				"5µs of silence and the bucket is full again."},
		{rule(2e10, time.Second, 2e10, "token_bucket"), 2e10, 4e10, 2e10, 1, nil,
			"20,000,000,000 at once after a silence, 40,000,000,000 in the first second; then 20,000,000,000 per " +
				"second; 1s of silence and the bucket is full again."},
		{rule(2, time.Minute, 5, "leaky_bucket"), 5, 1, 5, 150, []int64{1, 0, 1, 0, 1},
			"5 are taken in at once, and go on one after the other, 1 in the first second: 2 per minute, one every " +
				"30s, however they come; after 2m30s of silence the line is empty."},
		{rule(1000, time.Minute, 0, "fixed_window"), 1000, 1000, 1000, 24,
			[]int64{1000, 0, 0, 0, 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000},
			"1,000 in each window of 1m, all at once if the caller likes, so 2,000 within a moment where two " +
				"windows meet; silence saves up nothing beyond that."},
		{rule(100, time.Minute, 0, "sliding_window"), 100, 100, 76, 84, []int64{100, 0, 0, 0, 9, 10},
			"100 at once after a silence of up to 2m; then what was used comes back little by little, 100 per " +
				"minute in the long run, and at worst 200 within 1m."},
		{rule(100, time.Minute, 0, "sliding_log"), 100, 100, 100, 62.4, []int64{100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100},
			"100 at once, and never more than 100 within any 1m: each comes back that long after it was used, or " +
				"up to 2.4s later."},
		{rule(10000, 720*time.Hour, 0, "calendar:Europe/Zurich"), 10000, 10000, 10000, 12 * 86400,
			[]int64{10000, 0, 0, 0, 10000},
			"10,000 in each month of the calendar of Europe/Zurich, all at once if the caller likes, and 10,000 " +
				"more as soon as the next one begins; what is not used by then is lost."},
	} {
		p := of(t, test.rule)
		if p.AtOnce != test.atOnce || p.FirstSecond != test.first || p.AfterIdle != test.idle ||
			p.FullSeconds != test.full || p.Says != test.says {
			t.Errorf("%s: at once %d, in the first second %d, after a silence %d, full after %v s\n%s\nwant %d, "+
				"%d, %d and %v\n%s",
				p.Limit, p.AtOnce, p.FirstSecond, p.AfterIdle, p.FullSeconds, p.Says, test.atOnce, test.first,
				test.idle, test.full, test.says)
		}
		if !slices.Equal(p.Passed[:len(test.passed)], test.passed) {
			t.Errorf("%s: passed %v, want %v first", p.Limit, p.Passed, test.passed)
		}
	}
}

// Whatever the rule, a picture keeps what the algorithm promises, and fits its sheet.
func TestPicturesKeepThePromise(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	algorithms := []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"}
	for range 400 {
		algorithm := algorithms[rng.IntN(len(algorithms))]
		r := rule(1+rng.Int64N(1<<rng.IntN(30)), time.Duration(1+rng.Int64N(1<<rng.IntN(20)))*time.Second, 0, algorithm)
		if drains := strings.HasSuffix(algorithm, "bucket"); drains && rng.IntN(2) == 0 {
			r.Burst = 1 + rng.Int64N(1000*r.Limit)
		}
		p := of(t, r)
		cell, sum := p.CellSeconds, int64(0)
		worst := float64(p.Burst)
		if algorithm == "fixed_window" || algorithm == "sliding_window" {
			worst = 2 * float64(r.Limit)
		}
		for from := range p.Passed {
			sum = 0
			for to := from; to < len(p.Passed); to++ {
				sum += p.Passed[to]
				most := worst + float64(to-from+1)*cell*float64(r.Limit)/r.Per.Seconds()
				if float64(sum) > most*(1+1e-9)+1 {
					t.Fatalf("%s: %d pass in cells %d to %d, want at most %v", p.Limit, sum, from, to, most)
				}
			}
		}
		for i, n := range p.Left {
			if n < 0 || n > p.Burst {
				t.Fatalf("%s: %d of %d are left in cell %d", p.Limit, n, p.Burst, i)
			}
		}
		if p.AtOnce != p.Burst || p.FirstSecond > p.AtOnce+int64(float64(r.Limit)/r.Per.Seconds())+1+
			2*r.Limit*b(algorithm == "fixed_window" || algorithm == "sliding_window") {
			t.Fatalf("%s: %d at once and %d in the first second", p.Limit, p.AtOnce, p.FirstSecond)
		}
		fits(t, &p)
	}
}

func b(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// fits holds that a picture is no wider than its sheet, and that its SVG is XML without a script.
func fits(t *testing.T, p *draw.Picture) {
	t.Helper()
	for line := range strings.Lines(p.Text()) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > 80 &&
			!strings.HasPrefix(line, p.Title) {
			t.Fatalf("%d columns: %s\n%s", utf8.RuneCountInString(line), line, p.Text())
		}
	}
	svg := p.SVG()
	for _, never := range []string{"NaN", "Inf", `="-`, "e+"} {
		if bytes.Contains(svg, []byte(never)) {
			t.Fatalf("the picture contains %s:\n%s", never, svg)
		}
	}
	for dec := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := dec.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "script" {
			t.Fatalf("the picture has a script:\n%s", svg)
		}
	}
}

// A title is text, whatever it holds.
func TestATitleIsText(t *testing.T) {
	r := rule(5, time.Second, 10, "token_bucket")
	r.Name = `<script>alert("&")</script>`
	p := of(t, r)
	fits(t, &p)
}

// What cannot be drawn is refused, with what could be.
func TestNothingToDraw(t *testing.T) {
	block := policy.Rule{Endpoint: "*", Mode: policy.Block}
	for _, r := range []policy.Rule{block, {Endpoint: "*"}, rule(1, 100*365*24*time.Hour, 1000, "token_bucket")} {
		if p, err := draw.Of(r, policy.CompileOptions{}); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("Of(%+v) = %v, %v, want an error that says what could be", r, p.Says, err)
		}
	}
}
