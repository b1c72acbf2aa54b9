package developers

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/server/usage"
)

// Report is what a caller may know of its budgets. It names rules by the titles
// that answers to any request show, and no other project, tier or caller.
type Report struct {
	At     time.Time `json:"at"`
	Caller Caller    `json:"caller"`

	// LastHour counts all requests of the caller.
	LastHour *Hour `json:"last_hour,omitempty"`

	Budgets []Budget `json:"budgets"`

	// More is how many budgets are left out, of an API with very many rules; ask
	// for single endpoints then.
	More int `json:"more,omitempty"`
}

// Caller is who asks, as the gateway knows it.
type Caller struct {
	Kind    string `json:"kind"`
	ID      string `json:"id,omitempty"`
	Project string `json:"project,omitempty"`
	Tier    string `json:"tier,omitempty"`
	Address string `json:"address,omitempty"`
}

// Budget is one rule that applies to the caller.
type Budget struct {
	Rule     string `json:"rule"`
	Endpoint string `json:"endpoint"` // a template, default, UNKNOWN or *

	// Endpoints is how many endpoints the rule stands for, each with a bucket of
	// its own; 0 means that one bucket counts all of them together.
	Endpoints int `json:"endpoints"`

	Subject    string    `json:"subject"`
	Limit      int64     `json:"limit"`
	PerSeconds int64     `json:"per_seconds"`
	Burst      int64     `json:"burst"`
	Algorithm  string    `json:"algorithm"`
	Mode       string    `json:"mode"`
	Until      time.Time `json:"until,omitzero"` // when the rule ends

	// Needs says why nothing is known of what is left.
	Needs string `json:"needs,omitempty"`

	// Left is what is left in the emptiest bucket, and Used are the buckets of
	// single endpoints that are not full, the emptiest first, at most
	// inspect.MaxUsed.
	Left *Left  `json:"left,omitempty"`
	Used []Left `json:"used,omitempty"`

	LastHour *Hour `json:"last_hour,omitempty"`
}

// Left is one bucket.
type Left struct {
	Endpoint          string  `json:"endpoint"`
	Remaining         int64   `json:"remaining"`
	ResetSeconds      float64 `json:"reset_seconds"`                 // until it is full
	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty"` // until there is one token
}

// Hour counts the requests of the last hour.
type Hour struct {
	Admitted uint64    `json:"admitted"`
	Denied   uint64    `json:"denied"` // of a rule: by that rule
	Since    time.Time `json:"since"`
	Complete bool      `json:"complete"` // false: what was before Since in this hour is not known

	// Of all requests of a caller besides, how many there were in each of equal parts of the hour,
	// the oldest first. The last part is under way.
	CellSeconds float64  `json:"cell_seconds,omitempty"`
	AdmittedBy  []uint64 `json:"admitted_by_cell,omitempty"`
	DeniedBy    []uint64 `json:"denied_by_cell,omitempty"`
}

// Reporter makes Reports. Usage may be nil: nothing is counted.
type Reporter struct {
	Limiter  *headgate.Limiter
	Policies headgate.Policies
	Usage    *usage.Table
	Now      func() time.Time // default time.Now

	hides bool // rules of which clients are told nothing
}

// wall is the time by which rules end, in Unix nanoseconds.
func (p Reporter) wall() int64 {
	if p.Now == nil {
		return time.Now().UnixNano()
	}
	return p.Now().UnixNano()
}

// Report tells who what is left, at one endpoint or at all of them if at is
// empty.
func (p Reporter) Report(ctx context.Context, who identity.Principal, at string) (Report, error) {
	if p.Now == nil {
		p.Now = time.Now
	}
	found, err := inspect.BudgetsOf(ctx, p.Limiter, who, at)
	if err != nil {
		return Report{}, err
	}
	if p.hides {
		found.Rules = slices.DeleteFunc(found.Rules, hidden)
	}
	report := Report{
		At:      p.Now().UTC(),
		Caller:  p.caller(who),
		Budgets: make([]Budget, len(found.Rules)),
		More:    found.More,
	}
	var used usage.Usage
	if p.Usage != nil && who.Kind != identity.Address {
		used = p.Usage.Of(who)
		report.LastHour = hour(used.Total)
		report.LastHour.CellSeconds, report.LastHour.AdmittedBy, report.LastHour.DeniedBy = usage.Cell.Seconds(),
			used.AdmittedBy, used.DeniedBy
	}
	for i := range found.Rules {
		report.Budgets[i] = budget(&found.Rules[i])
		if report.LastHour != nil {
			report.Budgets[i].LastHour = hour(used.Rule(found.Rules[i].ID))
		}
	}
	return report, nil
}

// hidden reports whether clients are told nothing of a rule.
func hidden(b inspect.Budget) bool {
	says, err := b.Rule.Refusal.Terms()
	return err == nil && says != nil && says.Hidden
}

func (p Reporter) caller(who identity.Principal) Caller {
	c := Caller{Kind: who.Kind.String(), ID: who.ID, Project: who.Project, Tier: who.Tier}
	if set := p.Policies.Set(); c.Tier == "" && set != nil {
		c.Tier = set.Tier(who.Project)
	}
	if who.Client.IsValid() {
		c.Address = who.Client.String()
	}
	return c
}

func budget(b *inspect.Budget) Budget {
	out := Budget{
		Rule: b.Rule.Title(), Endpoint: b.Rule.Endpoint, Endpoints: b.Endpoints, Subject: b.Rule.Subject.String(),
		Limit: b.Rule.Limit, PerSeconds: int64(max(b.Rule.Per, time.Second) / time.Second), Burst: b.Rule.Burst,
		Algorithm: b.Rule.Algorithm.String(), Mode: "enforce", Until: b.Rule.Expires, Needs: b.Needs,
	}
	if b.Shadow {
		out.Mode = "shadow"
	}
	if b.Needs != "" {
		return out
	}
	state := left(b.State)
	out.Left = &state
	if b.Endpoints > 1 {
		for _, u := range b.Used {
			out.Used = append(out.Used, left(u))
		}
	}
	return out
}

func left(l inspect.Left) Left {
	return Left{l.Endpoint, l.Remaining, seconds(l.ResetAfter), seconds(l.Wait)}
}

// seconds rounds up to milliseconds: who comes back after that is not too early.
func seconds(d time.Duration) float64 {
	return math.Ceil(float64(d)/float64(time.Millisecond)) / 1000
}

func hour(c usage.Count) *Hour {
	return &Hour{Admitted: c.Admitted, Denied: c.Denied, Since: c.Since, Complete: c.Complete}
}
