package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// ErrNotFound is what is returned about a rule or a key that is not there.
var ErrNotFound = errors.New("not found")

// RuleKey is what a rule is found by; no two rules share one.
type RuleKey struct {
	Endpoint string // template text, or a reserved word
	Project  string // empty: all
	Tier     string // empty: all
	Subject  policy.Subject
}

// KeyOf reports the key of a rule.
func KeyOf(r policy.Rule) RuleKey {
	return RuleKey{canonical(r.Endpoint), r.Project, r.Tier, r.Subject}
}

// String names the rule for people.
func (k RuleKey) String() string {
	text := fmt.Sprintf("rule for %q", k.Endpoint)
	if k.Project != "" {
		text += fmt.Sprintf(" of project %q", k.Project)
	}
	if k.Tier != "" {
		text += fmt.Sprintf(" of tier %q", k.Tier)
	}
	return text + " per " + k.Subject.String()
}

// canonical writes an endpoint the way it is stored, so that "GET /a/" and
// "GET /a" are one rule. What is no template stays as it is.
func canonical(text string) string {
	if t, err := endpoint.ParseTemplate(text); err == nil {
		return t.String()
	}
	return text
}

// Set writes a rule, in the place of the one with its key if there is one. A
// rule that could not be loaded again is refused, and so is one that says of
// the same endpoint, in other parameter names, what another rule says.
func (s *Store) Set(ctx context.Context, r policy.Rule) error {
	r.Endpoint = canonical(r.Endpoint)
	if err := lint(policy.Document{Rules: []policy.Rule{r}}); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		if err := s.checkTwin(ctx, tx, r); err != nil {
			return err
		}
		return writeRules(ctx, tx, upsertRule, []policy.Rule{r})
	})
}

// lint reports what would keep a document from being loaded.
func lint(doc policy.Document) error {
	return policy.Lint(doc, policy.CompileOptions{}).Err()
}

// checkTwin looks for a rule for the same tenant and subject whose template
// differs in its parameter names alone. The table cannot see that, and the
// rules of both could not be loaded.
func (s *Store) checkTwin(ctx context.Context, tx *sql.Tx, r policy.Rule) error {
	if !strings.Contains(r.Endpoint, "{") {
		return nil
	}
	others, err := s.queryRules(ctx, tx, `WHERE project_id IS ? AND tier IS ? AND subject = ? AND endpoint <> ? AND instr(endpoint, '{')`,
		orNull(r.Project), orNull(r.Tier), r.Subject.String(), r.Endpoint)
	if err != nil {
		return err
	}
	for _, other := range others {
		if shape(other.Endpoint) == shape(r.Endpoint) {
			return policy.Problem{Code: "duplicate", Rule: -1, Where: KeyOf(r).String(), Field: "endpoint",
				Value: shown(r.Endpoint), Want: "the parameter names of the rule that is there already: " + shown(other.Endpoint)}
		}
	}
	return nil
}

var parameter = regexp.MustCompile(`\{[^{}]*?(\.\.\.)?\}`)

// shape is a template without the names of its parameters.
func shape(template string) string { return parameter.ReplaceAllString(template, "{$1}") }

// Get reports the rule with a key, or ErrNotFound.
func (s *Store) Get(ctx context.Context, k RuleKey) (rule policy.Rule, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		found, err := s.queryRules(ctx, tx, `WHERE endpoint = ? AND coalesce(project_id, '') = ? AND coalesce(tier, '') = ? AND subject = ?`, k.args()...)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return fmt.Errorf("%v: %w", k, ErrNotFound)
		}
		rule = found[0]
		return nil
	})
	return rule, err
}

// List reports all rules in the order in which they were made.
func (s *Store) List(ctx context.Context) (rules []policy.Rule, err error) {
	err = s.read(ctx, func(tx *sql.Tx) (err error) {
		rules, err = s.allRules(ctx, tx)
		return err
	})
	return rules, err
}

// Delete removes the rule with a key, or reports ErrNotFound.
func (s *Store) Delete(ctx context.Context, k RuleKey) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `DELETE FROM policies
			WHERE endpoint = ? AND coalesce(project_id, '') = ? AND coalesce(tier, '') = ? AND subject = ?`, k.args()...)
		if err != nil {
			return err
		}
		return affected(done, k)
	})
}

// affected makes ErrNotFound of a statement that changed nothing.
func affected(done sql.Result, what fmt.Stringer) error {
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		return fmt.Errorf("%v: %w", what, ErrNotFound)
	}
	return err
}

func (k RuleKey) args() []any {
	return []any{canonical(k.Endpoint), k.Project, k.Tier, k.Subject.String()}
}

// SetTier puts a project into a tier; an empty tier takes it out of any.
func (s *Store) SetTier(ctx context.Context, project, tier string) error {
	if tier != "" {
		if err := lint(policy.Document{Projects: map[string]string{project: tier}}); err != nil {
			return err
		}
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		if tier == "" {
			_, err := tx.ExecContext(ctx, "DELETE FROM projects WHERE project_id = ?", project)
			return err
		}
		return upsertProjects(ctx, tx, map[string]string{project: tier})
	})
}

// Import writes a document's rules and projects in one transaction: all of
// them, or none and an error with everything that is wrong. With replace, what
// the document does not have is removed; without, it stays. A replacement by
// nothing is refused: it is far more often a mistake than a wish.
func (s *Store) Import(ctx context.Context, doc policy.Document, replace bool) error {
	if replace && len(doc.Rules) == 0 {
		return policy.Problem{Code: "empty", Rule: -1, Where: doc.Source, Field: "rules", Value: "empty",
			Want: "at least one rule to replace all others with"}
	}
	if err := lint(doc); err != nil {
		return err
	}
	return s.write(ctx, func(tx *sql.Tx) error {
		statement := upsertRule
		if replace {
			statement = insertRule
			if _, err := tx.ExecContext(ctx, "DELETE FROM policies"); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM projects"); err != nil {
				return err
			}
		}
		if err := writeRules(ctx, tx, statement, doc.Rules); err != nil {
			return err
		}
		if err := upsertProjects(ctx, tx, doc.Projects); err != nil {
			return err
		}
		if replace {
			return nil
		}
		merged, err := s.readDocument(ctx, tx)
		if err != nil {
			return err
		}
		return lint(merged) // together with what was there
	})
}

// Export reports all rules and projects as they are at one moment.
func (s *Store) Export(ctx context.Context) (doc policy.Document, err error) {
	err = s.read(ctx, func(tx *sql.Tx) (err error) {
		doc, err = s.readDocument(ctx, tx)
		return err
	})
	return doc, err
}

// Where no rule can be in the way, insertRule takes an eighth of the time.
const insertRule = `
INSERT INTO policies (endpoint, project_id, rps_limit, per_seconds, burst, subject, algorithm, mode, tier, scope, on_store_loss, expires_at, name)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

const upsertRule = insertRule + `
ON CONFLICT (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject) DO UPDATE SET
	rps_limit = excluded.rps_limit, per_seconds = excluded.per_seconds, burst = excluded.burst,
	algorithm = excluded.algorithm, mode = excluded.mode, scope = excluded.scope,
	on_store_loss = excluded.on_store_loss, expires_at = excluded.expires_at, name = excluded.name`

// writeRules runs insertRule or upsertRule for every rule.
func writeRules(ctx context.Context, tx *sql.Tx, statement string, rules []policy.Rule) error {
	insert, err := tx.PrepareContext(ctx, statement)
	if err != nil {
		return err
	}
	defer insert.Close()
	for _, r := range rules {
		var expires any
		if !r.Expires.IsZero() {
			expires = max(r.Expires.Unix(), 1)
		}
		_, err := insert.ExecContext(ctx,
			canonical(r.Endpoint), orNull(r.Project), r.Limit, max(1, int64(r.Per/time.Second)), orNull(r.Burst),
			r.Subject.String(), r.Algorithm.String(), r.Mode.String(), orNull(r.Tier), r.Scope.String(),
			r.OnStoreLoss.String(), expires, orNull(r.Name))
		if err != nil {
			return fmt.Errorf("write the %v: %w", KeyOf(r), err)
		}
	}
	return nil
}

func upsertProjects(ctx context.Context, tx *sql.Tx, tiers map[string]string) error {
	for _, project := range slices.Sorted(maps.Keys(tiers)) {
		_, err := tx.ExecContext(ctx, `INSERT INTO projects (project_id, tier) VALUES (?, ?)
			ON CONFLICT (project_id) DO UPDATE SET tier = excluded.tier`, project, tiers[project])
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
