package database

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// readDocument reads all policies and projects.
func (s *Store) readDocument(ctx context.Context, tx *tx) (policy.Document, error) {
	doc, _, err := s.readInto(ctx, tx, nil)
	return doc, err
}

// readInto reads all policies and projects. Everything that is wrong with their
// values is reported at once. The draft, which may be nil, is told of rules as they
// come; of so many the Document has those that it left.
func (s *Store) readInto(ctx context.Context, tx *tx, draft *policy.Draft) (
	doc policy.Document, rules int, err error) {
	tiers, errProjects := s.queryProjects(ctx, tx)
	if errProjects != nil && !isProblem(errProjects) {
		return policy.Document{}, 0, errProjects
	}
	doc = policy.Document{Projects: tiers, Source: s.Path()}
	doc.Rules, rules, err = s.allRules(ctx, tx, doc, draft)
	if err := errors.Join(err, errProjects); err != nil {
		return policy.Document{}, 0, err
	}
	doc.Number, err = s.versionOf(ctx, tx)
	return doc, rules, err
}

// Almost all rules have the default in every column but three. The width of
// what is read decides how long a load takes, so these are read three columns
// wide. The others are found by a partial index, policies_not_plain, whose
// condition is isPlain's opposite to the letter.
const (
	plainColumns = "rowid, endpoint, project_id, rps_limit"
	ruleColumns  = plainColumns + ", per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, " +
		"expires_at, name, enforce_percent, count_when, penalty, refusal, priority"
	isPlain = `per_seconds = 1 AND burst IS NULL AND subject = 'principal' AND algorithm = 'token_bucket' AND mode = 'enforce'
        AND tier IS NULL AND scope = 'local' AND on_store_loss = 'closed' AND expires_at IS NULL AND name IS NULL
        AND enforce_percent IS NULL AND count_when IS NULL AND penalty IS NULL AND refusal IS NULL AND priority IS NULL`
)

// queryRules reads the policies that a WHERE clause lets through. Only this
// package writes clauses.
func (s *Store) queryRules(ctx context.Context, tx *tx, where string, args ...any) (rules []policy.Rule, err error) {
	r := newRow(s.db.name(), "policies", tx)
	err = s.scanRules(ctx, tx, r, ruleColumns, where+" ORDER BY rowid", args,
		func(int64) { rules = append(rules, r.rule()) })
	return rules, errors.Join(err, r.err())
}

// scanRules puts policies into r, one after the other. Columns that are not read
// are NULL.
func (s *Store) scanRules(ctx context.Context, tx *tx, r *row, columns, clauses string, args []any,
	each func(id int64)) error {
	r.values = [maxColumns]any{}
	width := strings.Count(columns, ",") + 1
	return tx.each(ctx, "SELECT "+columns+" FROM policies "+clauses, args, r.cells[:width], func() {
		id, _ := r.values[0].(int64) // a rowid is one
		r.begin(r.values[0])
		r.label = r.values[1]
		each(id)
	})
}

// rule reads the values of ruleColumns.
func (r *row) rule() policy.Rule {
	rule := policy.Rule{
		Endpoint: r.text(1, "endpoint"),
		Project:  r.text(2, "project_id"),
		Limit:    r.whole(3, "rps_limit", math.MaxInt64),
		Per:      time.Second,
		Burst:    r.wholeOrNull(5, "burst", math.MaxInt64),
		Tier:     r.text(9, "tier"),
		Name:     r.text(13, "name"),

		EnforcePercent: r.wholeOrNull(14, "enforce_percent", 100),
	}
	if rule.Endpoint == "" && r.isText(1) {
		r.wrong(1, "endpoint", `a template such as "GET /v1/items/{id}", or "default", "UNKNOWN" or "*"`)
	}
	if r.values[4] != nil {
		rule.Per = time.Duration(r.whole(4, "per_seconds", math.MaxInt64/int64(time.Second))) * time.Second
	}
	r.parseEnums(&rule)
	if !rule.Mode.Limits() {
		rule.Limit = 0 // the column has to hold something
	}
	if at := r.wholeOrNull(12, "expires_at", math.MaxInt64); at != 0 {
		rule.Expires = time.Unix(at, 0).UTC()
	}
	return rule
}

// enumColumns are those of ruleColumns whose texts are parsed, and parsedEnums is
// what they were in a row: most have the same as the one before.
var enumColumns = [...]int{6, 7, 8, 10, 11, 15, 16, 17, 18}

type parsedEnums struct {
	texts [len(enumColumns)]string
	nulls [len(enumColumns)]bool
	rule  policy.Rule // has what they mean
	known bool
}

// parseEnums fills in what those columns mean.
func (r *row) parseEnums(rule *policy.Rule) {
	if r.repeatsEnums() {
		same := &r.parsed.rule
		rule.Subject, rule.Only, rule.Algorithm, rule.Mode = same.Subject, same.Only, same.Algorithm, same.Mode
		rule.Scope, rule.OnStoreLoss, rule.CountWhen = same.Scope, same.OnStoreLoss, same.CountWhen
		rule.Penalty, rule.Refusal, rule.Priority = same.Penalty, same.Refusal, same.Priority
		return
	}
	before := len(r.problems) + r.more
	var whom policy.Whom
	r.enum(6, "subject", &whom)
	rule.Subject, rule.Only = whom.Subject, whom.Only
	if rule.Only != "" && rule.Only != r.text(6, "subject") { // else its key would not find it
		r.wrong(6, "subject", shown(rule.Only)+", which is how it is written")
	}
	r.enum(7, "algorithm", &rule.Algorithm)
	rule.Algorithm = whom.Algorithm(rule.Algorithm)
	r.enum(8, "mode", &rule.Mode)
	r.enum(10, "scope", &rule.Scope)
	r.enum(11, "on_store_loss", &rule.OnStoreLoss)
	r.enum(15, "count_when", &rule.CountWhen)
	r.enum(16, "penalty", &rule.Penalty)
	r.enum(17, "refusal", &rule.Refusal)
	r.enum(18, "priority", &rule.Priority)
	if r.parsed.known = len(r.problems)+r.more == before; !r.parsed.known {
		return // there may be other things than texts, and they are to be told again
	}
	r.parsed.rule = *rule
	for i, column := range enumColumns {
		r.parsed.texts[i], r.parsed.nulls[i] = r.text(column, ""), r.values[column] == nil
	}
}

// repeatsEnums reports whether those columns are as they were in the row before.
func (r *row) repeatsEnums() bool {
	if !r.parsed.known {
		return false
	}
	for i, column := range enumColumns {
		same := false
		switch v := r.values[column].(type) {
		case nil:
			same = r.parsed.nulls[i]
		case string:
			same = !r.parsed.nulls[i] && v == r.parsed.texts[i]
		case []byte:
			same = !r.parsed.nulls[i] && r.bytes && string(v) == r.parsed.texts[i]
		}
		if !same {
			return false
		}
	}
	return true
}

func (s *Store) queryProjects(ctx context.Context, tx *tx) (map[string]string, error) {
	rows, err := tx.QueryContext(ctx, "SELECT rowid, project_id, tier FROM projects")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	tiers := map[string]string{}
	r := newRow(s.db.name(), "projects", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:3]...); err != nil {
			return nil, err
		}
		r.begin(r.values[0])
		tiers[r.text(1, "project_id")] = r.text(2, "tier")
	}
	return tiers, errors.Join(rows.Err(), r.err())
}

// maxProblems is how many bad values of one table are shown.
const maxProblems = 20

// maxColumns is how many columns are read of any table.
const maxColumns = 24

// row reads the values of one row after the other. SQLite lets any value stand
// in any column, and the checks of the schema can be switched off, so each
// value is looked at for what it is.
type row struct {
	name  string // of the table
	table string // and the file
	id    any
	label any  // the endpoint, to find the row by
	bytes bool // what the driver gives as bytes is a text

	values [maxColumns]any
	cells  [maxColumns]any // pointers to values
	texts  recent          // few texts stand in many rows
	parsed parsedEnums     // of the row before

	problems []error
	remedies []string // one for each of the problems
	more     int
}

func newRow(database, table string, tx *tx) *row {
	r := &row{name: table, table: database + ": table " + table, bytes: tx.dialect.bytes, texts: newRecent(0)}
	for i := range r.cells {
		r.cells[i] = &r.values[i]
	}
	return r
}

func (r *row) begin(id any) { r.id = id }

func (r *row) wrong(i int, field, want string) {
	if len(r.problems) == maxProblems {
		r.more++
		return
	}
	where := fmt.Sprintf("%s, row %v", r.table, r.id)
	if r.label != nil {
		where += fmt.Sprintf(" (%v)", r.show(r.label))
	}
	r.problems = append(r.problems, policy.Problem{
		Code: field, Rule: -1, Where: where, Field: field, Value: r.show(r.values[i]), Want: want,
	})
	r.remedies = append(r.remedies, r.remedy(field))
}

// show is shown for a value of the row.
func (r *row) show(v any) string {
	if b, ok := v.([]byte); ok && r.bytes && utf8.Valid(b) {
		return shown(string(b))
	}
	return shown(v)
}

func (r *row) err() error {
	for i, remedy := range r.remedies {
		if p, ok := r.problems[i].(policy.Problem); ok {
			p.Want += remedy
			r.problems[i] = p
		}
	}
	r.remedies = nil
	if r.more > 0 {
		r.problems = append(r.problems, policy.Problem{Code: "more", Rule: -1, Where: r.table,
			Field: "values", Value: "wrong " + strconv.Itoa(r.more) + " times more",
			Want: "the problems above mended first"})
	}
	return errors.Join(r.problems...)
}

// fields says what is wrong with the values of the row, without saying which row.
func (r *row) fields() string {
	var texts []string
	for _, problem := range r.problems {
		if p, ok := problem.(policy.Problem); ok {
			texts = append(texts, fmt.Sprintf("%s is %s, want %s", p.Field, p.Value, p.Want))
		}
	}
	return strings.Join(texts, "; ")
}

// text reports a text, empty for NULL.
func (r *row) text(i int, field string) string {
	switch v := r.values[i].(type) {
	case nil:
		return ""
	case string:
		return r.texts.share(v)
	case []byte:
		if r.bytes {
			return r.texts.text(v)
		}
	}
	r.wrong(i, field, "a text")
	return ""
}

func (r *row) isText(i int) bool {
	_, is := r.values[i].(string)
	if _, bytes := r.values[i].([]byte); bytes {
		is = r.bytes
	}
	return is
}

// whole reports a number of at least 1; 0, which stands nowhere, for any other.
func (r *row) whole(i int, field string, most int64) int64 {
	n, ok := r.values[i].(int64)
	if !ok || n < 1 || n > most {
		want := "a whole number of 1 or more"
		if ok && n > most {
			want = "at most " + number(most)
		}
		r.wrong(i, field, want)
		return 0
	}
	return n
}

// wholeOrNull is whole, or 0 for NULL.
func (r *row) wholeOrNull(i int, field string, most int64) int64 {
	if r.values[i] == nil {
		return 0
	}
	return r.whole(i, field, most)
}

// enum reads one of the words that a field may have; NULL leaves the default.
func (r *row) enum(i int, field string, into encoding.TextUnmarshaler) {
	if r.values[i] == nil {
		return
	}
	before := len(r.problems) + r.more
	s := r.text(i, field)
	if len(r.problems)+r.more != before {
		return
	}
	var problem policy.Problem
	if err := into.UnmarshalText([]byte(s)); errors.As(err, &problem) {
		r.wrong(i, field, problem.Want)
	}
}

// shown writes a value into a message.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return record.Quote(v)
	case []byte:
		return fmt.Sprintf("a blob of %d bytes", len(v))
	}
	return fmt.Sprint(v)
}
