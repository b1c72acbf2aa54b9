package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
)

// What a gateway found is read part by part, and an answer that is something else
// or breaks off is an error and no clean bill.
func TestLintReadsReports(t *testing.T) {
	const one = `{"severity":"warning","code":"covered","source":"database","where":"rules[0]","field":"limit","value":"7","want":"less"}`
	for _, tt := range []struct {
		answer string
		want   string // of the error, or what was found
	}{
		{`{"documents":[{"source":"database","read":true,"rules":2}],"findings":[` + one + `,` + strings.Replace(one,
			`"7"`, `"8"`, 1) + `],"accepted":[` + strings.Replace(one, `}`, `,"reason":"so"}`, 1) +
			`],"count":{"warnings":2}}`,
			"2 rules: covered 7 less, covered 8 less, covered 7 less so"},
		{`{"count":{},"later":[1,{"a":2}],"accepted":[],"findings":[],"documents":[{"read":true,"rules":1}]}` + "\n", "1 rules: "},
		{`[]`, "no report of lint"},
		{`"text"`, "no report of lint"},
		{`{"findings":{}}`, "no report of lint"},
		{`{"findings":[{"severity":"mild"}]}`, "mild"},
		{`{"findings":[` + one + `,`, "EOF"},
		{`{"documents":[],"findings":[`, "EOF"},
		{``, "EOF"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			_, _ = io.WriteString(w, tt.answer)
		}))
		c, err := client.New(s.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.LintDatabase(t.Context(), nil)
		s.Close()
		var texts []string
		for _, p := range r.Problems {
			texts = append(texts, strings.TrimSpace(fmt.Sprint(p.Code, " ", p.Value, " ", p.Want, " ", p.Accepted)))
			if p.Severity != policy.Warning || p.Where != "rules[0]" || p.Source != s.URL || p.Rule != -1 {
				t.Errorf("%s: %+v, want all of the finding", tt.answer, p)
			}
		}
		got := fmt.Sprintf("%d rules: %s", r.Rules, strings.Join(texts, ", "))
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s:\n%s\nwant %s", tt.answer, got, tt.want)
		}
	}
}

// An answer that is too long is not taken for one that broke off, and asked for once.
func TestTooLongAnswers(t *testing.T) {
	const report = `{"documents":[],"findings":[]}`
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, report)
	}))
	defer s.Close()
	c, err := client.New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []func() error{
		func() error { _, err := c.LintDatabase(t.Context(), nil); return err },
		func() error { _, err := c.Inspect(t.Context(), admin.BucketRequest{}); return err },
	} {
		for most, want := range map[int64]string{
			int64(len(report)):     "",
			int64(len(report)) - 1: "the answer has more than 29 bytes",
			5:                      "the answer has more than 5 bytes",
		} {
			asked = 0
			c.ReadAtMost(most)
			err := ask()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) ||
				asked != 1 {
				t.Errorf("of %d bytes %d are read: %v after it was asked for %d times, want %q after one", len(report),
					most, err, asked, want)
			}
		}
	}
}
