package pace_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func header(fields ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}

// headerVectors are fields and what they mean; testdata/README.md describes them.
type headerVectors struct {
	Now   time.Time `json:"now"`
	Hints []struct {
		Name   string      `json:"name"`
		Fields [][2]string `json:"fields"`
		Hint   hint        `json:"hint"`
	} `json:"hints"`
	Refusals []struct {
		Name    string      `json:"name"`
		Status  int         `json:"status"`
		Fields  [][2]string `json:"fields"`
		Refusal bool        `json:"refusal"`
	} `json:"refusals"`
}

func readHeaderVectors(t *testing.T) headerVectors {
	t.Helper()
	var v headerVectors
	if err := json.Unmarshal(readFile(t, "testdata/headers.json"), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Hints) < 40 || len(v.Refusals) < 12 {
		t.Fatalf("%d hints and %d refusals were read, want all", len(v.Hints), len(v.Refusals))
	}
	return v
}

func fieldsOf(pairs [][2]string) http.Header {
	h := http.Header{}
	for _, p := range pairs {
		h.Add(p[0], p[1])
	}
	return h
}

func TestReadHint(t *testing.T) {
	vectors := readHeaderVectors(t)
	for _, v := range vectors.Hints {
		got, want := pace.ReadHint(fieldsOf(v.Fields), vectors.Now), v.Hint.hint()
		if d := got.Gap - want.Gap; d > -2 && d < 2 {
			got.Gap = want.Gap // a nanosecond, by rounding
		}
		if d := got.Wait - want.Wait; d > -time.Microsecond && d < time.Microsecond {
			got.Wait = want.Wait
		}
		if got != want {
			t.Errorf("%s: ReadHint(%v) = %+v, want %+v", v.Name, v.Fields, got, want)
		}
	}
}

// What the drafts and other APIs document.
func TestReadHintOnDocumentedFields(t *testing.T) {
	text, err := os.ReadFile("testdata/ratelimit-fields.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Valid []struct {
			Field, Value string
			Parsed       []struct{ R, T *int64 }
		}
		Invalid []struct{ Field, Value, Why string }
		Legacy  []struct {
			Dialect string
			Headers map[string]string
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, v := range vectors.Valid {
		if v.Field != "RateLimit" {
			continue
		}
		read++
		want := pace.Hint{Remaining: -1}
		for _, p := range v.Parsed {
			if want.Remaining < 0 || *p.R < want.Remaining {
				want.Remaining = *p.R
			}
			if *p.R == 0 && p.T != nil {
				want.Wait = max(want.Wait, time.Duration(*p.T)*time.Second)
			}
		}
		if got := pace.ReadHint(header("RateLimit", v.Value), now); got != want {
			t.Errorf("RateLimit: %s = %+v, want %+v", v.Value, got, want)
		}
	}
	for _, v := range vectors.Invalid {
		if v.Field != "RateLimit" || strings.HasPrefix(v.Value, "limit=") ||
			strings.Contains(v.Why, "syntactically valid") {
			continue
		}
		read++
		got := pace.ReadHint(header("RateLimit", v.Value), now)
		if got.Wait != 0 {
			t.Errorf("RateLimit: %s (%s) = %+v, want no wait", v.Value, v.Why, got)
		}
	}
	for _, v := range vectors.Legacy {
		h := http.Header{}
		hasCount := false
		for name, value := range v.Headers {
			h.Set(name, value)
			hasCount = hasCount || strings.HasSuffix(strings.ToLower(name), "remaining") ||
				strings.EqualFold(name, "RateLimit")
		}
		read++
		if got := pace.ReadHint(h, now); hasCount != (got.Remaining >= 0) {
			t.Errorf("%s: %+v, want what remains: %v", v.Dialect, got, hasCount)
		}
	}
	if read < 18 {
		t.Errorf("%d vectors were read, want all", read)
	}
}

func TestIsRefusal(t *testing.T) {
	for _, v := range readHeaderVectors(t).Refusals {
		if got := pace.IsRefusal(v.Status, fieldsOf(v.Fields)); got != v.Refusal {
			t.Errorf("%s: IsRefusal = %v, want %v", v.Name, got, v.Refusal)
		}
	}
}

// Whatever a server sends, a hint is one that can be waited for.
func FuzzReadHint(f *testing.F) {
	f.Add("30", `"a";r=0;t=5`, "0", "1795348860")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", `a;r=0;t=9;headgate-slot=999999999999999, b;r=1;pk=:AA==:`,
		"12, 12;w=1", "6m0s")
	f.Add("1e309", `limit=1, remaining=0, reset=9223372036854775807`, "-1", "9999-12-31T23:59:59Z")
	f.Fuzz(func(t *testing.T, retryAfter, rateLimit, remaining, reset string) {
		h := pace.ReadHint(header("Retry-After", retryAfter, "RateLimit", rateLimit,
			"X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset), now)
		const century = 100 * 365 * 24 * time.Hour
		if h.Wait < 0 || h.Wait > century || h.Remaining < -1 {
			t.Errorf("%+v, want a wait that is not negative and can be added to a time", h)
		}
		if h.Slot && h.Remaining != 0 {
			t.Errorf("%+v, want slots only where nothing is left", h)
		}
	})
}
