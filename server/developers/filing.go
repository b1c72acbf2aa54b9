package developers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Bounds of a filing, in bytes.
const (
	MaxReason = 1000
	maxName   = 100
	maxFiling = 8 << 10
)

// MaxLasting is the longest that a caller can ask for. What should last longer is
// a matter for people to talk about.
const MaxLasting = 366 * 24 * time.Hour

// Filing is a request for a higher limit as a caller sends it.
type Filing struct {
	Endpoint string    `json:"endpoint"`          // a template, default or *
	Subject  string    `json:"subject,omitempty"` // default principal
	Limit    int64     `json:"limit"`
	Per      string    `json:"per,omitempty"` // a duration such as 1m; default 1s
	Burst    int64     `json:"burst,omitempty"`
	For      string    `json:"for,omitempty"`  // a duration from the approval on
	Until    time.Time `json:"until,omitzero"` // or a time
	Reason   string    `json:"reason"`         // at most MaxReason bytes, one line
	Name     string    `json:"name,omitempty"` // who asks, for the people who decide
}

// ParseFiling reads a Filing: one JSON object, each member once and none that it
// does not know. The error names every field at fault.
func ParseFiling(body []byte, now time.Time) (record.LimitRequest, error) {
	if len(body) > maxFiling {
		return record.LimitRequest{}, fmt.Errorf("body has %d bytes, want at most %d", len(body), maxFiling)
	}
	if err := MembersOnce(body); err != nil {
		return record.LimitRequest{}, err
	}
	var f Filing
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return record.LimitRequest{}, fmt.Errorf("body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return f.request(now)
}

// MembersOnce refuses an object that has a member twice, of which encoding/json
// would take the last, and whatever is no object or comes after it. Names that
// differ in case are one to encoding/json.
func MembersOnce(body []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return errors.New("body is no JSON object, want one")
	}
	seen := map[string]bool{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return errors.New("body is no JSON object, want one")
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return errors.New("body is no JSON object, want one")
		}
		text := strings.ToLower(name.(string)) // what stands before a colon is one
		if seen[text] {
			return fmt.Errorf("body has the member %.40q twice", text)
		}
		if text != name {
			return fmt.Errorf("body has the member %.40q, want members in lower case", name)
		}
		seen[text] = true
	}
	if _, err := decoder.Token(); err != nil {
		return errors.New("body is no JSON object, want one")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("body has more than one JSON object, want one")
	}
	return nil
}

// Check names every field at fault.
func (f *Filing) Check(now time.Time) error {
	_, err := f.request(now)
	return err
}

// request checks a filing and translates it.
func (f *Filing) request(now time.Time) (record.LimitRequest, error) {
	r := record.LimitRequest{
		Claimed: f.Name,
		Reason:  f.Reason,
		Asked:   record.Asked{Endpoint: f.Endpoint, Limit: f.Limit, Burst: f.Burst, Per: time.Second, Until: f.Until},
	}
	var errs []error
	wrong := func(field, value, want string) {
		errs = append(errs, fmt.Errorf("%s is %.100q, want %s", field, value, want))
	}
	switch f.Endpoint {
	case policy.Default, policy.All:
	default:
		template, err := endpoint.ParseTemplate(f.Endpoint)
		if err != nil || f.Endpoint == policy.UnknownEndpoint {
			wrong("endpoint", f.Endpoint, "a template such as GET /v1/items/{id}, default or *")
			break
		}
		r.Endpoint = template.String()
	}
	if f.Subject != "" {
		if err := r.Subject.UnmarshalText([]byte(f.Subject)); err != nil {
			errs = append(errs, err)
		}
	}
	span := func(field, text string, least, most time.Duration, into *time.Duration) {
		d, err := policy.ParseDuration(text)
		if err != nil || d < least || d > most || d%time.Second != 0 {
			wrong(field, text, fmt.Sprintf("whole seconds from %v to %v, such as 1h", least, most))
			return
		}
		*into = d
	}
	if f.Per != "" {
		span("per", f.Per, time.Second, 30*24*time.Hour, &r.Per)
	}
	switch {
	case (f.For == "") == f.Until.IsZero():
		errs = append(errs, errors.New("want for or until, one of the two: how long the higher limit is needed"))
	case f.For != "":
		span("for", f.For, time.Minute, MaxLasting, &r.For)
	case f.Until.Before(now.Add(time.Minute)) || f.Until.After(now.Add(MaxLasting)):
		wrong("until", f.Until.Format(time.RFC3339), fmt.Sprintf("a time from a minute to %v from now", MaxLasting))
	}
	text := func(field, value string, least, most int) {
		if len(value) < least || len(value) > most || !isLine(value) {
			errs = append(errs, fmt.Errorf("%s has %d bytes, want %d to %d of printable text on one line", field,
				len(value), least, most))
		}
	}
	text("reason", f.Reason, 1, MaxReason)
	text("name", f.Name, 0, maxName)
	if err := errors.Join(errs...); err != nil {
		return record.LimitRequest{}, err
	}
	rule := policy.Rule{
		Endpoint: r.Endpoint,
		Project:  "p",
		Subject:  r.Subject,
		Limit:    r.Limit,
		Per:      r.Per,
		Burst:    r.Burst,
	}
	if err := policy.Lint(policy.Document{Rules: []policy.Rule{rule}}, policy.CompileOptions{}).Err(); err != nil {
		return record.LimitRequest{}, err
	}
	return r, nil
}

// isLine reports whether a text can stand on a line of a terminal or a log.
func isLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}
