package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/server/record"
)

// TestAuditFitsATerminal: entries of usual lengths have at most 100 columns and
// lose nothing of what they name.
func TestAuditFitsATerminal(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 24, 22, 0, time.UTC)
	var out strings.Builder
	err := writeAudit(&out, []record.Audit{
		{
			ID:       12345,
			At:       at,
			Actor:    "api_key k_cceb0ef93291b6834709",
			Claimed:  "Ann",
			Action:   "request",
			Rule:     "request r_5a6d797429cd45ec0d8d: 80 per 1s",
			Endpoint: "GET /v1/items/{id}",
			Whose:    "project acme",
		},
		{
			ID:       2,
			At:       at,
			Actor:    "token ops",
			Action:   "grant",
			Amount:   5,
			Expires:  at.Add(time.Hour),
			Rule:     "GET /v1/items/{id}",
			Endpoint: "GET /v1/items/{id}",
			Whose:    "api key k_cceb0ef93291b6834709 of project acme",
		},
		{
			ID:     1,
			At:     at,
			Actor:  "local:root",
			Action: "reset",
			Rule:   "logins",
			Endpoint: "POST /v1/customers/{customer}/subscriptions/{subscription}/discounts/{discount}" +
				"/of/a/path/longer/than/a/line",
			Whose: "address 192.0.2.1",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `ID     AT                    ACTION   ACTOR                           BY
12345  2026-11-22T01:24:22Z  request  api_key k_cceb0ef93291b6834709  Ann
       request r_5a6d797429cd45ec0d8d: 80 per 1s, GET /v1/items/{id}, project acme
2      2026-11-22T01:24:22Z  grant    token ops                       -
       5 to GET /v1/items/{id}, api key k_cceb0ef93291b6834709 of project acme,
       until 2026-11-22T02:24:22Z
1      2026-11-22T01:24:22Z  reset    local:root                      -
       logins,
       POST /v1/customers/{customer}/subscriptions/{subscription}/discounts/{discount}/of/a/path/longer/than/a/line,
       address 192.0.2.1
`
	if out.String() != want {
		t.Errorf("writeAudit prints\n%s, want\n%s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > auditColumns &&
			!strings.Contains(line, "longer/than/a/line") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
