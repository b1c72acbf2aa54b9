// Package rules changes rules safely: a change is checked together with every
// rule that is already there, and written only if the whole would compile.
package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/store"
)

// Store is where rules are kept. *store.Store is one.
type Store interface {
	Apply(ctx context.Context, a store.Author, e store.Edit) (store.Version, error)
}

var _ Store = (*store.Store)(nil)

// Set writes a rule, unless the rules with it would not compile, or it is for
// a template that no endpoint has although o knows the endpoints. Such an
// error unwraps to the policy.Problem of each fault.
func Set(ctx context.Context, to Store, a store.Author, rule policy.Rule, o policy.CompileOptions) (store.Version, error) {
	return to.Apply(ctx, a, store.Edit{
		Set: []policy.Rule{rule}, Action: store.ActionSet,
		Check: func(before, _ policy.Document) error { return Check(before, rule, o) },
	})
}

// Delete removes a rule.
func Delete(ctx context.Context, to Store, a store.Author, which store.RuleKey) (store.Version, error) {
	return to.Apply(ctx, a, store.Edit{Delete: []store.RuleKey{which}, Action: store.ActionDelete})
}

// Check reports what would be wrong with rule among the rules of doc. Faults
// that were there before are not its fault.
func Check(doc policy.Document, rule policy.Rule, o policy.CompileOptions) error {
	after, at := With(doc, rule)
	after.Source = ""
	var own, others []error
	for _, p := range policy.Lint(after, o) {
		unknown := p.Code == "no_endpoint" && o.Endpoints != nil && o.Endpoints.Len() > 0
		switch {
		case p.Rule == at && (p.Severity == policy.Error || unknown):
			if unknown {
				p.Want += "; `headgate routes` lists them"
			}
			p.Where = fmt.Sprintf("rule %q", rule.Title())
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

// With returns doc with rule in it, in the place of its predecessor if there
// is one, and where. doc is left as it is.
func With(doc policy.Document, rule policy.Rule) (policy.Document, int) {
	at := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return store.KeyOf(r) == store.KeyOf(rule) })
	doc.Rules = slices.Clone(doc.Rules)
	if at < 0 {
		doc.Rules = append(doc.Rules, rule)
		return doc, len(doc.Rules) - 1
	}
	doc.Rules[at] = rule
	return doc, at
}
