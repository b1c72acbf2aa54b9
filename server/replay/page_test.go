package replay

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate-io/headgate/policy"
)

// hostile are texts that would do something in a page, were they not text there.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg onload=alert(1)>`,
	`</title></svg><iframe src=//e.example>`,
	`javascript:alert(1)`, "{{.Requests}}", "\u202eevil\u202c", "a\x00b\x1b[31mc", `--><!--`,
	`</code><style>*{display:none}`,
}

// TestPageIsInert: whatever a log, a rule or a file is called, it is text.
func TestPageIsInert(t *testing.T) {
	log := ""
	for i, text := range hostile {
		user := url.PathEscape(text)
		log += `203.0.113.9 - ` + user + ` [23/Nov/2026:10:00:0` + string(rune('0'+i%10)) +
			` +0000] "GET /v1/items/1 HTTP/1.1" 200 5` + "\n"
	}
	report := replayed(t, log, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}})
	side := report.Sides[0]
	for _, text := range hostile {
		side.Rules = append(side.Rules, RuleCount{
			Rule:    text,
			Denied:  3,
			Callers: 1,
			Worst:   []Caller{{Who: text, Denied: 3}},
		})
		report.Faults = append(report.Faults, errors.New(text))
		side.Name = text
	}
	report.Unread = int64(len(hostile))
	page := written(t, report)
	for _, bad := range []string{"\u202e", "\x00", "\x1b", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	text := ""
	for tokens := html.NewTokenizer(strings.NewReader(page)); ; {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			break
		}
		token := tokens.Token()
		switch kind {
		case html.TextToken:
			text += token.Data
		case html.CommentToken:
			t.Errorf("a comment: %s", token)
		case html.StartTagToken, html.SelfClosingTagToken:
			if !elements[token.Data] {
				t.Errorf("an element that is not ours: %s", token)
			}
			for _, a := range token.Attr {
				if !attributes[a.Key] {
					t.Errorf("an attribute that is not ours: %s", token)
				}
			}
		}
	}
	if strings.Count(page, "<style>") != 1 || !strings.Contains(page, "default-src 'none'") {
		t.Error("the page has a style of the log's, or no policy against scripts")
	}
	if !strings.Contains(text, hostile[0]) || !strings.Contains(text, "{{.Requests}}") {
		t.Error("the page does not show what the log has")
	}
}

// What a page is made of: nothing that fetches, runs or leads anywhere.
var (
	elements = setOf(
		"html head meta title style body h1 h2 p div b bdi code svg g rect span table tbody tr th td details summary")
	// Content is that of meta, where the policy stands.
	attributes = setOf(
		"lang charset http-equiv content name class viewbox preserveaspectratio role aria-label x y width height")
)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

func written(t *testing.T, r *Report) string {
	t.Helper()
	var page strings.Builder
	if err := r.WriteHTML(&page, false); err != nil {
		t.Fatal(err)
	}
	return page.String()
}
