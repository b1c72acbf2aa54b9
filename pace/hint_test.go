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

func TestReadHint(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		want   pace.Hint
	}{
		"nothing":                  {header(), pace.Hint{Remaining: -1}},
		"Retry-After":              {header("Retry-After", "30"), pace.Hint{Wait: 30 * time.Second, Remaining: -1}},
		"0":                        {header("Retry-After", "0"), pace.Hint{Remaining: -1}},
		"a fraction (Shopify)":     {header("Retry-After", "2.0"), pace.Hint{Wait: 2 * time.Second, Remaining: -1}},
		"a date":                   {header("Retry-After", "Sun, 22 Nov 2026 12:01:00 GMT"), pace.Hint{Wait: time.Minute, Remaining: -1}},
		"a date that is over":      {header("Retry-After", "Sun, 22 Nov 2026 11:01:00 GMT"), pace.Hint{Remaining: -1}},
		"by the server's clock":    {header("Date", "Sun, 22 Nov 2026 14:00:00 GMT", "Retry-After", "Sun, 22 Nov 2026 14:01:00 GMT"), pace.Hint{Wait: time.Minute, Remaining: -1}},
		"negative":                 {header("Retry-After", "-5"), pace.Hint{Remaining: -1}},
		"NaN":                      {header("Retry-After", "NaN"), pace.Hint{Remaining: -1}},
		"infinite":                 {header("Retry-After", "Inf"), pace.Hint{Remaining: -1}},
		"hexadecimal":              {header("Retry-After", "0x10"), pace.Hint{Remaining: -1}},
		"milliseconds":             {header("Retry-After", "1", "Retry-After-Ms", "250"), pace.Hint{Wait: 250 * time.Millisecond, Remaining: -1}},
		"draft-10":                 {header("RateLimit", `"a";r=0;t=5`), pace.Hint{Wait: 5 * time.Second}},
		"draft-10, something left": {header("RateLimit", `"a";r=3;t=5`), pace.Hint{Remaining: 3}},
		"two quotas":               {header("RateLimit", `"a";r=0;t=5, "b";r=7;t=90`), pace.Hint{Wait: 5 * time.Second}},
		"two lines":                {header("RateLimit", `"b";r=0;t=9`, "RateLimit", `"a";r=0;t=5`), pace.Hint{Wait: 9 * time.Second}},
		"an epoch in t":            {header("RateLimit", `"a";r=0;t=1700000000`), pace.Hint{}},
		"a slot":                   {header("RateLimit", `"a";r=0;t=3;headgate-slot=2250`, "Retry-After", "3"), pace.Hint{Wait: 2250 * time.Millisecond, Slot: true}},
		"draft-07":                 {header("RateLimit", "limit=100, remaining=0, reset=5"), pace.Hint{Wait: 5 * time.Second}},
		"draft-03":                 {header("RateLimit-Limit", "12, 12;w=1", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"), pace.Hint{Wait: time.Second}},
		"GitHub":                   {header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795348860"), pace.Hint{Wait: time.Minute}},
		"Unix milliseconds":        {header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1795348860500"), pace.Hint{Wait: time.Minute + 500*time.Millisecond}},
		"X":                        {header("x-rate-limit-remaining", "0", "x-rate-limit-reset", "1795348810"), pace.Hint{Wait: 10 * time.Second}},
		"RFC 3339":                 {header("Anthropic-RateLimit-Requests-Remaining", "0", "Anthropic-RateLimit-Requests-Reset", "2026-11-22T12:00:30Z"), pace.Hint{Wait: 30 * time.Second}},
		"OpenAI":                   {header("X-RateLimit-Remaining-Requests", "5", "X-RateLimit-Reset-Requests", "1s", "X-RateLimit-Remaining-Tokens", "0", "X-RateLimit-Reset-Tokens", "6m0s"), pace.Hint{Wait: 6 * time.Minute}},
		"Shopify":                  {header("X-Shopify-Shop-Api-Call-Limit", "38/40"), pace.Hint{Remaining: 2}},
		"Retry-After outweighs":    {header("RateLimit", `"a";r=0;t=5`, "Retry-After", "30"), pace.Hint{Wait: 30 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pace.ReadHint(c.header, now); got != c.want {
				t.Errorf("ReadHint(%v) = %+v, want %+v", c.header, got, c.want)
			}
		})
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
		if v.Field != "RateLimit" || strings.HasPrefix(v.Value, "limit=") || strings.Contains(v.Why, "syntactically valid") {
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
			hasCount = hasCount || strings.HasSuffix(strings.ToLower(name), "remaining") || strings.EqualFold(name, "RateLimit")
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
	for name, c := range map[string]struct {
		status int
		header http.Header
		want   bool
	}{
		"429":                         {429, header(), true},
		"503":                         {503, header(), false},
		"503 that says when":          {503, header("Retry-After", "1"), true},
		"403":                         {403, header(), false},
		"403 with nothing left":       {403, header("X-RateLimit-Remaining", "0"), true},
		"403 with something left":     {403, header("X-RateLimit-Remaining", "1"), false},
		"403 that says when (GitHub)": {403, header("Retry-After", "60"), true},
		"400":                         {400, header(), false},
		"400 of AWS":                  {400, header("X-Amzn-ErrorType", "ThrottlingException:http://internal.amazon.com/"), true},
		"400 of AWS, another one":     {400, header("X-Amzn-ErrorType", "ValidationException"), false},
		"500":                         {500, header("Retry-After", "1"), false},
		"200":                         {200, header("Retry-After", "1"), false},
	} {
		if got := pace.IsRefusal(c.status, c.header); got != c.want {
			t.Errorf("%s: IsRefusal = %v, want %v", name, got, c.want)
		}
	}
}

// Whatever a server sends, a hint is one that can be waited for.
func FuzzReadHint(f *testing.F) {
	f.Add("30", `"a";r=0;t=5`, "0", "1795348860")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", `a;r=0;t=9;headgate-slot=999999999999999, b;r=1;pk=:AA==:`, "12, 12;w=1", "6m0s")
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
