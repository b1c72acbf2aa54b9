// Package rules changes rules safely: a change is checked together with every
// rule that is already there, and written only if the whole would compile.
package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Store is where rules are kept. *database.Store is one.
type Store interface {
	Apply(ctx context.Context, a record.Author, e record.Edit) (record.Version, error)
}

// Editor is where rules are looked at and changed: a database, or a gateway that
// has one. Where it is a gateway, that makes the checks of its own.
type Editor interface {
	Store
	Load(ctx context.Context) (policy.Document, string, error)
	Current(ctx context.Context) (record.Version, error)
	Pending(ctx context.Context) (record.Version, error)
	History(ctx context.Context, before int64, most int) ([]record.Version, error)
	Diff(ctx context.Context, a, b int64) ([]record.Change, error)
	Changes(ctx context.Context, version int64) ([]record.Change, error)
	At(ctx context.Context, version int64) (policy.Document, error)
	RollbackChecked(ctx context.Context, a record.Author, to, base int64,
		check func(before, after policy.Document) error) (record.Version, error)
}

// Set writes a rule, unless the rules with it would not compile, or it is for
// a template that no endpoint has although o knows the endpoints. Such an
// error unwraps to the policy.Problem of each fault.
func Set(ctx context.Context, to Store, a record.Author, rule policy.Rule,
	o policy.CompileOptions) (record.Version, error) {
	return to.Apply(ctx, a, record.Edit{
		Set: []policy.Rule{rule}, Action: record.ActionSet,
		Check: func(before, _ policy.Document) error { return Check(before, rule, o) },
	})
}

// Delete removes a rule.
func Delete(ctx context.Context, to Store, a record.Author, which record.RuleKey) (record.Version, error) {
	return to.Apply(ctx, a, record.Edit{Delete: []record.RuleKey{which}, Action: record.ActionDelete})
}

// Apply makes an edit, unless the rules after it would not compile, or it brings
// a rule for a template that no endpoint has although o knows the endpoints.
func Apply(ctx context.Context, to Store, a record.Author, e record.Edit,
	o policy.CompileOptions) (record.Version, error) {
	e.Check = func(before, after policy.Document) error { return CheckAll(before, after, o) }
	return to.Apply(ctx, a, e)
}

// Rollback brings back the rules of a version, unless they do not compile any
// more. That a template is gone since then keeps nobody from going back.
func Rollback(ctx context.Context, to Editor, a record.Author, version, base int64,
	o policy.CompileOptions) (record.Version, error) {
	return to.RollbackChecked(ctx, a, version, base,
		func(before, after policy.Document) error { return CheckRollback(before, after, o) })
}

// CheckRollback reports why Rollback would refuse the rules of a version.
func CheckRollback(before, after policy.Document, o policy.CompileOptions) error {
	o.Endpoints = nil
	return CheckAll(before, after, o)
}

// CheckAll reports what would be wrong with the rules of after. A rule for a
// template that no endpoint has is wrong if it was not there before.
func CheckAll(before, after policy.Document, o policy.CompileOptions) error {
	known := make(map[policy.Rule]bool, len(before.Rules))
	for _, r := range before.Rules {
		known[r] = true
	}
	after.Source = ""
	var faults []error
	for _, p := range policy.Lint(after, o) {
		ours := p.Rule >= 0 && p.Rule < len(after.Rules)
		unknown := ours && isUnknown(p, o) && !known[after.Rules[p.Rule]]
		if p.Severity != policy.Error && !unknown {
			continue
		}
		if unknown {
			p.Want += "; `headgate routes` lists them"
		}
		if ours {
			p.Where = titled(&after.Rules[p.Rule])
		}
		faults = append(faults, p)
	}
	return errors.Join(faults...)
}

// isUnknown reports whether a finding is about a template that no endpoint has,
// where the endpoints are known.
func isUnknown(p policy.Problem, o policy.CompileOptions) bool {
	return p.Code == "no_endpoint" && o.Endpoints != nil && o.Endpoints.Len() > 0
}

// Check reports what would be wrong with rule among the rules of doc. Faults
// that were there before are not its fault.
func Check(doc policy.Document, rule policy.Rule, o policy.CompileOptions) error {
	after, at := With(doc, rule)
	after.Source = ""
	var own, others []error
	for _, p := range policy.Lint(after, o) {
		unknown := isUnknown(p, o)
		switch {
		case p.Rule == at && (p.Severity == policy.Error || unknown):
			if unknown {
				p.Want += "; `headgate routes` lists them"
			}
			p.Where = titled(&rule)
			own = append(own, p)
		case p.Severity == policy.Error:
			others = append(others, p)
		}
	}
	if others != nil && policy.Lint(doc, o).Err() != nil {
		others = nil // the store was broken before
	}
	return errors.Join(append(own, others...)...)
}

// With returns doc with rule in it, in place of its predecessor if there
// is one, and where. doc is left as it is.
func With(doc policy.Document, rule policy.Rule) (policy.Document, int) {
	at := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return record.KeyOf(r) == record.KeyOf(rule) })
	doc.Rules = slices.Clone(doc.Rules)
	if at < 0 {
		doc.Rules = append(doc.Rules, rule)
		return doc, len(doc.Rules) - 1
	}
	doc.Rules[at] = rule
	return doc, at
}

// Merge returns doc with the rules and tiers of more in it, each in place of
// its predecessor if there is one. doc is left as it is.
func Merge(doc, more policy.Document) policy.Document {
	at := make(map[record.RuleKey]int, len(doc.Rules))
	for i, r := range doc.Rules {
		at[record.KeyOf(r)] = i
	}
	doc.Rules = slices.Clone(doc.Rules)
	for _, r := range more.Rules {
		if i, ok := at[record.KeyOf(r)]; ok {
			doc.Rules[i] = r
		} else {
			doc.Rules = append(doc.Rules, r)
		}
	}
	tiers := make(map[string]string, len(doc.Projects)+len(more.Projects))
	maps.Copy(tiers, doc.Projects)
	maps.Copy(tiers, more.Projects)
	doc.Projects = tiers
	return doc
}

// For reports the rules that may apply to a project: its own, those of its tier
// and those for all.
func For(doc policy.Document, project string) []policy.Rule {
	tier := doc.Projects[project]
	var list []policy.Rule
	for _, r := range doc.Rules {
		if r.Project == project || r.Project == "" && (r.Tier == "" || r.Tier == tier) {
			list = append(list, r)
		}
	}
	return list
}

// titled is where a finding about a rule is, for people. Its name may be a whole file by mistake.
func titled(r *policy.Rule) string { return fmt.Sprintf("rule %q", clip.To(r.Title(), policy.MaxName)) }
