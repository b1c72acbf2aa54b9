// Package record is what is written down of rules and of who changed them:
// rules and tiers, their versions and authors, admin tokens, the audit, requests
// for a higher limit, and what replicas tell of themselves. Package database
// keeps it, and the admin API hands it on: whoever only talks to that links no
// driver of a database.
package record

import (
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// Edit is a change of rules and of the tiers of projects.
type Edit struct {
	// Base is the version that the author has seen. If the rules are at another
	// one by now, Apply reports a *Conflict. 0 is whatever is there.
	Base int64

	Set    []policy.Rule
	Delete []RuleKey
	Tiers  map[string]string // an empty tier takes a project out of any

	// Replace removes what is in neither Set nor Tiers.
	Replace bool

	Action string // ActionApply if empty; ActionClear in its place if Delete leaves no rule

	// Check, if there is one, may refuse the edit: it is told all rules and
	// tiers before it and after it, while nobody else can change them. It costs
	// the reading of all rules.
	Check func(before, after policy.Document) error
}

// Page is some of the rules, in the order in which they were made.
type Page struct {
	Rules  []policy.Rule
	Last   int64 // where the next page begins; 0 if there is none
	Number int64 // the version that they are of; 0 is unknown
}

// ProjectTier is a project that is in a tier.
type ProjectTier struct{ Project, Tier string }

// ErrNotFound is what is returned about a rule or a key that is not there.
var ErrNotFound = errors.New("not found")

// RuleKey is what a rule is found by; no two rules share one.
type RuleKey struct {
	Endpoint  string // template text, or a reserved word
	Project   string // empty: all
	Tier      string // empty: all
	Subject   policy.Subject
	Only      string // as in policy.Rule
	Temporary bool   // expires, and stands in for the lasting rule until then
}

// KeyOf reports the key of a rule.
func KeyOf(r policy.Rule) RuleKey {
	return RuleKey{Canonical(r.Endpoint), r.Project, r.Tier, r.Subject, r.Only, !r.Expires.IsZero()}
}

// String names the rule for people.
func (k RuleKey) String() string {
	text := fmt.Sprintf("rule for %q", k.Endpoint)
	if k.Temporary {
		text = "temporary " + text
	}
	if k.Project != "" {
		text += fmt.Sprintf(" of project %q", k.Project)
	}
	if k.Tier != "" {
		text += fmt.Sprintf(" of tier %q", k.Tier)
	}
	if k.Only != "" && !k.Subject.Named() {
		return text + " of " + k.Only
	}
	return text + " per " + policy.Whom{Subject: k.Subject, Only: k.Only}.String()
}

// Canonical writes an endpoint the way it is stored, so that "GET /a/" and
// "GET /a" are one rule. What is no template stays as it is.
func Canonical(text string) string {
	if t, err := endpoint.ParseTemplate(text); err == nil {
		return t.String()
	}
	return text
}

// ErrTable is what is returned about changes and versions of rules that stand in
// somebody else's table.
var ErrTable = errors.New("is read-only")
