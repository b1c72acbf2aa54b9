package rules

import (
	"context"
	"fmt"
	"math/bits"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/store"
)

// Approver is where requests for a higher limit are kept beside the rules.
// *store.Store is one.
type Approver interface {
	Approve(ctx context.Context, id string, g store.Grant) (store.LimitRequest, store.Version, error)
}

var _ Approver = (*store.Store)(nil)

// Approval is what an operator makes of a request. Of the limit, what is zero is
// as it was asked for.
type Approval struct {
	Actor, Claimed string
	Note           string

	Limit int64
	Per   time.Duration
	Burst int64
	Until time.Time
	For   time.Duration // from now on; not together with Until
}

// ApprovalError says what is wrong with an Approval.
type ApprovalError struct{ text string }

func (e *ApprovalError) Error() string { return e.text }

// Approve makes a temporary rule of a request, for its project alone, unless the
// rules with it would not compile. The rule counts as the one does that it
// stands in for, and always denies. What lint has to say of it besides errors
// is returned too, and that it is not higher than what holds now.
func Approve(ctx context.Context, to Approver, id string, a Approval, o policy.CompileOptions) (r store.LimitRequest, v store.Version, findings policy.Problems, err error) {
	var rule policy.Rule
	var lower policy.Problems
	r, v, err = to.Approve(ctx, id, store.Grant{
		Actor: a.Actor, Claimed: a.Claimed, Note: a.Note,
		Rule: func(r store.LimitRequest, doc policy.Document) (policy.Rule, error) {
			rule, err = a.rule(&r, doc, time.Now())
			lower = notHigher(rule, &r, doc, o)
			return rule, err
		},
		Check: func(before, after policy.Document) error {
			findings = append(lower, about(after, rule, o)...)
			return Check(before, rule, o)
		},
	})
	return r, v, findings, err
}

// rule is what becomes of a request.
func (a *Approval) rule(r *store.LimitRequest, doc policy.Document, now time.Time) (policy.Rule, error) {
	rule := policy.Rule{
		Endpoint: r.Endpoint, Project: r.Project, Subject: r.Subject,
		Limit: r.Limit, Per: r.Per, Burst: r.Burst, Expires: r.Until,
	}
	if r.For > 0 {
		rule.Expires = now.Add(r.For)
	}
	if old, ok := inForce(doc, r); ok {
		rule.Endpoint = old.Endpoint // in its parameter names
		if !sameEndpoint(old.Endpoint, r.Endpoint) {
			rule.Endpoint = r.Endpoint
		}
		rule.Algorithm, rule.OnStoreLoss, rule.Scope = old.Algorithm, old.OnStoreLoss, old.Scope
	}
	if a.Limit != 0 || a.Per != 0 {
		rule.Burst = 0 // the burst that was asked for belongs to the limit that was
	}
	if a.Limit != 0 {
		rule.Limit = a.Limit
	}
	if a.Per != 0 {
		rule.Per = a.Per
	}
	if a.Burst != 0 {
		rule.Burst = a.Burst
	}
	switch {
	case !a.Until.IsZero() && a.For != 0:
		return rule, &ApprovalError{"the approval has both an end and a duration, want one of the two"}
	case !a.Until.IsZero():
		rule.Expires = a.Until
	case a.For != 0:
		rule.Expires = now.Add(a.For)
	}
	if !rule.Expires.After(now) {
		return rule, &ApprovalError{fmt.Sprintf("the limit would end at %s, want a time to come", rule.Expires.UTC().Format(time.RFC3339))}
	}
	return rule, nil
}

// notHigher finds that an approval takes away what it should give: its rule has
// neither a higher rate nor a larger burst than the one that holds now.
func notHigher(rule policy.Rule, r *store.LimitRequest, doc policy.Document, o policy.CompileOptions) policy.Problems {
	old, ok := inForce(doc, r)
	burst, held := o.BurstOf(&rule), o.BurstOf(&old)
	if !ok || faster(rule, old) || burst > held {
		return nil
	}
	return policy.Problems{{
		Severity: policy.Warning, Code: "not_higher", Rule: -1, Where: fmt.Sprintf("rule %q", rule.Title()), Field: "limit",
		Value: fmt.Sprintf("%s (burst %d)", rule.Rate(), burst),
		Want:  fmt.Sprintf("more than the %s (burst %d) that holds for the project already, in whose place it stands", old.Rate(), held),
	}}
}

// faster reports whether a gives more tokens in the same time than b.
func faster(a, b policy.Rule) bool {
	hi1, lo1 := bits.Mul64(uint64(a.Limit), uint64(max(b.Per, time.Second)))
	hi2, lo2 := bits.Mul64(uint64(b.Limit), uint64(max(a.Per, time.Second)))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}

// inForce finds the lasting rule that holds for the project now: by the project's
// tier in the document, since nobody knows what tier a key will say.
func inForce(doc policy.Document, r *store.LimitRequest) (found policy.Rule, ok bool) {
	best := len(levels)
	for _, rule := range doc.Rules {
		if rule.Subject != r.Subject || !rule.Expires.IsZero() || rule.Mode == policy.Shadow {
			continue
		}
		for i, level := range levels[:best] {
			if level(&rule, r, doc.Projects[r.Project]) {
				best, found, ok = i, rule, true
				break
			}
		}
	}
	return found, ok
}

// levels are the places of a rule that can hold for a request, the most specific
// first; see policy.Level.
var levels = []func(rule *policy.Rule, r *store.LimitRequest, tier string) bool{
	func(rule *policy.Rule, r *store.LimitRequest, _ string) bool {
		return own(rule, r) && rule.Project == r.Project
	},
	func(rule *policy.Rule, r *store.LimitRequest, tier string) bool {
		return own(rule, r) && rule.Tier == tier && tier != ""
	},
	func(rule *policy.Rule, r *store.LimitRequest, _ string) bool {
		return own(rule, r) && rule.Project == "" && rule.Tier == ""
	},
	func(rule *policy.Rule, r *store.LimitRequest, _ string) bool {
		return rest(rule, r) && rule.Project == r.Project
	},
	func(rule *policy.Rule, r *store.LimitRequest, tier string) bool {
		return rest(rule, r) && rule.Tier == tier && tier != ""
	},
	func(rule *policy.Rule, r *store.LimitRequest, _ string) bool {
		return rest(rule, r) && rule.Project == "" && rule.Tier == ""
	},
}

func own(rule *policy.Rule, r *store.LimitRequest) bool {
	return sameEndpoint(rule.Endpoint, r.Endpoint)
}

func rest(rule *policy.Rule, r *store.LimitRequest) bool {
	return rule.Endpoint == policy.Default && r.Endpoint != policy.All
}

var parameter = regexp.MustCompile(`\{[^{}]*?(\.\.\.)?\}`)

// sameEndpoint reports whether two templates differ in the names of parameters
// at most.
func sameEndpoint(a, b string) bool {
	before, _, named := strings.Cut(a, "{")
	if a == b || !named || !strings.HasPrefix(b, before+"{") {
		return a == b
	}
	return parameter.ReplaceAllString(a, "{$1}") == parameter.ReplaceAllString(b, "{$1}")
}

// about reports what lint finds about a rule besides errors. That it ends is what
// was asked for.
func about(doc policy.Document, rule policy.Rule, o policy.CompileOptions) (findings policy.Problems) {
	known := o.Endpoints != nil && o.Endpoints.Len() > 0
	doc.Source = ""
	for _, p := range policy.Lint(doc, o) {
		if p.Code == "no_endpoint" && !known {
			continue // nobody said which there are
		}
		if p.Severity != policy.Error && p.Code != "expires_soon" && p.Rule >= 0 && store.KeyOf(doc.Rules[p.Rule]) == store.KeyOf(rule) {
			p.Where = fmt.Sprintf("rule %q", rule.Title())
			findings = append(findings, p)
		}
	}
	return findings
}
