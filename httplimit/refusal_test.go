package httplimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
)

// What a rule says is answered, whichever of two rules refuses.
func TestRulesSayWhatIsAnswered(t *testing.T) {
	const page = `as text/html: <p>{rule}: come back in {retry_after} s.</p>`
	for name, c := range map[string]struct {
		refusal     policy.Refusal
		status      int
		contentType string
		body        string // of it
		fields      string // RateLimit of an answer that is allowed
	}{
		"nothing": {"", 429, "application/problem+json", `"violated-policies":["<b>"]`,
			`"<b>";r=0;t=60, "guard";r=99;t=1`},
		"status": {"503", 503, "application/problem+json",
			`"title":"Service Unavailable","status":503,"detail":"Limit <b>: 1 per 1m, burst 1. Retry in 1m0s.","violated-policies":["<b>"]`, `"<b>";r=0;t=60, "guard";r=99;t=1`},
		"without fields": {"without fields", 429, "application/problem+json",
			`"status":429,"detail":"Too many requests. Retry in 1m0s."}`, `"guard";r=99;t=1`},
		"a body": {page, 429, "text/html; charset=utf-8", `<p>&lt;b&gt;: come back in 60 s.</p>`,
			`"<b>";r=0;t=60, "guard";r=99;t=1`},
		"all of it": {"503 without fields as application/json: {\"retry\":{retry_after}}", 503, "application/json",
			`{"retry":60}`, `"guard";r=99;t=1`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoor(t, []policy.Rule{
				{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Minute, Name: "<b>", Refusal: c.refusal},
				{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectIP, Name: "guard"},
			}, httplimit.Options{})
			if got := d.do("GET", "/v1/items/1").Header().Get("RateLimit"); got != c.fields {
				t.Errorf("RateLimit is %s, want %s", got, c.fields)
			}
			w := d.do("GET", "/v1/items/1")
			if w.Code != c.status || w.Header().Get("Content-Type") != c.contentType ||
				!strings.Contains(w.Body.String(), c.body) {
				t.Errorf("answered %d, %s: %s, want %d, %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body,
					c.status, c.contentType, c.body)
			}
			if got := w.Header().Get("Retry-After"); got != "60" {
				t.Errorf("Retry-After is %q, want 60: without it clients retry at once", got)
			}
			if got := fmt.Sprint(w.Header(), w.Body); strings.Contains(c.fields,
				"<b>") != strings.Contains(w.Header().Get("RateLimit"), "<b>") ||
				!strings.Contains(c.fields, "<b>") && strings.Contains(got, "<b>") {
				t.Errorf("the refusal tells of the rule, or does not: %s", got)
			}
			if got, want := w.Header().Get("Content-Length"), fmt.Sprint(w.Body.Len()); got != want ||
				w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("fields are %v, want Content-Length %s, no-store and nosniff", w.Header(), want)
			}
			head := d.do("HEAD", "/v1/items/1")
			if head.Code != c.status || head.Body.Len() != 0 {
				t.Errorf("HEAD is answered %d with %q, want %d and no body", head.Code, head.Body, c.status)
			}
		})
	}
}

// With one rule told, or in the fields of the old world, a rule that is hidden gives way to the next.
func TestHiddenRulesAreNeverTold(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 1, Per: time.Minute, Name: "secret", Refusal: "without fields"},
		{Endpoint: policy.All, Limit: 60, Per: time.Minute, Subject: policy.SubjectIP, Name: "guard"},
	}
	for _, o := range everyDialect() {
		for _, rules := range [][]policy.Rule{rules, rules[:1]} {
			d := newDoor(t, rules, o)
			for range 2 {
				w := d.do("GET", "/v1/items/1", "Origin", "https://shop.example")
				if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, "secret") ||
					strings.Contains(text, "r=0") || len(rules) == 1 &&
					strings.Contains(fmt.Sprint(w.Header()["Ratelimit-Remaining"], w.Header()["X-Ratelimit-Remaining"]),
						"0") {
					t.Errorf("%+v: %d tells of the rule: %s", o, w.Code, text)
				}
				if exposed := w.Header().Get("Access-Control-Expose-Headers"); !strings.HasSuffix(exposed,
					"Retry-After") {
					t.Errorf("%+v: exposed are %q, want Retry-After among them", o, exposed)
				}
			}
		}
	}
}

// everyDialect are all ways to write the fields.
func everyDialect() (all []httplimit.Options) {
	for draft := httplimit.Draft10; draft <= httplimit.Draft03; draft++ {
		for legacy := httplimit.NoLegacy; legacy <= httplimit.WithPolicies; legacy++ {
			for _, one := range []bool{false, true} {
				all = append(all, httplimit.Options{
					Draft:       draft,
					Legacy:      legacy,
					BindingOnly: one,
					Now:         func() time.Time { return epoch },
				})
			}
		}
	}
	return all
}

// Each dialect as its documents have it.
func TestDialects(t *testing.T) {
	rules := []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 12, Name: "per-ip", Subject: policy.SubjectIP},
		{Endpoint: policy.All, Limit: 5000, Per: time.Hour, Name: "hour"},
	}
	at := epoch.Unix() + 1
	for name, c := range map[string]struct {
		o    httplimit.Options
		want map[string]string
	}{
		"draft-10": {httplimit.Options{}, map[string]string{
			"RateLimit":        `"per-ip";r=11;t=1, "hour";r=4999;t=1`,
			"RateLimit-Policy": `"per-ip";q=12;w=1, "hour";q=5000;w=3600`}},
		"draft-11": {httplimit.Options{Draft: httplimit.Draft11}, map[string]string{
			"RateLimit":        `"per-ip";r=11;t=1, "hour";r=4999;t=1`,
			"RateLimit-Policy": `"per-ip";q=12;w=1, "hour";q=5000;w=3600`}},
		"the binding rule": {httplimit.Options{BindingOnly: true},
			map[string]string{"RateLimit": `"per-ip";r=11;t=1`, "RateLimit-Policy": `"per-ip";q=12;w=1`}},
		"proposal-166": {httplimit.Options{Draft: httplimit.Proposal166}, map[string]string{
			"RateLimit":           `"per-ip";a=11;w=1;c=1, "hour";a=4999;w=1;c=1`,
			"RateLimit-Policy":    `"per-ip";q=12;w=1, "hour";q=5000;w=3600`,
			"RateLimit-Partition": `"per-ip";headgate-endpoint;headgate-ip, "hour";headgate-principal`}},
		"draft-07": {httplimit.Options{Draft: httplimit.Draft07}, map[string]string{
			"RateLimit": "limit=12, remaining=11, reset=1", "RateLimit-Policy": "12;w=1, 5000;w=3600"}},
		"draft-06": {httplimit.Options{Draft: httplimit.Draft06}, map[string]string{
			"RateLimit-Limit": "12", "RateLimit-Remaining": "11", "RateLimit-Reset": "1",
			"RateLimit-Policy": "12;w=1, 5000;w=3600"}},
		"draft-03": {httplimit.Options{Draft: httplimit.Draft03}, map[string]string{
			"RateLimit-Limit": "12, 12;w=1, 5000;w=3600", "RateLimit-Remaining": "11", "RateLimit-Reset": "1"}},
		"draft-03, one": {httplimit.Options{Draft: httplimit.Draft03, BindingOnly: true}, map[string]string{
			"RateLimit-Limit": "12, 12;w=1", "RateLimit-Remaining": "11", "RateLimit-Reset": "1"}},
		"delta": {httplimit.Options{OmitFields: true, Legacy: httplimit.DeltaSeconds}, legacyFields("12", "11", "1")},
		"epoch": {httplimit.Options{OmitFields: true, Legacy: httplimit.EpochSeconds},
			legacyFields("12", "11", fmt.Sprint(at))},
		"iso8601": {httplimit.Options{OmitFields: true, Legacy: httplimit.ISO8601},
			legacyFields("12", "11", time.Unix(at, 0).UTC().Format("2006-01-02T15:04:05Z"))},
		"envoy": {httplimit.Options{OmitFields: true, Legacy: httplimit.WithPolicies, BindingOnly: true},
			legacyFields(`12, 12;w=1;name="per-ip"`, "11", "1")},
		"envoy, all": {httplimit.Options{OmitFields: true, Legacy: httplimit.WithPolicies},
			legacyFields(`12, 12;w=1;name="per-ip", 5000;w=3600;name="hour"`, "11", "1")},
	} {
		c.o.Now = func() time.Time { return epoch }
		w := newDoor(t, rules, c.o).do("GET", "/v1/items/1")
		for _, field := range []string{
			"RateLimit", "RateLimit-Policy", "RateLimit-Partition", "RateLimit-Limit", "RateLimit-Remaining",
			"RateLimit-Reset",
			"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Strategy",
		} {
			if got := w.Header().Get(field); got != c.want[field] {
				t.Errorf("%s: %s is %q, want %q", name, field, got, c.want[field])
			}
		}
	}
}

func legacyFields(limit, remaining, reset string) map[string]string {
	return map[string]string{
		"X-RateLimit-Limit":     limit,
		"X-RateLimit-Remaining": remaining,
		"X-RateLimit-Reset":     reset,
		"X-RateLimit-Strategy":  "token_bucket",
	}
}

// What a rule costs is told by the proposal, also of a request that was denied.
func TestTheCostIsTold(t *testing.T) {
	o := httplimit.Options{Draft: httplimit.Proposal166, Cost: func(*http.Request) int64 { return 3 }}
	d := newDoor(t, []policy.Rule{{Endpoint: "GET /v1/items/{id}", Limit: 5, Per: time.Minute, Name: "a"}}, o)
	for _, want := range []string{`"a";a=2;w=12;c=3`, `"a";a=2;w=12;c=3`} {
		if got := d.do("GET", "/v1/items/1").Header().Get("RateLimit"); got != want {
			t.Errorf("RateLimit is %s, want %s", got, want)
		}
	}
}
