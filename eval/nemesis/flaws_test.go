package nemesis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/nemesis"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// plan is one in which the endpoints have a limit of 100 a second each in a scope, under one for
// all that hardly matters.
func plan(scope policy.Scope, events ...nemesis.Event) *nemesis.Plan {
	p := &nemesis.Plan{
		Seed:     1,
		Replicas: 3,
		TTL:      100 * time.Millisecond,
		Deadline: 5 * time.Millisecond,
		Interval: 100 * time.Millisecond,
		Events:   events,
	}
	for i := range p.Limits {
		p.Limits[i] = perSecond(100, scope)
	}
	p.Limits[2] = perSecond(1000, policy.Strict)
	p.Load = [2]nemesis.Load{{Rate: 300, Wave: 1500 * time.Millisecond}, {Rate: 300, Wave: 900 * time.Millisecond}}
	return p
}

func perSecond(tokens int64, scope policy.Scope) nemesis.Limit {
	return nemesis.Limit{Limit: rate.Limit{Tokens: tokens, Per: time.Second, Burst: tokens}, Scope: scope}
}

// flaw is one that was found, as the least that shows it.
type flaw struct {
	name   string
	mended bool // else the nemesis must find it, so that nobody forgets
	events []nemesis.Event
	store  time.Duration // what its clock is ahead
	scopes []policy.Scope
}

func flaws() []flaw {
	every := []policy.Scope{policy.Strict, policy.Lease, policy.Sync}
	slow, daily := perSecond(10, policy.Strict), perSecond(5, policy.Strict)
	daily.Per = 24 * time.Hour
	lowered := nemesis.Event{Kind: nemesis.Change, At: 2 * time.Second, Limit: slow}
	return []flaw{
		{
			name:   "a lowered limit, and a gateway's clock is ahead",
			mended: true,
			scopes: every,
			events: []nemesis.Event{{Kind: nemesis.Offset, Gateway: 1, By: time.Minute}, lowered},
		},
		{
			name:   "a lowered limit, and the store's clock is behind",
			mended: true,
			scopes: every,
			events: []nemesis.Event{lowered},
			store:  -time.Hour,
		},
		{name: "a refund that arrives late", mended: true, scopes: every[:2], events: []nemesis.Event{
			{Kind: nemesis.Reservation, Lasts: 6 * time.Second, By: 100 * time.Millisecond},
			{
				Kind:    nemesis.Noise,
				At:      time.Second,
				Lasts:   5 * time.Second,
				Network: nemesis.Network{Late: 0.5, Longest: 3 * time.Second, Of: nemesis.Corrections},
			},
		}},
		{
			name:   "a new client after a change to a slow limit",
			mended: true,
			scopes: every,
			events: []nemesis.Event{{Kind: nemesis.Change, At: 2 * time.Second, Limit: daily}},
		},
		{name: "a gateway stands still", mended: true, scopes: every, events: []nemesis.Event{
			{Kind: nemesis.Freeze, Gateway: 1, At: 2 * time.Second, Lasts: 3 * time.Second},
		}},
		{name: "an operator fills a bucket and gives it tokens, under reservations", mended: true, scopes: every,
			events: []nemesis.Event{
				{Kind: nemesis.Reservation, Lasts: 6 * time.Second, By: time.Second},
				{Kind: nemesis.Reset, Gateway: 1, At: 2 * time.Second},
				{Kind: nemesis.Grant, Gateway: 2, At: 4 * time.Second, Tokens: 50},
			}},
		{
			name:   "the store's clock is an hour ahead for a moment",
			mended: true,
			scopes: every,
			events: []nemesis.Event{{Kind: nemesis.Glitch, At: 2 * time.Second, Lasts: 300 * time.Millisecond,
				By: time.Hour}},
		},
		{
			name:   "the store's clock is set back by an hour",
			mended: true,
			scopes: every,
			events: []nemesis.Event{{Kind: nemesis.Step, At: 2 * time.Second, By: -time.Hour}},
		},
		{
			name:   "the store's clock is an hour behind for a moment",
			mended: true,
			scopes: every,
			events: []nemesis.Event{{Kind: nemesis.Glitch, At: 2 * time.Second, Lasts: 300 * time.Millisecond,
				By: -time.Hour}},
		},
	}
}

// What was once wrong stays mended; what is not mended yet is found.
func TestFlaws(t *testing.T) {
	for _, f := range flaws() {
		if *plain && !f.mended {
			continue
		}
		for _, scope := range f.scopes {
			t.Run(scope.String()+", "+f.name, func(t *testing.T) {
				p := plan(scope)
				p.Store = f.store
				for _, e := range f.events {
					e.Limit.Scope = scope
					p.Events = append(p.Events, e)
				}
				found := run(t, p)
				switch {
				case f.mended && len(found) > 0:
					t.Error(strings.Join(found, "\n"))
				case !f.mended && len(found) == 0:
					t.Error("nothing is found, want what is not mended yet; if it is, say so in flaws, and draw " +
						"such events in known")
				}
			})
		}
	}
}
