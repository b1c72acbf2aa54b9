package rules

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// Approver is where requests for a higher limit are kept beside the rules.
// *database.Store is one.
type Approver interface {
	Approve(ctx context.Context, id string, g record.Grant) (record.LimitRequest, record.Version, error)
}

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
func Approve(ctx context.Context, to Approver, id string, a Approval, o policy.CompileOptions) (r record.LimitRequest,
	v record.Version, findings policy.Problems, err error) {
	var rule policy.Rule
	var lower policy.Problems
	r, v, err = to.Approve(ctx, id, record.Grant{
		Actor: a.Actor, Claimed: a.Claimed, Note: a.Note,
		Rule: func(r record.LimitRequest, doc policy.Document) (policy.Rule, error) {
			rule, err = a.rule(&r, doc, o, time.Now())
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

// rule is what happens to a request.
func (a *Approval) rule(r *record.LimitRequest, doc policy.Document, o policy.CompileOptions,
	now time.Time) (policy.Rule, error) {
	rule := policy.Rule{
		Endpoint: r.Endpoint, Project: r.Project, Subject: r.Subject,
		Limit: r.Limit, Per: r.Per, Burst: r.Burst, Expires: r.Until,
	}
	if r.For > 0 {
		rule.Expires = now.Add(r.For)
	}
	if old, level, ok := inForce(doc, r, o); ok {
		if level <= policy.LevelEndpoint {
			rule.Endpoint = old.Endpoint // in its parameter names
		}
		rule.Algorithm, rule.OnStoreLoss, rule.Scope = old.Algorithm, old.OnStoreLoss, old.Scope
		rule.CountWhen, rule.Penalty, rule.Refusal = old.CountWhen, old.Penalty, old.Refusal
		rule.Priority = old.Priority
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
		return rule, &ApprovalError{fmt.Sprintf("the limit would end at %s, want a time in the future",
			rule.Expires.UTC().Format(time.RFC3339))}
	}
	return rule, nil
}

// notHigher finds that an approval takes away what it should give: its rule has
// neither a higher rate nor a larger burst than the one that holds now.
func notHigher(rule policy.Rule, r *record.LimitRequest, doc policy.Document, o policy.CompileOptions) policy.Problems {
	old, _, ok := inForce(doc, r, o)
	burst, held := o.BurstOf(&rule), o.BurstOf(&old)
	if !ok || faster(rule, old) || burst > held {
		return nil
	}
	return policy.Problems{{
		Severity: policy.Warning, Code: "not_higher", Rule: -1, Where: titled(&rule),
		Field: "limit",
		Value: fmt.Sprintf("%s (burst %d)", rule.Rate(), burst),
		Want: fmt.Sprintf("more than the %s (burst %d) that holds for the project already, in whose place it stands",
			old.Rate(), held),
	}}
}

// faster reports whether a gives more tokens in the same time than b.
func faster(a, b policy.Rule) bool {
	hi1, lo1 := bits.Mul64(uint64(a.Limit), uint64(max(b.Per, time.Second)))
	hi2, lo2 := bits.Mul64(uint64(b.Limit), uint64(max(a.Per, time.Second)))
	return hi1 > hi2 || hi1 == hi2 && lo1 > lo2
}

// inForce finds the lasting rule that holds for the project now, and at which
// level: by the project's tier in the document, since nobody knows what tier a
// key will say. It asks compiled rules, so that it cannot differ from what
// requests are counted by.
func inForce(doc policy.Document, r *record.LimitRequest, o policy.CompileOptions) (found policy.Rule,
	at policy.Level, ok bool) {
	set, m := lasting(doc, r, o)
	if set == nil {
		return policy.Rule{}, 0, false
	}
	for _, a := range set.Resolve(nil, 0, m, r.Project, "") {
		if !a.Shadow && a.Level.EveryEndpoint() == (r.Endpoint == policy.All) {
			return set.Rule(a.Rule), a.Level, true
		}
	}
	return policy.Rule{}, 0, false
}

// lasting compiles the lasting rules that may hold for a request, and returns
// the endpoint that it is about as a match. Rules that do not compile hold for
// nobody.
func lasting(doc policy.Document, r *record.LimitRequest, o policy.CompileOptions) (*policy.Set, endpoint.Match) {
	table := asked(doc, r.Endpoint)
	if table == nil {
		return nil, endpoint.Match{}
	}
	doc.Rules = slices.DeleteFunc(slices.Clone(doc.Rules), func(rule policy.Rule) bool {
		others := rule.Project != "" && rule.Project != r.Project
		return others || rule.Subject != r.Subject || rule.Mode == policy.Shadow || !rule.Expires.IsZero()
	})
	o = policy.CompileOptions{Endpoints: table, BurstPercent: o.BurstPercent}
	for {
		set, problems := policy.Compile(doc, o)
		bad := make(map[int]bool)
		for _, p := range problems.Errors() {
			bad[p.Rule] = true
		}
		if set != nil || bad[-1] {
			// The endpoint of a template is the table's only one. For Default the table
			// is empty, and this is an endpoint that no rule names.
			return set, endpoint.Match{ID: 1, Status: endpoint.Known}
		}
		var rest []policy.Rule
		for i, rule := range doc.Rules {
			if !bad[i] {
				rest = append(rest, rule)
			}
		}
		doc.Rules = rest
	}
}

// asked is a table of the endpoint that a request is about, with the parameter
// names that rules give it; empty for Default and All, nil for what is neither.
func asked(doc policy.Document, text string) *endpoint.Table {
	if text == policy.Default || text == policy.All {
		text = ""
	}
	table := tableOf(text)
	if table == nil || text == "" {
		return table
	}
	for _, rule := range doc.Rules {
		if t, err := endpoint.ParseTemplate(rule.Endpoint); err == nil {
			if _, same := table.Lookup(t); same {
				return tableOf(rule.Endpoint)
			}
		}
	}
	return table
}

// tableOf has one template, or none.
func tableOf(text string) *endpoint.Table {
	var templates []endpoint.Template
	if text != "" {
		t, err := endpoint.ParseTemplate(text)
		if err != nil {
			return nil
		}
		templates = append(templates, t)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		return nil
	}
	return table
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
		if p.Severity != policy.Error && p.Code != "expires_soon" && p.Rule >= 0 &&
			record.KeyOf(doc.Rules[p.Rule]) == record.KeyOf(rule) {
			p.Where = titled(&rule)
			findings = append(findings, p)
		}
	}
	return findings
}
