package file

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
)

// Decode reads a document. source names it in messages and may be empty. The
// error unwraps to one policy.Problem for each value that is wrong; where the
// text is not JSON at all, reading ends.
//
// Whether the rules make sense is policy.Compile's to say.
func Decode(data []byte, source string) (policy.Document, error) {
	doc, _, err := DecodePart(data, source)
	if err != nil {
		return policy.Document{}, err
	}
	return doc, nil
}

// DecodePart is Decode for those who look at the rest of a document that is
// wrong. Besides the error it returns what could be read; a rule that is wrong
// keeps its place. whole reports whether it was read to its end.
func DecodePart(data []byte, source string) (doc policy.Document, whole bool, err error) {
	d := decoder{source: source, data: data, tokens: json.NewDecoder(bytes.NewReader(data))}
	d.tokens.UseNumber()
	doc.Source = source
	stopped := d.document(&doc)
	if stopped != nil {
		d.problems = append(d.problems, d.syntax(stopped))
	}
	return doc, stopped == nil, errors.Join(d.problems...)
}

// maxProblems is how many wrong values are reported before reading ends.
const maxProblems = 100

var errTooMany = errors.New("too many problems, reading ends here")

// decoder walks the tokens of a document. Its methods read one value each and
// return an error only when reading cannot go on; wrong values go to problems.
type decoder struct {
	source   string
	data     []byte
	tokens   *json.Decoder
	problems []error
}

func (d *decoder) document(doc *policy.Document) error {
	if !utf8.Valid(d.data) {
		return errors.New("it is not UTF-8")
	}
	hasRules := false
	err := d.object("document", -1, func(field string) (err error) {
		switch field {
		case "version":
			doc.Number, err = d.whole("document", -1, field, "the version that the rules were exported from, 1 or more")
			return err
		case "projects":
			return d.projects(doc)
		case "rules":
			hasRules = true
			return d.rules(doc)
		case "ignore":
			return d.ignore(doc)
		}
		return d.unknown("document", -1, field, "version, projects, rules or ignore")
	})
	if err != nil {
		return err
	}
	if _, err := d.tokens.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	if !hasRules && len(d.problems) == 0 {
		return d.wrong("document", -1, "rules", "missing", "a list of rules, if only an empty one")
	}
	return nil
}

func (d *decoder) projects(doc *policy.Document) error {
	doc.Projects = map[string]string{}
	return d.object("projects", -1, func(project string) error {
		where := "projects"
		if project == "" {
			if err := d.problem(where, where, -1, "project", `""`, "a project"); err != nil {
				return err
			}
		}
		tier, err := d.text(where, -1, project, "the name of a tier")
		doc.Projects[project] = tier
		return err
	})
}

func (d *decoder) rules(doc *policy.Document) error {
	t, err := d.tokens.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('[') {
		return d.refuse("document", -1, "rules", t, "a list of rules")
	}
	for d.tokens.More() {
		var r policy.Rule
		if err := d.rule(&r, len(doc.Rules)); err != nil {
			return err
		}
		doc.Rules = append(doc.Rules, r)
	}
	_, err = d.tokens.Token()
	return err
}

// ignore reads which findings the document accepts. Whether there are such
// findings is policy.Compile's to say.
func (d *decoder) ignore(doc *policy.Document) error {
	const where = "ignore"
	t, err := d.tokens.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('[') {
		return d.refuse("document", -1, where, t, "a list of accepted findings")
	}
	for i := 0; d.tokens.More(); i++ {
		var a policy.Ignore
		err := d.object(where, i, func(field string) (err error) {
			switch field {
			case "code":
				a.Code, err = d.text(where, i, field, "the code of a warning or a note")
			case "endpoint":
				a.Endpoint, err = d.text(where, i, field, "the endpoint of a rule, as the rule writes it")
			case "project":
				a.Project, err = d.text(where, i, field, "the project of a rule")
			case "tier":
				a.Tier, err = d.text(where, i, field, "the tier of a rule")
			case "reason":
				a.Reason, err = d.text(where, i, field, "why the finding is accepted")
			default:
				err = d.unknown(where, i, field, "code, endpoint, project, tier or reason")
			}
			return err
		})
		if err != nil {
			return err
		}
		doc.Ignore = append(doc.Ignore, a)
	}
	_, err = d.tokens.Token()
	return err
}

const fields = "endpoint, project, tier, limit, per, burst, subject, algorithm, mode, scope, on_store_loss, " +
	"count_when, penalty, refusal, priority, expires, name or enforce_percent"

func (d *decoder) rule(r *policy.Rule, i int) error {
	const where = "rules"
	hasEndpoint, hasLimit := false, false
	hasPer, timed := false, false // per is a field, and limit has a time
	before := len(d.problems)
	err := d.object(where, i, func(field string) (err error) {
		switch field {
		case "endpoint":
			hasEndpoint = true
			r.Endpoint, err = d.text(where, i, field,
				`a template such as "GET /v1/items/{id}", or "default", "UNKNOWN" or "*"`)
		case "project":
			r.Project, err = d.textOrNull(where, i, field, "the name of a project, or null for all projects")
		case "tier":
			r.Tier, err = d.textOrNull(where, i, field, "the name of a tier, or null for all tiers")
		case "limit":
			hasLimit = true
			var per time.Duration
			if r.Limit, per, err = d.limit(where, i); per != 0 {
				r.Per, timed = per, true
			}
		case "per":
			hasPer = true
			var per time.Duration
			if per, err = d.per(where, i); !timed {
				r.Per = per
			}
		case "burst":
			r.Burst, err = d.whole(where, i, field,
				"a whole number, 1 to 9223372036854775807, or no such field for the default")
		case "subject":
			var whom policy.Whom
			err = d.enum(where, i, field, &whom)
			r.Subject, r.Only = whom.Subject, whom.Only
			r.Algorithm = whom.Algorithm(r.Algorithm)
		case "algorithm":
			err = d.enum(where, i, field, &r.Algorithm)
			r.Algorithm = policy.Whom{Subject: r.Subject}.Algorithm(r.Algorithm)
		case "mode":
			err = d.enum(where, i, field, &r.Mode)
		case "scope":
			err = d.enum(where, i, field, &r.Scope)
		case "on_store_loss":
			err = d.enum(where, i, field, &r.OnStoreLoss)
		case "count_when":
			r.CountWhen, err = d.answers(where, i)
		case "penalty":
			err = d.words(where, i, field, &r.Penalty)
		case "refusal":
			err = d.words(where, i, field, &r.Refusal)
		case "priority":
			err = d.words(where, i, field, &r.Priority)
		case "expires":
			r.Expires, err = d.time(where, i)
		case "enforce_percent":
			r.EnforcePercent, err = d.whole(where, i, field, "a whole number, 1 to 100, or no such field for 100")
		case "name":
			r.Name, err = d.text(where, i, field, "a text, or no such field")
		default:
			err = d.unknown(where, i, field, fields)
		}
		return err
	})
	if err != nil || len(d.problems) > before {
		return err // a rule with another problem may lack a field because of it
	}
	if !hasEndpoint {
		err = d.problem("endpoint", where, i, "endpoint", "missing", `a template, "default", "UNKNOWN" or "*"`)
	}
	if err == nil && timed && hasPer {
		err = d.problem("per", where, i, "per", "given", "the time in one place: limit has one, as 20/s does")
	}
	if err == nil && timed {
		if want := r.WantUntimed(); want != "" {
			err = d.problem("limit", where, i, "limit", fmt.Sprintf("%d per %ds", r.Limit, r.Per/time.Second), want)
		}
	}
	if err == nil && !hasLimit && r.Mode.Limits() {
		err = d.problem("limit", where, i, "limit", "missing",
			`a whole number, 1 or more, or one with a time, such as "20/s"`)
	}
	return err
}

// object reads an object, one of the list where if rule is not negative, and calls each for every
// field, which must read the field's value. A field that comes twice is a problem.
func (d *decoder) object(where string, rule int, each func(field string) error) error {
	t, err := d.tokens.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		if where == "document" {
			return d.refuse(where, rule, "all of it", t, `an object with "rules"`)
		}
		return d.refuse(where, rule, "it", t, "an object")
	}
	var few [18]string // as many as a rule has, without a map
	seen, more := few[:0], map[string]bool(nil)
	for d.tokens.More() {
		t, err := d.tokens.Token()
		if err != nil {
			return err
		}
		field, ok := t.(string)
		if !ok {
			return errors.New("a field has no name")
		}
		if slices.Contains(seen, field) || more[field] {
			if err := d.wrong(where, rule, show(field), "given twice", "it once"); err != nil {
				return err
			}
		}
		if len(seen) < cap(seen) {
			seen = append(seen, field)
		} else {
			if more == nil {
				more = map[string]bool{}
			}
			more[field] = true
		}
		if err := each(field); err != nil {
			return err
		}
	}
	_, err = d.tokens.Token()
	return err
}

// textOrNull reads a string that is not empty, or null for none.
func (d *decoder) textOrNull(where string, rule int, field, want string) (string, error) {
	t, err := d.tokens.Token()
	if err != nil || t == nil {
		return "", err
	}
	return d.textOf(t, where, rule, field, want)
}

// text reads a string that is not empty. An empty one is refused, because it
// is unclear whether it means none or all.
func (d *decoder) text(where string, rule int, field, want string) (string, error) {
	t, err := d.tokens.Token()
	if err != nil {
		return "", err
	}
	return d.textOf(t, where, rule, field, want)
}

func (d *decoder) textOf(t json.Token, where string, rule int, field, want string) (string, error) {
	s, ok := t.(string)
	if !ok || s == "" {
		return "", d.refuse(where, rule, show(field), t, want)
	}
	return s, nil
}

// whole reads a whole number of 1 or more.
func (d *decoder) whole(where string, rule int, field, want string) (int64, error) {
	t, err := d.tokens.Token()
	if err != nil {
		return 0, err
	}
	if n, ok := t.(json.Number); ok {
		if v, err := strconv.ParseInt(string(n), 10, 64); err == nil && v >= 1 {
			return v, nil
		}
	}
	return 0, d.refuse(where, rule, field, t, want)
}

const wantLimit = `a whole number, 1 to 9223372036854775807, or one with a time, such as "20/s" or "100/15min"`

// limit reads a limit: 20, or "20/s" with its time.
func (d *decoder) limit(where string, rule int) (limit int64, per time.Duration, err error) {
	t, err := d.tokens.Token()
	if err != nil {
		return 0, 0, err
	}
	switch v := t.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && n >= 1 {
			return n, 0, nil
		}
	case string:
		if limit, per, err := policy.ParseLimit(v); err == nil {
			return limit, per, nil
		}
	}
	return 0, 0, d.refuse(where, rule, "limit", t, wantLimit)
}

// per reads seconds: 60, "60s", "1m" or "1d".
func (d *decoder) per(where string, rule int) (time.Duration, error) {
	t, err := d.tokens.Token()
	if err != nil {
		return 0, err
	}
	var text string
	switch v := t.(type) {
	case string:
		text = v
	case json.Number:
		text = string(v)
	}
	var s Seconds
	if s.UnmarshalText([]byte(text)) != nil {
		return 0, d.refuse(where, rule, "per", t, wantSeconds)
	}
	return time.Duration(s), nil
}

// time reads a time as RFC 3339 writes it.
func (d *decoder) time(where string, rule int) (time.Time, error) {
	t, err := d.tokens.Token()
	if err != nil || t == nil {
		return time.Time{}, err
	}
	if s, ok := t.(string); ok {
		if v, err := time.Parse(time.RFC3339, s); err == nil && !v.IsZero() {
			return v, nil
		}
	}
	return time.Time{}, d.refuse(where, rule, "expires", t, `a time such as "2026-01-31T00:00:00Z", or null for never`)
}

// answers reads statuses: "401,403", 401, or a list of them.
func (d *decoder) answers(where string, rule int) (a policy.Answers, err error) {
	t, err := d.tokens.Token()
	if err != nil {
		return "", err
	}
	begin, text := t, ""
	switch v := t.(type) {
	case string:
		text = v
	case json.Number:
		text = string(v)
	case json.Delim:
		if v == '[' {
			if text, err = d.statuses(); err != nil {
				return "", err
			}
			begin = "[" + text + "]"
		}
	}
	if text == "" {
		text = "?" // which is not for all answers, but for none
	}
	var problem policy.Problem
	if errors.As(a.UnmarshalText([]byte(text)), &problem) {
		return "", d.refuse(where, rule, "count_when", begin, problem.Want)
	}
	return a, nil
}

// words reads one of the texts that v knows, such as "10 in 1m for 15m"; not an empty one.
func (d *decoder) words(where string, rule int, field string, v encoding.TextUnmarshaler) error {
	t, err := d.tokens.Token()
	if err != nil {
		return err
	}
	s, _ := t.(string)
	if n, ok := t.(json.Number); ok { // 503
		s = string(n)
	}
	if s == "" {
		s = "?"
	}
	var problem policy.Problem
	if errors.As(v.UnmarshalText([]byte(s)), &problem) {
		return d.refuse(where, rule, field, t, problem.Want)
	}
	return nil
}

// statuses reads the rest of a list, with what is no status as nothing that is one.
func (d *decoder) statuses() (string, error) {
	var texts []string
	for d.tokens.More() {
		t, err := d.tokens.Token()
		if err != nil {
			return "", err
		}
		switch v := t.(type) {
		case string:
			texts = append(texts, v)
		case json.Number:
			texts = append(texts, string(v))
		default:
			if err := d.skip(t); err != nil {
				return "", err
			}
			texts = append(texts, "?")
		}
	}
	_, err := d.tokens.Token()
	return strings.Join(texts, ","), err
}

// enum reads one of the texts that v knows.
func (d *decoder) enum(where string, rule int, field string, v encoding.TextUnmarshaler) error {
	t, err := d.tokens.Token()
	if err != nil {
		return err
	}
	s, _ := t.(string)
	var problem policy.Problem
	err = v.UnmarshalText([]byte(s))
	if errors.As(err, &problem) {
		return d.refuse(where, rule, field, t, problem.Want)
	}
	return err
}
