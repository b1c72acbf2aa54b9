package policy

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Refusal says what a request is answered that a rule denies, as RefusalTerms.Refusal writes it. Empty is 429, with
// problem details (RFC 9457).
//
//	503                                                         another status
//	without fields                                              nothing of the limit, but when to come back
//	as text/plain: Come back in {retry_after} s.                a body of one's own
//	503 without fields as application/json: {"error": "busy"}   all of them
type Refusal string

// RefusalTerms are what a Refusal says.
type RefusalTerms struct {
	Status int // http.StatusTooManyRequests or http.StatusServiceUnavailable

	// Hidden says that clients are told nothing of the rule: it is in no RateLimit and X-RateLimit-* field, also of
	// requests that may pass, and in no problem details. Retry-After stays, else they would retry at once.
	Hidden bool

	// Media is the media type of Body, both empty for problem details. In Body, {retry_after} stands for the seconds
	// to wait, 0 if no wait helps, {rule} for the title of the rule, {limit}, {per} and {burst} for its numbers, in
	// tokens and seconds, and {status} for Status.
	Media, Body string

	parts []bodyPart
}

// bodyPart is a piece of a body: a text, or what stands for a value.
type bodyPart struct {
	text  string
	value bodyValue
}

type bodyValue uint8

const (
	bodyText bodyValue = iota
	bodyRetryAfter
	bodyRule
	bodyLimit
	bodyPer
	bodyBurst
	bodyStatus
)

var bodyValues = []string{
	bodyRetryAfter: "retry_after",
	bodyRule:       "rule",
	bodyLimit:      "limit",
	bodyPer:        "per",
	bodyBurst:      "burst",
	bodyStatus:     "status",
}

const (
	// maxRefusal is the longest Refusal in bytes.
	maxRefusal = 2048

	// maxRefusals is how many different ones a Set holds.
	maxRefusals = 1024
)

const (
	withoutFields = "without fields"

	wantRefusal = `"503", "without fields" and "as MEDIA/TYPE: BODY", or those of them that are meant, in this order, of 2048 bytes at most`
	wantMedia   = "text/plain, text/html, application/json, application/xml, or one of application that ends in " +
		"+json or +xml"
)

// Refusal writes t.
func (t *RefusalTerms) Refusal() Refusal {
	var words []string
	if t.Status != http.StatusTooManyRequests {
		words = append(words, strconv.Itoa(t.Status))
	}
	if t.Hidden {
		words = append(words, withoutFields)
	}
	if t.Media != "" {
		words = append(words, "as "+t.Media+": "+t.Body)
	}
	return Refusal(strings.Join(words, " "))
}

// Terms are what r says; nil if it is empty. The error says what would be right.
func (r Refusal) Terms() (*RefusalTerms, error) {
	if r == "" {
		return nil, nil
	}
	wrong := func(want string) error {
		return Problem{Code: "refusal", Rule: -1, Field: "refusal", Value: text(string(r)), Want: want}
	}
	if len(r) > maxRefusal {
		return nil, wrong(wantRefusal)
	}
	t := &RefusalTerms{Status: http.StatusTooManyRequests}
	rest := strings.TrimSpace(string(r))
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		if after, ok := word(rest, strconv.Itoa(status)); ok {
			t.Status, rest = status, after
			break
		}
	}
	rest, t.Hidden = word(rest, withoutFields)
	if after, ok := word(rest, "as"); ok {
		media, body, ok := strings.Cut(after, ":")
		t.Media, t.Body, rest = media, strings.TrimSpace(body), ""
		switch {
		case !ok || t.Body == "":
			return nil, wrong(wantRefusal)
		case !isBodyMedia(media):
			return nil, wrong(wantMedia)
		}
		if want := t.parse(); want != "" {
			return nil, wrong(want)
		}
	}
	if rest != "" || t.Refusal() == "" {
		return nil, wrong(wantRefusal)
	}
	return t, nil
}

// word takes a word off the beginning of a text.
func word(s, w string) (rest string, ok bool) {
	after, ok := strings.CutPrefix(s, w)
	if !ok || after != "" && after[0] != ' ' {
		return s, false
	}
	return strings.TrimLeft(after, " "), true
}

// isBodyMedia reports whether values can be written into a body of this type without being read as anything else.
func isBodyMedia(media string) bool {
	switch media {
	case "text/plain", "text/html", "application/json", "application/xml":
		return true
	}
	name, ok := strings.CutPrefix(media, "application/")
	stem, is := strings.CutSuffix(name, "+json")
	if !is {
		stem, is = strings.CutSuffix(name, "+xml")
	}
	return ok && is && stem != "" && strings.Trim(stem, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// isJSON reports whether the body is JSON.
func (t *RefusalTerms) isJSON() bool {
	return t.Media == "application/json" || strings.HasSuffix(t.Media, "+json")
}

// ContentType is the field for Body.
func (t *RefusalTerms) ContentType() string {
	if t.isJSON() { // RFC 8259 section 11: there is no charset
		return t.Media
	}
	return t.Media + "; charset=utf-8"
}

// parse reads Body, and reports what it wants if that is not right.
func (t *RefusalTerms) parse() (want string) {
	body := t.Body
	if !utf8.ValidString(body) || strings.ContainsFunc(body,
		func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }) {
		return "a body in UTF-8, without control characters but for line feeds and tabs"
	}
	begin := 0 // of the text before the next value
	for i := 0; i < len(body); i++ {
		if body[i] != '{' {
			continue
		}
		end := i + 1
		for end < len(body) && (body[end] == '_' || 'a' <= body[end] && body[end] <= 'z') {
			end++
		}
		if end == i+1 || end == len(body) || body[end] != '}' {
			continue // an object of JSON, or a rule of CSS
		}
		value := slices.Index(bodyValues[1:], body[i+1:end]) + 1
		if value == 0 {
			return fmt.Sprintf("in braces one of %s; %s is none", strings.Join(bodyValues[1:], ", "),
				text(body[i+1:end]))
		}
		t.parts = append(t.parts, bodyPart{text: body[begin:i]}, bodyPart{value: bodyValue(value)})
		i, begin = end, end+1
	}
	t.parts = append(t.parts, bodyPart{text: body[begin:]})
	if t.isJSON() && !json.Valid(t.AppendBody(nil, &Rule{Endpoint: All, Limit: 1, Burst: 1}, 0)) {
		return "a body that is JSON once the values are in it, such as {\"retry_after\": {retry_after}}"
	}
	return ""
}

// AppendBody appends Body for a rule that denied a request, which may come again after a wait. What is not a number
// is escaped as Media wants it; nothing in it comes from the request.
func (t *RefusalTerms) AppendBody(dst []byte, r *Rule, retryAfter time.Duration) []byte {
	for i := range t.parts {
		switch p := &t.parts[i]; p.value {
		case bodyText:
			dst = append(dst, p.text...)
		case bodyRetryAfter:
			dst = strconv.AppendInt(dst, int64((retryAfter+time.Second-1)/time.Second), 10)
		case bodyRule:
			dst = append(dst, t.escape(r.Title())...)
		case bodyLimit:
			dst = strconv.AppendInt(dst, r.Limit, 10)
		case bodyPer:
			dst = strconv.AppendInt(dst, int64(max(r.Per, time.Second)/time.Second), 10)
		case bodyBurst:
			dst = strconv.AppendInt(dst, r.Burst, 10)
		case bodyStatus:
			dst = strconv.AppendInt(dst, int64(t.Status), 10)
		}
	}
	return dst
}

// escape writes a title, which is printable ASCII, for the inside of a text.
func (t *RefusalTerms) escape(title string) string {
	switch {
	case t.Media == "text/plain":
		return title
	case t.isJSON():
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(title)
	}
	return html.EscapeString(title)
}

// MarshalText writes what stands in a rule.
func (r Refusal) MarshalText() ([]byte, error) { return []byte(r), nil }

// UnmarshalText reads a refusal, and keeps it as Terms writes it.
func (r *Refusal) UnmarshalText(text []byte) error {
	terms, err := Refusal(text).Terms()
	if err != nil {
		return err
	}
	*r = ""
	if terms != nil {
		*r = terms.Refusal()
	}
	return nil
}

// refusal numbers a Refusal, which must be right.
func (n *numbering) refusal(r Refusal) uint32 {
	if r == "" {
		return 0
	}
	number, ok := n.refusalNumbers[r]
	if !ok {
		number = uint32(len(n.set.refusals))
		terms, _ := r.Terms()
		n.set.refusals, n.set.refusalTerms = append(n.set.refusals, r), append(n.set.refusalTerms, terms)
		n.refusalNumbers[r] = number
	}
	return number
}

// RefusalOf is what a rule answers the requests that it denies, nil if it says nothing of it.
func (s *Set) RefusalOf(id RuleID) *RefusalTerms {
	return s.refusalTerms[s.extras[s.rows[id].extra].refusal]
}

// checkRefusal reports what is wrong with what a rule answers.
func (c *ruleCheck) checkRefusal(r *Rule, wrong func(field, value, want string)) {
	if r.Refusal == "" {
		return
	}
	var problem Problem
	terms, err := r.Refusal.Terms()
	switch _, known := c.refusalNumbers[r.Refusal]; {
	case known: // and right
	case err != nil:
		problem, _ = err.(Problem)
		wrong("refusal", problem.Value, problem.Want)
	case terms.Refusal() != r.Refusal:
		wrong("refusal", text(string(r.Refusal)), text(string(terms.Refusal()))+", which is how it is written")
	case len(c.set.refusals) > maxRefusals:
		wrong("refusal", text(string(r.Refusal)),
			fmt.Sprintf("one of the others: there are %d different ones, the most that rules may have", maxRefusals))
	}
}
