package nemesis_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/eval/nemesis"
	"github.com/headgate-io/headgate/policy"
)

// In the worlds of this file one thing happens, or none, and what is admitted is known to a token or
// two: these are the sentences of docs/scaling.md and docs/store-loss.md, one by one.

// exactly is a plan in which an endpoint has one limit that matters, of so many tokens a second. The
// one for all endpoints is counted at each gateway, and has room for everything.
func exactly(tokens, burst int64, scope policy.Scope, loss policy.StoreLoss, events ...nemesis.Event) *nemesis.Plan {
	p := plan(policy.Local, events...)
	p.Limits[2] = perSecond(100_000, policy.Local)
	p.Limits[0] = perSecond(tokens, scope)
	p.Limits[0].Burst, p.Limits[0].Loss = burst, loss
	return p
}

// drive has do ask in the world of a plan, and fails with what promises were broken.
func drive(t *testing.T, p *nemesis.Plan, lasts time.Duration, do func(t *testing.T, w *nemesis.World)) {
	t.Helper()
	var found []string
	synctest.Test(t, func(t *testing.T) {
		found = nemesis.Drive(p, lasts, func(w *nemesis.World) { do(t, w) })
	})
	if len(found) > 0 {
		t.Error(strings.Join(found, "\n"))
	}
}

// between fails where a number is not from least to most.
func between(t *testing.T, what string, got, least, most int64) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %d, want %d to %d", what, got, least, most)
	}
}

// While the store is away nothing is admitted, or what a share gives that begins empty, or everything;
// and when it is back it has filled meanwhile, but for what was admitted and has not drained.
func TestAnOutageExactly(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const rate, burst, gateways = 20, 40, 3
	for _, scope := range []policy.Scope{policy.Strict, policy.Lease, policy.Sync} {
		for _, loss := range []policy.StoreLoss{policy.LossClosed, policy.LossShare, policy.LossOpen} {
			t.Run(fmt.Sprint(scope, ", ", loss), func(t *testing.T) {
				p := exactly(rate, burst, scope, loss, nemesis.Event{Kind: nemesis.Down, At: 2 * s, Lasts: 2 * s})
				drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
					w.Load(9*s, 0, 400, 0, 1, 2)
					var lost, first, last time.Duration
					for _, turn := range w.Turns() {
						switch {
						case turn.Lost:
							lost = max(lost, turn.At)
						case first == 0:
							first = turn.At
						}
						last = turn.At
					}
					if n := len(w.Turns()); n != 2*gateways || lost > 2400*ms || first < 4*s || last > 4600*ms {
						t.Errorf(
							"gateways lost the store and found it again at %v, want each once, soon after 2 s and "+
								"4 s", w.Turns())
						return
					}
					// A lease adds what drains in a TTL, 2 tokens, and reports 2 at each gateway.
					between(t, "before", w.Admitted(0, 2*s, 0), burst+2*rate-6, burst+2*rate+7)
					during := w.Admitted(lost+5*ms, 4*s, 0)
					after := w.Admitted(first, last+2*s, 0)
					could := int64(rate*(last+2*s-first)/s) + burst
					switch loss {
					case policy.LossClosed:
						between(t, "during", during, 0, 0)
						between(t, "after", after, could-8, could+7)
					case policy.LossShare:
						want := int64(rate * (4*s - lost) / s)
						between(t, "during", during, want-4, want+1)
						// and the shares of those who have not found it yet
						between(t, "after", after, could-12, could+7+int64(rate*(last-first)/s))
					case policy.LossOpen:
						between(t, "during", during, 550, 900)
						between(t, "just after", w.Admitted(last+50*ms, last+1050*ms, 0), 0, 9) // the burst is charged
						between(t, "long after", w.Admitted(7*s, 9*s, 0), 2*rate-6, 2*rate+7)
					}
				})
			})
		}
	}
}

// A gateway that remembers few buckets, among many clients, admits nothing that is not charged: who is
// forgotten is given nothing.
func TestACrowdExactly(t *testing.T) {
	const lasts = 6 * time.Second
	for _, c := range []struct {
		scope                policy.Scope
		burst, more, atLeast int64 // and nothing drains to speak of
	}{
		{policy.Lease, 60, 0, 12}, // what is forgotten is lost
		{policy.Sync, 10, 1, 10},  // a headroom
	} {
		t.Run(c.scope.String(), func(t *testing.T) {
			p := exactly(c.burst, c.burst, c.scope, policy.LossClosed)
			p.Replicas, p.TTL, p.Crowd = 1, time.Second, 2000
			p.Limits[0].Per = 24 * time.Hour
			p.Limits[1] = p.Limits[0]
			drive(t, p, lasts, func(t *testing.T, w *nemesis.World) {
				w.Load(lasts, 0, 5, 0)
				left, err := w.Left(0, 0)
				if err != nil {
					t.Error(err)
				}
				admitted := w.Admitted(0, lasts, 0)
				between(t, "admitted", admitted, c.atLeast, c.burst+c.more)
				between(t, "admitted and left", admitted+left, c.burst/2, c.burst+c.more)
			})
		})
	}
}

// A request that one bucket denies takes nothing of another, whatever others take in between: of a
// lease, that is still used until it expires.
func TestADenialElsewhereExactly(t *testing.T) {
	const rounds, atOnce = 40, 6
	for _, scope := range []policy.Scope{policy.Strict, policy.Lease, policy.Sync} {
		for _, other := range []policy.Scope{policy.Local, policy.Split} {
			t.Run(fmt.Sprint(scope, " and ", other), func(t *testing.T) {
				p := exactly(20, 40, scope, policy.LossClosed)
				p.TTL, p.Limits[2] = 300*time.Millisecond, perSecond(10, other)
				if p.Limits[2].Burst = 2; other == policy.Split {
					p.Limits[2] = perSecond(30, other)
					p.Limits[2].Burst = 6
				}
				drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
					for range rounds {
						w.AtOnce(atOnce, 0, 0)
						time.Sleep(100 * time.Millisecond)
					}
					time.Sleep(p.TTL)
					w.AtOnce(1, 0, 0) // and sees what has expired
					admitted := w.Admitted(0, time.Minute, 0)
					between(t, "admitted", admitted, rounds, rounds+4)
					if scope == policy.Lease {
						l := w.Leases(0)
						between(t, "of a lease neither admitted nor expired",
							int64(l.Granted)-int64(l.Expired)-admitted, 0, atOnce)
						return
					}
					left, err := w.Left(0, 0)
					if err != nil {
						t.Error(err)
					}
					between(t, "left", left, 38, 40)
				})
			})
		}
	}
}

// A gateway that begins without the store divides limits by how many there are said to be.
func TestAStrandedGatewayExactly(t *testing.T) {
	const rate, lasts = 30, 4 * time.Second
	p := exactly(rate, rate, policy.Split, policy.LossClosed,
		nemesis.Event{Kind: nemesis.Strand, At: time.Second, Lasts: lasts})
	drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
		time.Sleep(1500 * time.Millisecond) // it has asked in vain
		w.Load(5*time.Second, 0, 300, 3)
		between(t, "admitted", w.Admitted(0, 5*time.Second, 0, 3), 3*rate/3, 4*rate/3+1)
	})
}

// Who joins others begins with nothing of a split limit, and has a part once they have heard of it.
func TestWhoJoinsExactly(t *testing.T) {
	const rate, s = 30, time.Second
	p := exactly(rate, 2*rate, policy.Split, policy.LossClosed, nemesis.Event{Kind: nemesis.Join, At: s})
	drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
		time.Sleep(s + time.Millisecond)
		for w.Admitted(0, time.Minute, 0, 3) == 0 {
			if !w.Ask(3, 0, 1) {
				time.Sleep(time.Millisecond)
			}
		}
		w.Load(5*s, 0, 600, 0, 1, 2, 3)
		between(t, "admitted by who joined, in its first seconds", w.Admitted(0, 3*s, 0, 3), 1, 2*rate/4+1)
		between(t, "admitted by all, later", w.Admitted(4*s, 5*s, 0), rate-4, rate+4)
	})
}

// When a gateway is gone without a word, the others have its part of a split limit once it was not
// heard of for long enough.
func TestWhoIsGoneExactly(t *testing.T) {
	const rate, s = 30, time.Second
	p := exactly(rate, rate, policy.Split, policy.LossClosed,
		nemesis.Event{Kind: nemesis.Kill, Gateway: 1, At: s, Lasts: 6 * s})
	drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
		w.Load(6*s, 0, 200, 0, 2)
		// they begin with nothing
		between(t, "admitted at the others, before", w.Admitted(0, s, 0, 0, 2), rate*2/3-3, rate*2/3+1)
		between(t, "and when it is gone", w.Admitted(3*s, 6*s, 0, 0, 2), 3*rate-3, 3*rate+3)
	})
}

// In an interval across a change a limit admits the larger of both bursts, and the larger of both headrooms at each
// gateway besides, to whoever has spent the one under one limit and the other under the other; and no more.
func TestAChangeOfScopeExactly(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const large, small, headroom, gateways = 200, 30, 10, 3 // a headroom is what drains in 100 ms
	limit := func(tokens, burst int64, scope policy.Scope) nemesis.Limit {
		l := perSecond(tokens, scope)
		l.Burst = burst
		return l
	}
	theStores := func(w *nemesis.World) { w.AtOnce(large+small, 0, 0) }
	theirOwn := func(w *nemesis.World) {
		for gateway := range gateways {
			w.AtOnce(headroom, gateway, 0)
		}
	}
	for name, c := range map[string]struct {
		from, to      nemesis.Limit
		before, after func(*nemesis.World)
		less          int64 // at the gateway that has asked the store, and knows what is owed
	}{
		"strict, then sync and a smaller burst": {
			limit(10, large, policy.Strict), limit(100, small, policy.Sync), theStores, theirOwn, 0},
		"sync, then a larger headroom and a smaller burst": {
			limit(10, large, policy.Sync), limit(100, small, policy.Sync), theStores, theirOwn, headroom},
		"sync, then strict and a larger burst": {
			limit(100, small, policy.Sync), limit(100, large, policy.Strict), theirOwn, theStores, 0},
	} {
		t.Run(name, func(t *testing.T) {
			change := nemesis.Event{Kind: nemesis.Change, At: s, Limit: c.to}
			p := exactly(1, 1, policy.Strict, policy.LossClosed, change)
			p.Limits[0] = c.from
			drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
				time.Sleep(s - ms/10)
				c.before(w)
				time.Sleep(ms / 5) // sooner than anybody reports
				c.after(w)
				want := int64(large + gateways*headroom)
				between(t, "admitted", w.Admitted(0, 2*s, 0), want-c.less, want+1)
			})
		})
	}
}

// What is owed is cut to a smaller burst, and where that grows again, however soon, what it grew by may be had besides.
func TestABurstThatGrowsAgainExactly(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	const rate, large, small, again = 10, 200, 20, 100
	to := func(at time.Duration, burst int64) nemesis.Event {
		e := nemesis.Event{Kind: nemesis.Change, At: at, Limit: perSecond(rate, policy.Strict)}
		e.Limit.Burst = burst
		return e
	}
	p := exactly(rate, large, policy.Strict, policy.LossClosed, to(s, small), to(s+200*ms, again))
	drive(t, p, 0, func(t *testing.T, w *nemesis.World) {
		time.Sleep(s - 100*ms)
		w.AtOnce(large+small, 0, 0)
		time.Sleep(301 * ms)
		w.AtOnce(large, 1, 0) // which has been denied nothing yet
		between(t, "admitted", w.Admitted(0, 2*s, 0), large+again-small+rate/5-1, large+again-small+rate/5+1)
	})
}
