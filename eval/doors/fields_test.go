package doors_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// limits reads a List as RFC 9651 has it, and says what of it is not as the draft wants it: names
// are Strings, what is needed is there, and every parameter that has a meaning is an Integer within
// bounds.
func limits(lines []string, needed string, integers ...string) (names []string, err error) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the list is empty")
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, fmt.Errorf("a member is an inner list")
		}
		name, ok := item.Value.(string)
		if token, is := item.Value.(httpsfv.Token); is { // which a tolerant reader takes
			name, ok = string(token), true
		}
		if !ok {
			return nil, fmt.Errorf("a name is a %T", item.Value)
		}
		names = append(names, name)
		if _, ok := item.Params.Get(needed); !ok {
			return nil, fmt.Errorf("%s is missing", needed)
		}
		for _, key := range append(integers, needed) {
			value, ok := item.Params.Get(key)
			if n, is := value.(int64); ok && (!is || n < 0 || key == "w" && n == 0 || key == "t" && n >= 1e9) {
				return nil, fmt.Errorf("%s is %v", key, value)
			}
		}
		for key, want := range map[string]any{"qu": "", "pk": []byte(nil)} {
			value, ok := item.Params.Get(key)
			if ok && fmt.Sprintf("%T", value) != fmt.Sprintf("%T", want) {
				return nil, fmt.Errorf("%s is a %T", key, value)
			}
		}
	}
	return names, nil
}

// The library and the rules of the draft, as the tests have them, take each vector as it is stated.
func TestVectorsOfRateLimitFields(t *testing.T) {
	var vectors struct {
		Valid []struct {
			Field, Value string
			Parsed       []struct{ Name string }
		}
		Invalid []struct{ Field, Value, Why string }
	}
	text, err := os.ReadFile("../../pace/testdata/ratelimit-fields.json")
	if err != nil || json.Unmarshal(text, &vectors) != nil || len(vectors.Valid) < 18 || len(vectors.Invalid) < 17 {
		t.Fatalf("vectors: %v, %d and %d, want all", err, len(vectors.Valid), len(vectors.Invalid))
	}
	for _, v := range vectors.Valid {
		names, err := read(v.Field, []string{v.Value})
		var want []string
		for _, p := range v.Parsed {
			want = append(want, p.Name)
		}
		if err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %s names %q, %v, want %q", v.Field, v.Value, names, err, want)
		}
	}
	for _, v := range vectors.Invalid {
		if names, err := read(v.Field, []string{v.Value}); err == nil {
			t.Errorf("%s: %q names %q, want an error: %s", v.Field, v.Value, names, v.Why)
		}
	}
}

func read(field string, lines []string) ([]string, error) {
	if field == "RateLimit-Policy" {
		return limits(lines, "q", "w")
	}
	return limits(lines, "r", "t")
}

// Whatever rules are called and however much they give: each field that is written, in every
// dialect, can be read by a library that knows nothing of us.
func TestEveryFieldIsStructured(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 1))
	clock := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	template, err := endpoint.ParseTemplate("GET /a")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return clock }
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for draft := httplimit.Draft10; draft <= httplimit.Draft03; draft++ {
		for legacy := httplimit.NoLegacy; legacy <= httplimit.WithPolicies; legacy++ {
			for _, one := range []bool{false, true} {
				var rules []policy.Rule
				for subject := range policy.SubjectSite {
					name := make([]byte, random.IntN(20))
					for i := range name {
						name[i] = byte(0x20 + random.IntN(0x5f))
					}
					rules = append(rules, policy.Rule{
						Endpoint: []string{policy.Default, policy.All}[random.IntN(2)], Subject: subject,
						Name:      string(name),
						Limit:     1 + random.Int64N(4)*random.Int64N(1e9),
						Per:       time.Duration(1+random.IntN(1e6)) * time.Second,
						Algorithm: []policy.Algorithm{policy.TokenBucket, policy.FixedWindow}[random.IntN(2)],
					})
				}
				set, problems := policy.Compile(policy.Document{Rules: rules},
					policy.CompileOptions{Endpoints: table, Now: clock})
				if err := problems.Err(); err != nil {
					t.Fatal(err)
				}
				lim, err := headgate.New(headgate.Options{Endpoints: table, Policies: headgate.Fixed(set), Now: now})
				if err != nil {
					t.Fatal(err)
				}
				h := httplimit.Handler(lim, nothing, httplimit.Options{Draft: draft, Legacy: legacy,
					BindingOnly: one, Now: now})
				for range 5 {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("GET", "/a", nil)
					r.Header.Set("Origin", "https://shop.example")
					h.ServeHTTP(w, r)
					structured(t, draft, legacy, w.Header())
					clock = clock.Add(time.Duration(random.Int64N(1e9)))
				}
			}
		}
	}
}

func structured(t *testing.T, draft httplimit.Draft, legacy httplimit.Dialect, h http.Header) {
	t.Helper()
	left, until := "r", "t"
	if draft == httplimit.Proposal166 {
		left, until = "a", "w"
	}
	integer := func(lines []string) error {
		item, err := httpsfv.UnmarshalItem(lines)
		if n, is := item.Value.(int64); err == nil && (!is || n < 0) {
			err = fmt.Errorf("it is %v, want an Integer", item.Value)
		}
		return err
	}
	list := func(lines []string) error { _, err := httpsfv.UnmarshalList(lines); return err }
	named := func(needed string, integers ...string) func([]string) error {
		return func(lines []string) error { _, err := limits(lines, needed, integers...); return err }
	}
	dictionary := func(lines []string) error {
		d, err := httpsfv.UnmarshalDictionary(lines)
		if err == nil && strings.Join(d.Names(), " ") != "limit remaining reset" {
			err = fmt.Errorf("its members are %q", d.Names())
		}
		return err
	}
	reads := map[string]func([]string) error{
		"Ratelimit": named(left, until, "c"), "Ratelimit-Policy": named("q", "w"), "Ratelimit-Partition": list,
		"Ratelimit-Limit": list, "Ratelimit-Remaining": integer, "Ratelimit-Reset": integer,
		"X-Ratelimit-Limit": list, "X-Ratelimit-Remaining": integer, "X-Ratelimit-Reset": integer,
		"X-Ratelimit-Strategy": list,
		"Retry-After":          integer, "Access-Control-Expose-Headers": list,
	}
	if draft >= httplimit.Draft07 {
		reads["Ratelimit"], reads["Ratelimit-Policy"] = dictionary, list
	}
	if legacy == httplimit.ISO8601 {
		reads["X-Ratelimit-Reset"] = func(lines []string) error {
			_, err := time.Parse(time.RFC3339, lines[0])
			return err
		}
	}
	seen := 0
	for name, lines := range h {
		if read := reads[name]; read != nil {
			seen++
			if err := read(lines); err != nil || len(lines) != 1 {
				t.Errorf("draft %d, legacy %d: %s: %q: %v", draft, legacy, name, lines, err)
			}
		}
	}
	if seen < 3 {
		t.Errorf("draft %d, legacy %d: %d fields, want more: %v", draft, legacy, seen, h)
	}
}
