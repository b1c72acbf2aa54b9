package httplimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// merged is what a client is told by a door with one rule, "own" with 5 of 10 left, before a server that says more.
func merged(t *testing.T, o httplimit.Options, theirs ...string) http.Header {
	t.Helper()
	o.Merge, o.Now = true, func() time.Time { return epoch }
	rules := []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 10, Per: time.Minute, Name: "own"}}
	lim, _ := newLimiter(t, rules, func() time.Time { return epoch })
	h := httplimit.Handler(lim, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(theirs); i += 2 {
			w.Header().Add(theirs[i], theirs[i+1])
		}
	}), o)
	var w *httptest.ResponseRecorder
	for range 5 {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/items/1", nil))
		w.Flush()
	}
	return w.Result().Header
}

// Of two quotas that would stand under one name, the one that binds is told, in the dialect of this door.
func TestFieldsOfTheServerBehindAreMerged(t *testing.T) {
	const own = `"own";r=5;t=6`
	list := httplimit.Options{}
	one := httplimit.Options{BindingOnly: true}
	old := func(l httplimit.Dialect) httplimit.Options { return httplimit.Options{OmitFields: true, Legacy: l} }
	in30 := strconv.FormatInt(epoch.Unix()+30, 10)
	for name, c := range map[string]struct {
		o      httplimit.Options
		theirs []string
		want   []string
	}{
		"nothing": {list, nil, []string{"RateLimit", own, "RateLimit-Policy", `"own";q=10;w=60`}},
		"another name": {list, []string{"RateLimit", `"api";r=3;t=9`, "RateLimit-Policy",
			`"api";q=7;w=60;pk=:cHJvYmUx:`},
			[]string{"RateLimit", own + `, "api";r=3;t=9`, "RateLimit-Policy",
				`"own";q=10;w=60, "api";q=7;w=60;pk=:cHJvYmUx:`}},
		"in two lines": {list, []string{"RateLimit", `"a";r=3`, "RateLimit", `"b";r=4`},
			[]string{"RateLimit", own + `, "a";r=3, "b";r=4`, "RateLimit-Policy", `"own";q=10;w=60`}},
		"the same name, tighter": {list, []string{"RateLimit", `"own";r=4;t=30`, "RateLimit-Policy", `"own";q=8;w=60`},
			[]string{"RateLimit", `"own";r=4;t=30`, "RateLimit-Policy", `"own";q=8;w=60`}},
		"the same name, wider": {list, []string{"RateLimit", `"own";r=6;t=30`, "RateLimit-Policy", `"own";q=100;w=60`},
			[]string{"RateLimit", own, "RateLimit-Policy", `"own";q=10;w=60`}},
		"the same, longer": {list, []string{"RateLimit", `"own";r=5;t=7`},
			[]string{"RateLimit", `"own";r=5;t=7`, "RateLimit-Policy", `"own";q=10;w=60`}},
		"a policy alone": {list, []string{"RateLimit-Policy", `"day";q=1000;w=86400`},
			[]string{"RateLimit", own, "RateLimit-Policy", `"own";q=10;w=60, "day";q=1000;w=86400`}},
		"a token for a name": {list, []string{"RateLimit", `day;r=9`, "RateLimit-Policy", `day;q=10`},
			[]string{"RateLimit", own + `, "day";r=9`, "RateLimit-Policy", `"own";q=10;w=60, "day";q=10`}},
		"other words": {list, []string{"RateLimit", `"day";a=9;w=10;c=1`},
			[]string{"RateLimit", own + `, "day";r=9;t=10`}},
		"no List":    {list, []string{"RateLimit", `limit=100, remaining=1, reset=5`}, []string{"RateLimit", own}},
		"an epoch":   {list, []string{"RateLimit", `"day";r=0;t=1700000000`}, []string{"RateLimit", own}},
		"below zero": {list, []string{"RateLimit", `"day";r=-1`}, []string{"RateLimit", own}},
		"too long": {list, []string{"RateLimit", `"` + strings.Repeat("x", 5000) + `";r=0`},
			[]string{"RateLimit", own}},
		"one, tighter": {one, []string{"RateLimit", `"day";r=4`, "RateLimit-Policy", `"day";q=10;w=1`},
			[]string{"RateLimit", `"day";r=4`, "RateLimit-Policy", `"day";q=10;w=1`}},
		"one, wider": {one, []string{"RateLimit", `"day";r=6`, "RateLimit-Policy", `"day";q=10;w=1`},
			[]string{"RateLimit", own, "RateLimit-Policy", `"own";q=10;w=60`}},
		"proposal-166": {httplimit.Options{Draft: httplimit.Proposal166},
			[]string{"RateLimit", `"day";r=9;t=10`, "RateLimit-Partition", `"day";user_id`},
			[]string{"RateLimit", `"own";a=5;w=6;c=1, "day";a=9;w=10`, "RateLimit-Partition",
				`"own";headgate-endpoint;headgate-principal, "day";user_id`}},
		"draft-07, tighter": {httplimit.Options{Draft: httplimit.Draft07},
			[]string{"RateLimit", "limit=7, remaining=1, reset=9", "RateLimit-Policy", "7;w=60"},
			[]string{"RateLimit", "limit=7, remaining=1, reset=9", "RateLimit-Policy", "7;w=60"}},
		"draft-06, wider": {httplimit.Options{Draft: httplimit.Draft06},
			[]string{"RateLimit-Limit", "70", "RateLimit-Remaining", "60", "RateLimit-Reset", "1"},
			[]string{"RateLimit-Limit", "10", "RateLimit-Remaining", "5", "RateLimit-Reset", "30"}},
		"draft-03, tighter": {httplimit.Options{Draft: httplimit.Draft03},
			[]string{"RateLimit-Limit", "7, 7;w=9", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"},
			[]string{"RateLimit-Limit", "7, 7;w=9", "RateLimit-Remaining", "0", "RateLimit-Reset", "1"}},
		"delta, of an epoch": {old(httplimit.DeltaSeconds),
			[]string{"X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", in30},
			[]string{"X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "30",
				"X-RateLimit-Strategy", ""}},
		"epoch, of a delta": {old(httplimit.EpochSeconds),
			[]string{"X-RateLimit-Limit", "7", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "30"},
			[]string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", in30}},
		"epoch, of milliseconds": {old(httplimit.EpochSeconds), []string{"X-RateLimit-Remaining", "1",
			"X-RateLimit-Reset", in30 + "000"}, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", in30}},
		"iso8601, of an epoch": {old(httplimit.ISO8601),
			[]string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", in30},
			[]string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset",
				epoch.Add(30 * time.Second).UTC().Format(time.RFC3339)}},
		"delta, wider": {old(httplimit.DeltaSeconds), []string{"X-RateLimit-Limit", "70", "X-RateLimit-Remaining",
			"60", "X-RateLimit-Reset", "1"}, []string{"X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "5"}},
		"delta, no numbers": {old(httplimit.DeltaSeconds), []string{"X-RateLimit-Remaining", "few", "X-RateLimit-Reset",
			"soon"}, []string{"X-RateLimit-Remaining", "5"}},
		"names of no ours": {list, []string{"X-RateLimit-Remaining", "1"},
			[]string{"RateLimit", own, "X-RateLimit-Remaining", "1"}},
		"nothing of ours": {httplimit.Options{OmitFields: true}, []string{"RateLimit", `"day";r=1`},
			[]string{"RateLimit", `"day";r=1`}},
	} {
		got := merged(t, c.o, c.theirs...)
		for i := 0; i < len(c.want); i += 2 {
			if lines := got.Values(c.want[i]); strings.Join(lines, " | ") != c.want[i+1] {
				t.Errorf("%s: %s is %q, want %q", name, c.want[i], lines, c.want[i+1])
			}
		}
	}
}

// Every field that the drafts have an example of, or forbid, as a server behind may send it.
func TestMergeByTheVectors(t *testing.T) {
	var vectors struct {
		Valid, Invalid []struct{ Field, Value string }
	}
	text, err := os.ReadFile("../pace/testdata/ratelimit-fields.json")
	if err != nil || json.Unmarshal(text, &vectors) != nil || len(vectors.Valid) < 18 || len(vectors.Invalid) < 17 {
		t.Fatalf("vectors: %v, %d and %d, want all", err, len(vectors.Valid), len(vectors.Invalid))
	}
	for _, v := range vectors.Valid {
		if got := merged(t, httplimit.Options{}, v.Field, v.Value).Get(v.Field); !strings.HasPrefix(got, `"own";`) ||
			len(got) < len(v.Value) {
			t.Errorf("%s: %s is told as %q, want both", v.Field, v.Value, got)
		}
	}
	for _, v := range vectors.Invalid {
		if v.Field != "RateLimit" {
			continue // is described, and nobody is held back by it
		}
		if got, want := merged(t, httplimit.Options{}, v.Field, v.Value).Get(v.Field), `"own";r=5;t=6`; got != want &&
			!strings.Contains(v.Value, "t=1.5") {
			t.Errorf("%s: %q is told as %q, want %q", v.Field, v.Value, got, want)
		}
	}
}

// An early answer of the server behind takes no field away, and has none.
func TestEarlyAnswersHaveNoFields(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("RateLimit", `"api";r=3`)
		fmt.Fprint(w, "served")
	}))
	defer api.Close()
	at, _ := url.Parse(api.URL)
	lim, _ := newLimiter(t, []policy.Rule{{Endpoint: policy.Default, Limit: 10, Per: time.Minute, Name: "own"}},
		func() time.Time { return epoch })
	door := httptest.NewServer(httplimit.Handler(lim, httputil.NewSingleHostReverseProxy(at),
		httplimit.Options{Merge: true}))
	defer door.Close()
	early := 0
	r, err := http.NewRequest("GET", door.URL+"/v1/items/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://shop.example")
	r = r.WithContext(httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if early++; h.Get("Link") == "" || h.Get("RateLimit") != "" {
				t.Errorf("%d has the fields %v, want Link and no RateLimit", code, h)
			}
			return nil
		}}))
	answer, err := door.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	want := map[string]string{
		"RateLimit":                     `"own";r=9;t=6, "api";r=3`,
		"RateLimit-Policy":              `"own";q=10;w=60`,
		"Access-Control-Expose-Headers": "RateLimit, RateLimit-Policy, Retry-After",
	}
	for field, want := range want {
		if got := strings.Join(answer.Header.Values(field), " | "); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if early != 1 {
		t.Errorf("%d early answers, want 1", early)
	}
}

// FuzzMerge: whatever the server behind sends, what is told holds back no less than this door's own.
func FuzzMerge(f *testing.F) {
	f.Add(`"api";r=3;t=9`, `"api";q=7`, "1", "30")
	f.Add(`"own";r=0`, `"own";q=1;w=1`, "x", "2026-11-20T12:00:00Z")
	f.Add(`limit=1, remaining=0, reset=9`, `1;w=2`, "0", "1e300")
	f.Fuzz(func(t *testing.T, list, described, left, reset string) {
		fields := []string{"RateLimit", list, "RateLimit-Policy", described, "X-RateLimit-Remaining", left,
			"X-RateLimit-Reset", reset}
		got := merged(t, httplimit.Options{Legacy: httplimit.DeltaSeconds}, fields...)
		n, err := strconv.Atoi(got.Get("X-RateLimit-Remaining"))
		if err != nil || n > 5 || n < 0 {
			t.Errorf("X-RateLimit-Remaining is %q, want at most 5", got.Get("X-RateLimit-Remaining"))
		}
		if after, err := strconv.ParseInt(got.Get("X-RateLimit-Reset"), 10, 64); err != nil || after < 0 {
			t.Errorf("X-RateLimit-Reset is %q, want seconds", got.Get("X-RateLimit-Reset"))
		}
		if own := got.Get("RateLimit"); !strings.Contains(own, `"own";r=5`) && !strings.Contains(own, `"own"`) ||
			len(got.Values("RateLimit")) != 1 {
			t.Errorf("RateLimit is %q, want own among it", got.Values("RateLimit"))
		}
	})
}
