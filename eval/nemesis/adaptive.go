package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket/redis"
)

// Adaptive has rates follow an API that is well and slow in turns. They are never raised above what rules say, so that
// all promises are what they are without.
type Adaptive struct {
	Floor int           // in 1024ths; a gateway has another one, above it, in each turn
	Turn  time.Duration // how long the API is as it is
	Alone bool          // each gateway sees it in its own way
}

func (a *Adaptive) String() string {
	return fmt.Sprintf("floor %.2f, turns of %v, each gateway sees it alone: %v", float64(a.Floor)/adaptive.Whole,
		a.Turn, a.Alone)
}

// drawAdaptive is for a third of the plans, beside what is drawn for all of them.
func drawAdaptive(seed uint64) *Adaptive {
	r := rand.New(rand.NewPCG(seed, 8))
	if r.IntN(3) > 0 {
		return nil
	}
	return &Adaptive{
		Floor: 1 + r.IntN(adaptive.Whole/2),
		Turn:  time.Duration(1+r.IntN(4)) * time.Second,
		Alone: r.IntN(2) == 0,
	}
}

const (
	objective = 200 * time.Millisecond
	seen      = 100 * time.Millisecond // how often a gateway sees answers of ten callers
	agrees    = time.Second            // how often it tells others what it makes of them
)

// took is what an answer takes in a turn, as a gateway sees it.
func (w *world) took(slot int, turn uint64) time.Duration {
	of := uint64(0)
	if w.plan.Adaptive.Alone {
		of = uint64(slot) + 1
	}
	r := rand.New(rand.NewPCG(w.plan.Seed, turn<<8|of))
	return [...]time.Duration{objective / 4, objective / 4, objective * 7 / 10, 2 * objective}[r.IntN(4)]
}

// follow has a gateway see the API, and agree with the others on what to make of it, until ctx ends, or faults are
// over: from then on rates are what rules say.
func (w *world) follow(ctx context.Context, g *gateway, notices *redis.Notices) {
	a, last, told := w.plan.Adaptive, uint64(0), w.now()
	for ctx.Err() == nil {
		g.wire.awake()
		now := g.clock.Now()
		if w.now() >= memberTTL+chaos {
			g.table.Use(nil, now)
			return
		}
		turn := uint64(w.now() / a.Turn)
		if turn != last || !g.table.Any() {
			last = turn
			r := rand.New(rand.NewPCG(w.plan.Seed, turn<<8|uint64(g.slot)))
			s := adaptive.Settings{SLO: objective, Floor: a.Floor + r.IntN(adaptive.Whole-a.Floor+1)/2}
			g.table.Use(map[string]adaptive.Settings{bucketNames[0]: s, bucketNames[1]: s}, now)
		}
		took := w.took(g.slot, turn)
		for _, name := range bucketNames[:len(targets)] {
			e := g.table.Named(name)
			for caller := range uint64(10) {
				e.Sent(now, caller)
				e.Answered(now, caller, took, false)
			}
			if s := e.Status(now); s.Multiplier < s.Settings.Floor || s.Multiplier > adaptive.Whole ||
				s.Agreed < s.Settings.Floor || s.Agreed > adaptive.Whole {
				w.broken("safety", "at %.3fs gateway %d lowers %s to %+v", w.now().Seconds(), g.slot, name, s)
			}
		}
		if w.now()-told >= agrees {
			told = w.now()
			within, cancel := context.WithTimeout(ctx, agrees)
			others, err := notices.Exchange(within, g.table.Tell(now))
			cancel()
			if err == nil {
				if unread := g.table.Hear(g.clock.Now(), others); unread > 0 {
					w.broken("safety", "at %.3fs gateway %d cannot read what %d others say", w.now().Seconds(), g.slot,
						unread)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(seen):
		}
	}
}
