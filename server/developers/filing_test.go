package developers_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParseFiling(t *testing.T) {
	got,
		err := developers.ParseFiling(
		[]byte(`{"endpoint":"GET /v1/items/{id}/","subject":"project","limit":50,"per":"1m","burst":80,"for":"48h","reason":"größer","name":"Ann"}`), now)
	want := record.LimitRequest{
		Claimed: "Ann", Reason: "größer",
		Asked: record.Asked{
			Endpoint: "GET /v1/items/{id}",
			Subject:  policy.SubjectProject,
			Limit:    50,
			Per:      time.Minute,
			Burst:    80,
			For:      48 * time.Hour,
		},
	}
	if err != nil || got != want {
		t.Errorf("ParseFiling = %+v, %v, want %+v", got, err, want)
	}
	got, err = developers.ParseFiling([]byte(`{"endpoint":"*","limit":5,"until":"2026-03-08T00:00:00Z","reason":"x"}`),
		now)
	want = record.LimitRequest{Reason: "x", Asked: record.Asked{
		Endpoint: "*",
		Limit:    5,
		Per:      time.Second,
		Until:    now.Add(6*24*time.Hour + 12*time.Hour),
	}}
	if err != nil || got != want {
		t.Errorf("ParseFiling = %+v, %v, want %+v", got, err, want)
	}
}

func TestParseFilingRefuses(t *testing.T) {
	const good = `"endpoint":"GET /a","limit":5,"for":"1h","reason":"x"`
	for body, want := range map[string]string{
		``:                              "no JSON object",
		`[]`:                            "no JSON object",
		`{` + good:                      "no JSON object",
		`{` + good + `}{}`:              "more than one JSON object",
		`{` + good + `,"limit":6}`:      `the member "limit" twice`,
		`{` + good + `,"Limit":6}`:      `the member "limit" twice`,
		`{` + good + `,"Burst":6}`:      "members in lower case",
		`{` + good + `,"project":"b"}`:  `unknown field "project"`,
		`{` + good + `,"mode":"x"}`:     `unknown field "mode"`,
		`{` + good + `,"subject":"me"}`: `subject is "me"`,
		`{` + good + `,"per":"1.5s"}`:   `per is "1.5s", want whole seconds`,
		`{` + good + `,"per":"0s"}`:     `per is "0s"`,
		`{` + good + `,"per":"721h"}`:   `per is "721h"`,
		`{` + good + `,"burst":-1}`:     "burst",
		`{` + good + `,"until":"2026-04-01T00:00:00Z"}`:                               "one of the two",
		`{"endpoint":"GET /a","limit":5,"reason":"x"}`:                                "one of the two",
		`{"endpoint":"GET /a","limit":5,"reason":"x","for":"30s"}`:                    `for is "30s"`,
		`{"endpoint":"GET /a","limit":5,"reason":"x","for":"9000h"}`:                  `for is "9000h"`,
		`{"endpoint":"GET /a","limit":5,"reason":"x","until":"2026-03-01T00:00:00Z"}`: `until is "2026-03-01T00:00:00Z"`,
		`{"endpoint":"GET /a","limit":5,"reason":"x","until":"2036-03-01T00:00:00Z"}`: `until is "2036-03-01T00:00:00Z"`,
		`{"endpoint":"GET /a","limit":0,"for":"1h","reason":"x"}`:                     "limit",
		`{"endpoint":"GET /a","limit":-5,"for":"1h","reason":"x"}`:                    "limit",
		`{"endpoint":"GET /a","limit":1e30,"for":"1h","reason":"x"}`:                  "body: ",
		`{"endpoint":"UNKNOWN","limit":5,"for":"1h","reason":"x"}`:                    `endpoint is "UNKNOWN", want a template`,
		`{"endpoint":"","limit":5,"for":"1h","reason":"x"}`:                           `endpoint is ""`,
		`{"endpoint":"GET /a","limit":5,"for":"1h","reason":""}`:                      "reason has 0 bytes",
		`{"endpoint":"GET /a","limit":5,"for":"1h","reason":"a\nb"}`:                  "printable text on one line",
		`{"endpoint":"GET /a","limit":5,"for":"1h","reason":"\u001b[31m"}`:            "printable text on one line",
		`{"endpoint":"GET /a","limit":5,"for":"1h","reason":"` + strings.Repeat("é", 501) +
			`"}`: "reason has 1002 bytes, want 1 to 1000",
		`{` + good + `,"name":"` + strings.Repeat("n", 101) + `"}`: "name has 101 bytes",
		strings.Repeat(" ", 9<<10):                                 "body has 9216 bytes",
	} {
		if got, err := developers.ParseFiling([]byte(body), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %+v, %v, want an error that says %q", body, got, err, want)
		}
	}
	_, err := developers.ParseFiling([]byte(`{"endpoint":"x","limit":5,"for":"1s","reason":""}`), now)
	for _, field := range []string{"endpoint is", "for is", "reason has"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name every field at fault: %q is missing", err, field)
		}
	}
}

// Whatever is accepted is bounded, can be printed, and makes a rule that loads;
// and it says the same when it is sent once more.
func FuzzParseFiling(f *testing.F) {
	f.Add([]byte(`{"endpoint":"GET /v1/items/{id}","limit":50,"per":"1m","for":"48h","reason":"x"}`))
	f.Add([]byte(`{"endpoint":"*","subject":"ip","limit":9223372036854775807,"burst":1,"until":"2026-03-08T00:00:00+05:30","reason":"x","name":"é"}`))
	f.Add([]byte(`{"endpoint":"default","limit":1,"limit":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := developers.ParseFiling(body, now)
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Errorf("the error is no text: %q", err)
			}
			return
		}
		if len(r.Reason) > developers.MaxReason || strings.ContainsFunc(r.Reason+r.Claimed+r.Endpoint,
			unicode.IsControl) || !utf8.ValidString(r.Reason+r.Claimed) {
			t.Errorf("ParseFiling lets %q and %q pass", r.Reason, r.Claimed)
		}
		if (r.For > 0) != r.Until.IsZero() || r.For > developers.MaxLasting ||
			r.Until.After(now.Add(developers.MaxLasting)) {
			t.Errorf("ParseFiling lets an end of %v and %v pass", r.For, r.Until)
		}
		rule := policy.Rule{
			Endpoint: r.Endpoint,
			Project:  "acme",
			Subject:  r.Subject,
			Limit:    r.Limit,
			Per:      r.Per,
			Burst:    r.Burst,
			Expires:  now.Add(time.Hour),
		}
		if err := policy.Lint(policy.Document{Rules: []policy.Rule{rule}}, policy.CompileOptions{}).Err(); err != nil {
			t.Errorf("%+v makes a rule that does not load: %v", r, err)
		}
		again, err := json.Marshal(developers.Filing{
			Endpoint: r.Endpoint, Subject: r.Subject.String(), Limit: r.Limit, Per: r.Per.String(), Burst: r.Burst,
			For: forText(r.For), Until: r.Until, Reason: r.Reason, Name: r.Claimed,
		})
		if err != nil {
			t.Fatal(err)
		}
		if second, err := developers.ParseFiling(bytes.TrimSpace(again), now); err != nil || !same(second, r) {
			t.Errorf("%+v comes back as %+v, %v", r, second, err)
		}
	})
}

func forText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func same(a, b record.LimitRequest) bool {
	equal := a.Until.Equal(b.Until)
	a.Until, b.Until = time.Time{}, time.Time{}
	return equal && a == b
}
