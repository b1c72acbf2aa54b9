package sql

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
)

// maxProblems is how many wrong values are reported before reading ends.
const maxProblems = 100

// mostQuoted is how many bytes of a value a message quotes.
const mostQuoted = 100

var errTooMany = errors.New("too many problems, reading ends here")

// loader reads tables and collects what is wrong in them.
type loader struct {
	rows     int               // the most that are read of one table
	texts    map[string]string // each different text once: a million rows have few
	problems []error
}

func (l *loader) rules(ctx context.Context, o Options, doc *policy.Document) error {
	table := o.Table
	columns, err := present(ctx, o.DB, table, o.wanted(), required)
	if err != nil {
		return err
	}
	at := positions(columns)
	return l.each(ctx, o.DB, table, o.Quote, columns, func(values []any) error {
		row := row{loader: l, table: table, number: len(doc.Rules), at: at, values: values}
		doc.Rules = append(doc.Rules, row.rule())
		return l.enough()
	})
}

func (l *loader) projects(ctx context.Context, o Options, doc *policy.Document) error {
	table := o.Projects
	names := []column{{name: "project_id", wanted: "project_id"}, {name: "tier", wanted: "tier"}}
	columns, err := present(ctx, o.DB, table, names, len(names))
	if err != nil {
		return err
	}
	at := positions(columns)
	doc.Projects = map[string]string{}
	return l.each(ctx, o.DB, table, o.Quote, columns, func(values []any) error {
		row := row{loader: l, table: table, number: -1, at: at, values: values}
		project := row.project("project_id")
		if project == "" {
			if values[at["project_id"]] == nil {
				row.wrong("project_id", "a project")
			}
			return l.enough()
		}
		tier := row.text("tier") // NULL: none
		if _, twice := doc.Projects[project]; twice {
			row.wrong("project_id", "one row for each project")
		}
		if tier != "" {
			doc.Projects[project] = tier
		}
		return l.enough()
	})
}

func (l *loader) enough() error {
	if len(l.problems) < maxProblems {
		return nil
	}
	return errTooMany
}

// positions maps the name of a column to its place in a row.
func positions(columns []column) map[string]int {
	at := map[string]int{}
	for i, c := range columns {
		at[c.name] = i
	}
	return at
}

// row is one row of a table as the driver gave it.
type row struct {
	*loader
	table  string
	number int // of the rule, or -1
	at     map[string]int
	values []any
}

func (r row) rule() policy.Rule {
	rule := policy.Rule{
		Endpoint: r.text("endpoint"),
		Project:  r.project("project_id"),
		Tier:     r.text("tier"),
		Per:      r.seconds("per_seconds"),
		Burst:    r.whole("burst"),
		Expires:  r.time("expires_at"),
		Name:     r.optional("name"),

		EnforcePercent: r.whole("enforce_percent"),
	}
	var whom policy.Whom
	r.enum("subject", &whom)
	rule.Subject, rule.Only = whom.Subject, whom.Only
	r.enum("algorithm", &rule.Algorithm)
	rule.Algorithm = whom.Algorithm(rule.Algorithm)
	r.enum("mode", &rule.Mode)
	r.enum("scope", &rule.Scope)
	r.enum("on_store_loss", &rule.OnStoreLoss)
	r.words("count_when", &rule.CountWhen)
	r.words("penalty", &rule.Penalty)
	r.words("refusal", &rule.Refusal)
	r.words("priority", &rule.Priority)
	if r.value("endpoint") == nil {
		r.wrong("endpoint", `a template, "default", "UNKNOWN" or "*"`)
	}
	switch {
	case !rule.Mode.Limits(): // whatever rps_limit is, which may be a column that has to hold something
	case r.value("rps_limit") == nil:
		r.wrong("rps_limit", wantWhole)
	default:
		rule.Limit = r.whole("rps_limit")
	}
	return rule
}

const wantWhole = "a whole number, 1 to 9223372036854775807"

// value is what a column holds; nil when the table does not have it.
func (r row) value(column string) any {
	if i, ok := r.at[column]; ok {
		return r.values[i]
	}
	return nil
}

// text reads a text that is not empty; NULL reads as "".
func (r row) text(column string) string {
	v := r.value(column)
	if v == nil {
		return ""
	}
	s, ok := r.asText(v)
	if !ok || s == "" {
		r.wrong(column, "text that is not empty, or NULL")
	}
	return s
}

// optional is text for a column whose empty text is as good as NULL.
func (r row) optional(column string) string {
	v := r.value(column)
	if v == nil {
		return ""
	}
	s, ok := r.asText(v)
	if !ok {
		r.wrong(column, "text or NULL")
	}
	return s
}

func (r row) asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		if known, ok := r.texts[v]; ok {
			return known, true
		}
		r.texts[v] = v
		return v, true
	case []byte:
		if known, ok := r.texts[string(v)]; ok {
			return known, true
		}
		s := string(v)
		r.texts[s] = s
		return s, true
	}
	return "", false
}

// project reads a project, which may be text or a whole number; NULL reads as
// "".
func (r row) project(column string) string {
	if n, ok := r.value(column).(int64); ok {
		s, _ := r.asText(strconv.AppendInt(nil, n, 10))
		return s
	}
	v := r.value(column)
	if v == nil {
		return ""
	}
	s, ok := r.asText(v)
	if !ok || s == "" {
		r.wrong(column, "text that is not empty, a whole number, or NULL for all projects")
	}
	return s
}

// whole reads a whole number of 1 or more; NULL reads as 0.
func (r row) whole(column string) int64 {
	v := r.value(column)
	if v == nil {
		return 0
	}
	n, ok := asWhole(v)
	if !ok || n < 1 {
		r.wrong(column, wantWhole)
	}
	return n
}

// asWhole makes a whole number of what drivers give for one. MySQL's gives
// bytes, PostgreSQL's gives text for NUMERIC, and a REAL column gives floats:
// digits and whole floats that are exact are accepted.
func asWhole(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		const exact = 1 << 53
		return int64(v), v == math.Trunc(v) && math.Abs(v) <= exact
	case []byte:
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

func (r row) seconds(column string) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	v := r.value(column)
	if v == nil {
		return 0
	}
	n, ok := asWhole(v)
	if !ok || n < 1 || n > most {
		r.wrong(column, fmt.Sprintf("whole seconds, 1 to %d", most))
		return 0
	}
	return time.Duration(n) * time.Second
}

// time reads Unix seconds, RFC 3339 text or a time; NULL reads as never.
func (r row) time(column string) time.Time {
	const year9999 = 253402300799
	switch v := r.value(column).(type) {
	case nil:
		return time.Time{}
	case time.Time:
		return v
	default:
		if n, ok := asWhole(v); ok {
			if n > 0 && n <= year9999 {
				return time.Unix(n, 0).UTC()
			}
			break
		}
		if s, ok := r.asText(v); ok {
			if t, err := time.Parse(time.RFC3339, s); err == nil {
				return t
			}
		}
	}
	r.wrong(column, `Unix seconds, text such as "2026-01-31T00:00:00Z", or NULL for never`)
	return time.Time{}
}

// enum reads one of the texts that into knows; NULL leaves the default.
func (r row) enum(column string, into encoding.TextUnmarshaler) {
	v := r.value(column)
	if v == nil {
		return
	}
	s, _ := r.asText(v)
	var problem policy.Problem
	if errors.As(into.UnmarshalText([]byte(s)), &problem) {
		r.wrong(column, problem.Want+", or NULL")
	}
}

// words is enum for a text that others than a few may be, and not empty; a number is read as its digits.
func (r row) words(column string, into encoding.TextUnmarshaler) {
	v := r.value(column)
	if v == nil {
		return
	}
	s, ok := r.asText(v)
	if n, whole := v.(int64); whole {
		s, ok = strconv.FormatInt(n, 10), true
	}
	if !ok || s == "" {
		s = "?"
	}
	var problem policy.Problem
	if errors.As(into.UnmarshalText([]byte(s)), &problem) {
		r.wrong(column, problem.Want+", or NULL")
	}
}

// wrong notes that a column does not hold what it should.
func (r row) wrong(column, want string) {
	r.problems = append(r.problems, policy.Problem{
		Code: "sql", Rule: r.number, Where: r.where(), Field: column, Value: show(r.value(column)), Want: want,
	})
}

// where names a row by what people find it by.
func (r row) where() string {
	s := r.table + ": row ("
	if v := r.value("endpoint"); r.number >= 0 {
		s += "endpoint " + show(v) + ", "
	}
	return s + "project_id " + show(r.value("project_id")) + ")"
}

// show writes a value as SQL would, as far as people care.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return strconv.Quote(clip.To(v, mostQuoted))
	case []byte:
		return strconv.Quote(clip.To(string(v), mostQuoted))
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}
