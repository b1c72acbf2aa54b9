package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
)

func TestRefusals(t *testing.T) {
	for text, want := range map[string]struct {
		written     policy.Refusal
		status      int
		hidden      bool
		contentType string
		body        string // for "5 per 1h, burst 7" and a wait of 1.5 s
	}{
		"503":                      {"503", 503, false, "", ""},
		"  503  ":                  {"503", 503, false, "", ""},
		"without fields":           {"without fields", 429, true, "", ""},
		"429 without fields":       {"without fields", 429, true, "", ""},
		"503  without fields":      {"503 without fields", 503, true, "", ""},
		"as text/plain: Later.":    {"as text/plain: Later.", 429, false, "text/plain; charset=utf-8", "Later."},
		"429 as text/plain:Later.": {"as text/plain: Later.", 429, false, "text/plain; charset=utf-8", "Later."},
		"503 without fields as application/json: {\"wait\":{retry_after},\"a\":{}}": {
			"503 without fields as application/json: {\"wait\":{retry_after},\"a\":{}}", 503, true, "application/json",
			`{"wait":2,"a":{}}`},
		"as text/plain: {status} {rule}: {limit} per {per} s, {burst} at once, {retry_after} s": {
			"as text/plain: {status} {rule}: {limit} per {per} s, {burst} at once, {retry_after} s", 429, false,
			"text/plain; charset=utf-8",
			`429 a "<b>": 5 per 3600 s, 7 at once, 2 s`},
		"as text/html: <p>{rule}</p><style>p{color:red}</style>\n": {
			"as text/html: <p>{rule}</p><style>p{color:red}</style>", 429, false, "text/html; charset=utf-8",
			"<p>a &#34;&lt;b&gt;&#34;</p><style>p{color:red}</style>"},
		`as application/vnd.acme+json: {"rule":"{rule}"}`: {`as application/vnd.acme+json: {"rule":"{rule}"}`, 429,
			false, "application/vnd.acme+json", `{"rule":"a \"<b>\""}`},
		"as application/xml: <e rule='{rule}'/>": {"as application/xml: <e rule='{rule}'/>", 429, false,
			"application/xml; charset=utf-8", "<e rule='a &#34;&lt;b&gt;&#34;'/>"},
	} {
		var r policy.Refusal
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want.written {
			t.Errorf("%q is read as %q, %v, want %q", text, r, err, want.written)
			continue
		}
		terms, err := r.Terms()
		if err != nil || terms.Status != want.status || terms.Hidden != want.hidden || terms.Media != "" &&
			terms.ContentType() != want.contentType || (terms.Media == "") != (want.contentType == "") {
			t.Errorf("%q is %+v, %v, want %+v", text, terms, err, want)
		}
		rule := policy.Rule{Name: `a "<b>"`, Limit: 5, Per: time.Hour, Burst: 7}
		if got := string(terms.AppendBody(nil, &rule, 1500*time.Millisecond)); got != want.body {
			t.Errorf("%q: the body is %q, want %q", text, got, want.body)
		}
	}
	for _, text := range []string{
		"429", "404", "503503", "503 503", "with fields", "without fields 503", "as", "as text/plain", "as text/plain:",
		"as text/plain: \n", "as image/png: x",
		"as text/css: x", "as application/+json: 1", "as text/x+json: 1", "as application/a b+json: 1",
		"as TEXT/PLAIN: x", "as text/plain: {retry_afer}",
		"as text/plain: a\x00b", "as text/plain: a\rb", "as text/plain: \xff", "as application/json: {",
		`as application/json: {"a": {rule}}`,
		"as text/plain: " + strings.Repeat("x", 2048), "as text/plain; charset=latin1: x", "later as text/plain: x",
	} {
		r := policy.Refusal("503")
		if err := r.UnmarshalText([]byte(text)); err == nil || r != "503" ||
			!strings.Contains(err.Error(), "refusal is ") || !strings.Contains(err.Error(), ", want ") {
			t.Errorf("%q is read as %q, %v, want an error that says what would be right", text, r, err)
		}
	}
}

// FuzzRefusal: what is read is written in one way, which is read to the same; whatever a rule is
// called, the body is as its type has it.
func FuzzRefusal(f *testing.F) {
	for _, seed := range []string{"503", "without fields", "503 without fields as text/html: <p>{rule}</p>",
		`as application/json: {"a":"{rule}","b":{retry_after}}`, "as text/plain: {{limit}} {per}"} {
		f.Add(seed, `a\"<'&>`)
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		var r, again policy.Refusal
		if r.UnmarshalText([]byte(text)) != nil || r == "" {
			return
		}
		terms, err := r.Terms()
		if err != nil || terms.Refusal() != r || again.UnmarshalText([]byte(r)) != nil || again != r || len(r) > 2048 {
			t.Fatalf("%q is written %q, and read %q, %v", text, r, again, err)
		}
		rule := policy.Rule{Endpoint: policy.Default, Name: name, Limit: 1, Burst: 1}
		body := terms.AppendBody(nil, &rule, time.Second)
		title := rule.Title()
		switch {
		case terms.Media == "":
			if len(body) > 0 {
				t.Errorf("%q: the body is %q, want none", r, body)
			}
		case strings.HasSuffix(terms.Media, "json"):
			if !json.Valid(body) {
				t.Errorf("%q for %q: %q is no JSON", r, title, body)
			}
		case terms.Media != "text/plain" && strings.Contains(string(r), "{rule}"):
			if !bytes.Contains(body, []byte(html.EscapeString(title))) {
				t.Errorf("%q for %q: %q does not have it escaped", r, title, body)
			}
		}
	})
}

// Each place of rules: allow and block have no refusal, and there are so many different ones.
func TestRefusalsOfRules(t *testing.T) {
	codes := func(rules ...policy.Rule) (found []string) {
		_, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{})
		for _, p := range problems.Errors() {
			found = append(found, p.Error())
		}
		return found
	}
	for name, c := range map[string]struct {
		rule policy.Rule
		want string
	}{
		"block": {policy.Rule{Endpoint: policy.All, Mode: policy.Block, Refusal: "503"},
			`refusal is "503", want none, because mode is block`},
		"written otherwise": {policy.Rule{Endpoint: policy.Default, Limit: 1, Refusal: "429 without fields"},
			`refusal is "429 without fields", want "without fields", which is how it is written`},
		"nonsense": {policy.Rule{Endpoint: policy.Default, Limit: 1, Refusal: "as text/plain: {x}"},
			`in braces one of retry_after, rule, limit, per, burst, status; "x" is none`},
	} {
		if got := codes(c.rule); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	var many []policy.Rule
	for i := range 1025 {
		many = append(many, policy.Rule{
			Endpoint: policy.Default,
			Project:  fmt.Sprint(i),
			Limit:    1,
			Refusal:  policy.Refusal(fmt.Sprintf("as text/plain: %d", i)),
		})
	}
	if got := codes(many[:1024]...); len(got) != 0 {
		t.Errorf("1024 different ones: %q", got[0])
	}
	if got := codes(append(many, many[7])...); len(got) < 1 ||
		!strings.Contains(got[0], "there are 1024 different ones, the most that rules may have") {
		t.Errorf("1025 different ones: %q", got)
	}

	a, b := policy.Rule{Endpoint: policy.Default, Limit: 1},
		policy.Rule{Endpoint: policy.Default, Limit: 1, Refusal: "503"}
	if (policy.Document{Rules: []policy.Rule{a}}).Fingerprint() ==
		(policy.Document{Rules: []policy.Rule{b}}).Fingerprint() {
		t.Error("a refusal does not change the fingerprint")
	}
}
