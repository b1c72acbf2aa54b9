package database

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Set writes a rule, in place of the one with its key if there is one. A
// rule that could not be loaded again is refused, and so is one that says of
// the same endpoint, in other parameter names, what another rule says.
func (s *Store) Set(ctx context.Context, a record.Author, r policy.Rule) error {
	_, err := s.Apply(ctx, a, record.Edit{Set: []policy.Rule{r}, Action: record.ActionSet})
	return err
}

// lint reports what would keep a document from being loaded.
func lint(doc policy.Document) error {
	return policy.Lint(doc, policy.CompileOptions{}).Err()
}

// checkTwin looks for a rule for the same tenant and subject whose template
// differs in its parameter names alone. The table cannot see that, and the
// rules of both could not be loaded.
func (s *Store) checkTwin(ctx context.Context, tx *tx, r policy.Rule) error {
	if !strings.Contains(r.Endpoint, "{") {
		return nil
	}
	where, args := "WHERE subject = ? AND endpoint <> ? AND endpoint LIKE '%{%'", []any{r.SubjectText(), r.Endpoint}
	for _, c := range []struct{ column, value string }{{"project_id", r.Project}, {"tier", r.Tier}} {
		if c.value == "" {
			where += " AND " + c.column + " IS NULL"
		} else {
			where, args = where+" AND "+c.column+" = ?", append(args, c.value)
		}
	}
	others, err := s.queryRules(ctx, tx, where, args...)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other.Project == r.Project && other.Tier == r.Tier && shape(other.Endpoint) == shape(r.Endpoint) {
			return policy.Problem{Code: "duplicate", Rule: -1, Where: record.KeyOf(r).String(), Field: "endpoint",
				Value: shown(r.Endpoint), Want: "the parameter names of the rule that is there already: " +
					shown(other.Endpoint)}
		}
	}
	return nil
}

var parameter = regexp.MustCompile(`\{[^{}]*?(\.\.\.)?\}`)

// shape is a template without the names of its parameters.
func shape(template string) string { return parameter.ReplaceAllString(template, "{$1}") }

// Get reports the rule with a key, or ErrNotFound.
func (s *Store) Get(ctx context.Context, k record.RuleKey) (rule policy.Rule, err error) {
	if s.table != nil {
		return s.table.get(ctx, k)
	}
	err = s.read(ctx, func(tx *tx) error {
		found, err := s.queryRules(ctx, tx, "WHERE "+tx.dialect.sameRule, placeOfKey(k).args()...)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return fmt.Errorf("%v: %w", k, record.ErrNotFound)
		}
		rule = found[0]
		return nil
	})
	return rule, err
}

// List reports all rules in the order in which they were made.
func (s *Store) List(ctx context.Context) (rules []policy.Rule, err error) {
	if s.table != nil {
		doc, _, err := s.table.load(ctx)
		return doc.Rules, err
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		rules, _, err = s.allRules(ctx, tx, policy.Document{}, nil)
		return err
	})
	return rules, err
}

// Delete removes the rule with a key, or reports ErrNotFound.
func (s *Store) Delete(ctx context.Context, a record.Author, k record.RuleKey) error {
	_, err := s.Apply(ctx, a, record.Edit{Delete: []record.RuleKey{k}, Action: record.ActionDelete})
	return err
}

// affected makes ErrNotFound of a statement that changed nothing.
func affected(done sql.Result, what fmt.Stringer) error {
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%v: %w", what, record.ErrNotFound)
	}
	return err
}

// args are those of dialect.sameRule.
func (p place) args() []any {
	lasts := ""
	if p.temporary {
		lasts = "until"
	}
	return []any{p.endpoint, p.project, p.tier, policy.Whom{Subject: p.subject, Only: p.only}.String(), lasts}
}

// SetTier puts a project into a tier; an empty tier takes it out of any.
func (s *Store) SetTier(ctx context.Context, a record.Author, project, tier string) error {
	_, err := s.Apply(ctx, a, record.Edit{Tiers: map[string]string{project: tier}, Action: record.ActionTier})
	return err
}

// Import writes a document's rules and projects in one transaction: all of
// them, or none and an error with everything that is wrong. With replace, what
// the document does not have is removed; without, it stays.
func (s *Store) Import(ctx context.Context, a record.Author, doc policy.Document, replace bool) error {
	if replace && len(doc.Rules) == 0 {
		return emptied(doc.Source)
	}
	if err := lint(doc); err != nil { // by the name of the document
		return err
	}
	_, err := s.Apply(ctx, a, record.Edit{Set: doc.Rules, Tiers: doc.Projects, Replace: replace,
		Action: record.ActionImport})
	return err
}

// Export reports all rules and projects as they are at one moment.
func (s *Store) Export(ctx context.Context) (doc policy.Document, err error) {
	if s.table != nil {
		doc, _, err = s.table.load(ctx)
		return doc, err
	}
	err = s.read(ctx, func(tx *tx) (err error) {
		doc, err = s.readDocument(ctx, tx)
		return err
	})
	return doc, err
}

const (
	insertRules = `INSERT INTO policies
	(endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name, enforce_percent, count_when, penalty, refusal, priority) VALUES `
	ruleValues = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// writeRules inserts rules, as many with a statement as the dialect says.
// instead says what becomes of the rules that are in their place.
func writeRules(ctx context.Context, tx *tx, instead string, rules []policy.Rule) error {
	if len(rules) == 0 {
		return nil
	}
	most := min(tx.dialect.rows, len(rules))
	insert, err := tx.PrepareContext(ctx, insertRules+strings.Repeat(ruleValues+", ", most-1)+ruleValues+instead)
	if err != nil {
		return err
	}
	defer insert.Close()
	args := make([]any, 0, 18*most)
	for len(rules) >= most {
		args = args[:0]
		for _, r := range rules[:most] {
			args = appendRule(args, r)
		}
		if _, err := insert.ExecContext(ctx, args...); err != nil {
			what := record.KeyOf(rules[0]).String()
			if most > 1 {
				what += fmt.Sprintf(" and the %d after it", most-1)
			}
			return fmt.Errorf("write the %s: %w", what, err)
		}
		rules = rules[most:]
	}
	return writeRules(ctx, tx, instead, rules)
}

func appendRule(args []any, r policy.Rule) []any {
	limit := r.Limit
	if !r.Mode.Limits() {
		limit = 1 // the column has to hold something
	}
	var expires any
	if !r.Expires.IsZero() {
		expires = max(r.Expires.Unix(), 1)
	}
	return append(args,
		record.Canonical(r.Endpoint), orNull(r.Project), limit, max(1, int64(r.Per/time.Second)), orNull(r.Burst),
		r.SubjectText(), r.Algorithm.String(), r.Mode.String(), orNull(r.Tier), r.Scope.String(),
		r.OnStoreLoss.String(), expires, orNull(r.Name), orNull(r.EnforcePercent),
		orNull(string(r.CountWhen)), orNull(string(r.Penalty)), orNull(string(r.Refusal)),
		orNull(string(r.Priority)))
}

func upsertProjects(ctx context.Context, tx *tx, tiers map[string]string) error {
	for _, project := range slices.Sorted(maps.Keys(tiers)) {
		_, err := tx.ExecContext(ctx, `INSERT INTO projects (project_id, tier) VALUES (?, ?)`+tx.dialect.newProject,
			project, tiers[project])
		if err != nil {
			return fmt.Errorf("write the tier of project %q: %w", project, err)
		}
	}
	return nil
}

// orNull is NULL for a zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
