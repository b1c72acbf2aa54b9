package lint_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/lint"
)

// TestRestOfABrokenDocument: a rule that cannot be read hides nothing of the
// others, and what may be missing because of it is not reported.
func TestRestOfABrokenDocument(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // line and code
		last       string
	}{
		{
			name: "a misspelt field and a limit",
			text: "rules:\n  - {endpoint: GET /a, limt: 1}\n  - {endpoint: GET /b, limit: 5, burst: -1}\n  - " +
				"{endpoint: /a/b, limit: 5}\n  - {endpoint: UNKNOWN, limit: 5, project: acme}\n  - {endpoint: " +
				"default, limit: 5}\n  - {endpoint: UNKNOWN, limit: 5}\n",
			want: []string{"2 file", "3 burst", "4 endpoint", "5 unreachable"},
			last: "6 rules, 2 of them not readable and the others checked without, 3 errors, 1 warning",
		},
		{
			name: "the default rule is broken",
			text: "rules:\n  - {endpoint: default, limit: many}\n  - {endpoint: GET /a, limit: 5, on_store_loss: " +
				"open}\n",
			want: []string{"1 no_unknown", "2 limit", "3 unused_store_loss"},
			last: "2 rules, 1 of them not readable and the others checked without, 1 error, 2 warnings",
		},
		{
			name: "any rule may be the one whose endpoint is broken",
			text: "rules:\n  - {endpoint: 7, limit: 5}\n  - {endpoint: GET /a, limit: 5}\n  - {endpoint: GET /a, " +
				"limit: 6}\n",
			want: []string{"2 endpoint", "4 duplicate"},
			last: "3 rules, 1 of them not readable and the others checked without, 2 errors, 0 warnings",
		},
		{
			name: "no rule, but the document",
			text: "version: x\nrules:\n  - {endpoint: default, limit: 5}\n  - {endpoint: UNKNOWN, limit: 0}\n  - " +
				"{endpoint: UNKNOWN, limit: 5, tier: gold}\n",
			want: []string{"1 file", "4 limit", "5 unreachable"},
			last: "3 rules, 1 of them not readable and the others checked without, 2 errors, 1 warning",
		},
		{
			name: "an accepted finding that is broken",
			text: "ignore:\n  - {code: unreachable}\n  - {code: 7, reason: so}\nrules:\n  - {endpoint: default, " +
				"limit: 5}\n  - {endpoint: UNKNOWN, limit: 5}\n  - {endpoint: GET /a, limit: 5, scope: split, " +
				"algorithm: fixed_window}\n",
			want: []string{"3 ignore", "7 scope"},
			last: "3 rules, 2 errors, 0 warnings",
		},
		{
			name: "no JSON to its end",
			text: "{\"rules\": [{\"endpoint\": \"default\", \"limit\": 0},\n {\"endpoint\": \"GET /a\"",
			want: []string{"1 limit", "2 file"},
			last: "2 errors, 0 warnings",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := lint.Text([]byte(c.text), "rules.yaml", lint.Options{})
			var got []string
			for _, p := range r.Problems {
				got = append(got, fmt.Sprint(p.Line, " ", p.Code))
			}
			if !slices.Equal(got, c.want) || r.Read {
				t.Errorf("found %q (read %v), want %q\n%v", got, r.Read, c.want, r.Problems)
			}
			var text bytes.Buffer
			if err := lint.WriteText(&text, []lint.Result{r}); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			if last := lines[len(lines)-1]; last != c.last {
				t.Errorf("the last line is %q, want %q", last, c.last)
			}
		})
	}
}

// TestRestIsFoundTogether: what is wrong with readable rules is the same whether
// an unreadable one stands beside them or not.
func TestRestIsFoundTogether(t *testing.T) {
	rules := "  - {endpoint: GET /a, limit: 5}\n  - {endpoint: GET /a, limit: 6}\n  - {endpoint: GET /b, limit: 5, " +
		"project: a, tier: b}\n" +
		"  - {endpoint: UNKNOWN, limit: 5, project: acme}\n  - {endpoint: default, limit: 5, on_store_loss: " +
		"share}\n  - {endpoint: UNKNOWN, limit: 5}\n"
	whole := lint.Text([]byte("rules:\n"+rules), "rules.yaml", lint.Options{})
	beside := lint.Text([]byte("rules:\n"+rules+"  - {endpoint: GET /c, limit: x}\n"), "rules.yaml", lint.Options{})
	if n := len(whole.Problems); n < 4 || len(beside.Problems) != n+1 ||
		!slices.Equal(beside.Problems[:n], whole.Problems) {
		t.Errorf("beside a broken rule there is\n%v\nwant one more than\n%v", beside.Problems, whole.Problems)
	}
}
