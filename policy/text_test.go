package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
)

func TestParseRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]policy.Rule{
		"GET /v1/reports/{report} 2/h": {Endpoint: "GET /v1/reports/{report}", Limit: 2, Per: time.Hour},
		"default 20/s burst 40":        {Endpoint: policy.Default, Limit: 20, Per: time.Second, Burst: 40},
		" POST  /v1/login  5/15min by ip  burst 10 ": {
			Endpoint: "POST /v1/login", Limit: 5, Per: 15 * time.Minute, Burst: 10, Subject: policy.SubjectIP,
		},
		"UNKNOWN 5/m shadow": {Endpoint: policy.UnknownEndpoint, Limit: 5, Per: time.Minute, Mode: policy.Shadow},
		"* 9000/7d by project": {Endpoint: policy.All, Limit: 9000, Per: 7 * 24 * time.Hour,
			Subject: policy.SubjectProject},
		"GET /health allow": {Endpoint: "GET /health", Mode: policy.Allow},
		"* block by ip:192.0.2.7/24": {
			Endpoint: policy.All, Mode: policy.Block, Subject: policy.SubjectIP, Only: "ip:192.0.2.0/24",
		},
		"GET /rpc?action=x 1/s": {Endpoint: "GET /rpc?action=x", Limit: 1, Per: time.Second},
	} {
		if got, err := policy.ParseRule(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// What is wrong is said all at once, with the value and what would be right.
func TestParseRuleSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                               {"want an endpoint and a limit"},
		"default":                        {"want an endpoint and a limit"},
		"GET /a":                         {"want an endpoint and a limit"},
		"GET /a 20":                      {`limit is "20"`},
		"GET /a 0/s":                     {`limit is "0/s"`},
		"GET /a 2/fortnight":             {`limit is "2/fortnight"`, `"5/min"`},
		"GET /a 2/0s":                    {`limit is "2/0s"`},
		"GET /a 2/2000000000d":           {`limit is "2/2000000000d"`},
		"GET /a -2/s":                    {`limit is "-2/s"`},
		"default 20/s burst":             {"burst is the last word"},
		"default 20/s burst 0 burst 1":   {`burst is "0"`, "burst stands twice"},
		"default x/s burst many by moon": {`limit is "x/s"`, `burst is "many"`, `"moon"`},
		"* allow shadow":                 {"shadow stands behind allow"},
		"* block by ip:moon":             {`an address or a network behind "ip:"`},
		"default 20/s twice":             {`"twice" means nothing here`},
		"* 5/s by in_flight:ip":          {`limit is "5/s", want "5 at once by ip"`},
	} {
		_, err := policy.ParseRule(text)
		if err == nil {
			t.Errorf("%q is a rule, want an error", text)
			continue
		}
		for _, part := range append(want, "rule \""+text+"\"") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want %q in it", text, err, part)
			}
		}
	}
}

// FuzzParseRule: what is read has an endpoint, a limit and a time or none, and a subject that reads the same; whole
// text is never kept for a name.
func FuzzParseRule(f *testing.F) {
	for _, text := range []string{"GET /a 2/h", "default 20/s burst 40 by ip shadow", "UNKNOWN 1/99999d", "* 1/s by",
		"\x00 / 1/s", "* block by ip:192.0.2.0/24", "* allow by token:a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := policy.ParseRule(text)
		if err != nil {
			return
		}
		var again policy.Rule
		if err := again.SetSubject(r.SubjectText()); err != nil || again.Subject != r.Subject || again.Only != r.Only {
			t.Fatalf("%q has the subject %q, which is read as %+v, %v", text, r.SubjectText(), again, err)
		}
		if !r.Mode.Limits() && r.Limit == 0 && r.Endpoint != "" {
			return
		}
		if r.Endpoint == "" || r.Limit < 1 || r.Per < time.Second || r.Per%time.Second != 0 || r.Burst < 0 {
			t.Fatalf("%q is %+v", text, r)
		}
	})
}

// The times of limits, of periods and of what ends are read alike.
func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30d": 30 * 24 * time.Hour, "15min": 15 * time.Minute, "2h": 2 * time.Hour, "1h30m": 90 * time.Minute,
		"1.5h": 90 * time.Minute, "0s": 0, "-1h": -time.Hour,
		"": refused, "d": refused, "-1d": refused, "0d": refused, "1w": refused, "1 d": refused, "106752d": refused,
		"99999999999d": refused,
	} {
		if got, err := policy.ParseDuration(text); err != nil && want != refused || err == nil && got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	if p := policy.Penalty("10 in 1m for 1d"); p.UnmarshalText([]byte(p)) != nil || p != "10 in 1m for 24h" {
		t.Errorf("a penalty for 1d is %q, want one for 24h", p)
	}
}

const refused = time.Duration(-1)
