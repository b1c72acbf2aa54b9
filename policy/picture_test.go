package policy_test

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// The picture of docs/policies.md is drawn from what Consider says, so it shows what happens. After
// a change of the rules of precedence, draw it anew with -update, and look at it.
func TestPrecedencePicture(t *testing.T) {
	const path = "../docs/precedence.svg"
	now := time.Date(2027, 1, 4, 12, 0, 0, 0, time.UTC)
	template, err := endpoint.ParseTemplate("GET /v1/items/{id}")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{
		Projects: map[string]string{"acme": "gold"},
		Rules: []policy.Rule{
			{Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 80, Expires: now.Add(72 * time.Hour)},
			{Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 60},
			{Endpoint: "GET /v1/items/{id}", Tier: "gold", Limit: 50},
			{Endpoint: "GET /v1/items/{id}", Limit: 5},
			{Endpoint: "default", Tier: "gold", Limit: 40},
			{Endpoint: "default", Limit: 20},
			{Endpoint: "default", Limit: 30, Subject: policy.SubjectIP},
			{Endpoint: "UNKNOWN", Limit: 2},
			{Endpoint: "UNKNOWN", Limit: 2, Subject: policy.SubjectIP},
			{Endpoint: "*", Project: "acme", Limit: 200},
			{Endpoint: "*", Limit: 100, Subject: policy.SubjectIP},
		},
	}, policy.CompileOptions{Endpoints: table, Now: now})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}

	got := draw(set, set.Consider(now.UnixNano(), table.Match("GET", "/v1/items/7"), "acme", ""))
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s shows something else than what happens, want it drawn anew: go test ./policy -run Picture -update",
			path)
	}
}

// rungs are the levels as people say them, from the most specific on.
var rungs = []struct{ endpoint, whose string }{
	{"this endpoint", "acme"},
	{"this endpoint", "tier gold"},
	{"this endpoint", "everybody"},
	{"default", "acme"},
	{"default", "tier gold"},
	{"default", "everybody"},
	{"UNKNOWN", "everybody"},
	{"*", "acme"},
	{"*", "tier gold"},
	{"*", "everybody"},
}

const (
	left, top   = 16, 92
	words, wide = 230, 250 // of the names of the levels, and of a column
	high, gap   = 34, 26   // of a row, and before what applies in addition
)

// draw shows a ladder of levels for every subject: what is found, what holds, and what is passed over.
func draw(set *policy.Set, story []policy.Considered) []byte {
	subjects := []policy.Subject{policy.SubjectPrincipal, policy.SubjectIP}
	var b bytes.Buffer
	width, height := left+words+len(subjects)*wide+left, top+len(rungs)*high+gap+40
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="Which rules apply to one request: for each subject the first level that has one, and * in addition">
<style>
.ground{fill:#ffffff;stroke:#d0d7de}.word{fill:#1f2328;font:13px system-ui,sans-serif}.head{font-weight:600}.quiet{fill:#6e7781;font:13px system-ui,sans-serif}
.holds{fill:#0969da}.light{fill:#ffffff;font:600 13px system-ui,sans-serif}.passed{fill:#eaeef2}.none{stroke:#d0d7de;stroke-dasharray:3 4}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#30363d}.word{fill:#e6edf3}.quiet{fill:#8b949e}.holds{fill:#1f6feb}.passed{fill:#21262d}.none{stroke:#30363d}}
</style>
<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>
`, width, height, width-1, height-1)
	text(&b, "word head", left, 30, "GET /v1/items/7, with a key of project acme, which is in tier gold")
	text(&b, "quiet", left, 52,
		"Each column is searched from the top; the first rule that is found holds. Rules for * hold besides.")
	for column, subject := range subjects {
		text(&b, "word head", x(column), top-14, map[policy.Subject]string{
			policy.SubjectPrincipal: "per principal: the key",
			policy.SubjectIP:        "per ip: the address",
		}[subject])
	}
	for row, rung := range rungs {
		text(&b, "word", left, y(row)+21, rung.endpoint)
		text(&b, "quiet", left+116, y(row)+21, rung.whose)
		for column, subject := range subjects {
			cell(&b, set, story, x(column), y(row), policy.Level(row), subject)
		}
	}
	text(&b, "quiet", left, y(7)-8, "and besides")
	text(&b, "quiet", left, height-14,
		"All that hold are decided together: the request takes from every one of their buckets, or from none.")
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func x(column int) int { return left + words + column*wide }

func y(row int) int {
	if row >= 7 {
		return top + row*high + gap
	}
	return top + row*high
}

// cell shows what one level has for one subject.
func cell(b *bytes.Buffer, set *policy.Set, story []policy.Considered, x, y int, level policy.Level,
	subject policy.Subject) {
	var found []policy.Considered
	for _, c := range story {
		if c.Level == level && c.Subject == subject && c.Found {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		fmt.Fprintf(b, "<line class=\"none\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%[2]d\"/>\n", x, y+high/2, x+wide-30)
		return
	}
	at, left := x, wide-20
	for i, c := range found {
		width := left
		if i < len(found)-1 {
			width = left * 3 / 5 // the first says more
		}
		rule := set.Rule(c.Rule)
		says := rule.Rate()
		if !rule.Expires.IsZero() {
			says = fmt.Sprintf("%d until %s", rule.Limit, rule.Expires.Format("2 Jan"))
		} else if len(found) > 1 {
			says = fmt.Sprint(rule.Limit, " after")
		}
		box, word := "passed", "quiet"
		if c.Applies {
			box, word = "holds", "light"
		}
		fmt.Fprintf(b,
			"<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"><title>%s</title></rect>\n", box, at,
			y+3, width-6, high-6, html.EscapeString(c.Why))
		text(b, word, at+10, y+21, says)
		at, left = at+width, left-width
	}
}

func text(b *bytes.Buffer, class string, x, y int, words string) {
	fmt.Fprintf(b, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, x, y,
		html.EscapeString(strings.TrimSpace(words)))
}
