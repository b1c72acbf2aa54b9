package main

import (
	"math/rand/v2"
	"time"
)

// Everybody has the same limit.
const (
	perSecond = 1
	burst     = 60
)

// attack is a population of clients on a simulated clock. Its owner wants tokens that are not his,
// or wants others to go without: he has keys of his own that he keeps drained, and as many keys as
// he likes that are used once; a table of fixed size has to forget somebody.
type attack struct {
	name   string
	junk   float64 // one-shot keys a second, relative to the slots
	pinned float64 // keys kept drained, relative to the slots
}

// attacks are those of the page.
var attacks = []attack{
	{"nobody attacks", 0, 0},
	{"one-shot keys, 0.06 of the slots a second", 0.06, 0},
	{"one-shot keys, 0.3 of the slots a second", 0.3, 0},
	{"one-shot keys, 3 times the slots a second", 3, 0},
	{"0.5 of the slots kept drained", 0.06, 0.5},
	{"0.85 of the slots kept drained", 0.06, 0.85},
	{"1.2 times the slots kept drained", 0.06, 1.2},
	{"2.4 times the slots kept drained", 0.06, 2.4},
}

// periods are how long targets pause between two attempts at their whole burst. The best pause
// depends on how soon a table forgets, so the attacker tries several, and what counts is the best
// of them.
var periods = []time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 10 * time.Second,
	20 * time.Second}

const targetsEach = 2 // of every period

// outcome is what an attack brought, and what it cost others.
type outcome struct {
	target, pinned float64 // tokens admitted of the key that got most, relative to its own limit: burst + rate·time

	victims, newcomers tally // takes of keys at half of their rate; first takes of keys never seen
	attempts           int
	lossy              float64 // buckets a second that were evicted in debt; -1 if the store does not tell
}

type tally struct{ takes, denied int }

func (t *tally) add(allowed bool) {
	t.takes++
	if !allowed {
		t.denied++
	}
}

// share is how many were denied.
func (t tally) share() float64 { return float64(t.denied) / float64(max(1, t.takes)) }

// kind is who makes an attempt.
type kind uint8

const (
	target kind = iota
	pinned
	victim
	newcomer
	junk
)

// attempt is one take by the n-th of a kind.
type attempt struct {
	kind kind
	n    uint32
}

// id names the key of a client.
func (a attempt) id() uint64 { return uint64(a.kind)<<56 | uint64(a.n) }

const tick = 10 * time.Millisecond

// population is an attack at work.
type population struct {
	attack
	slots     int
	rng       *rand.Rand
	admitted  [2][]int64 // of every target, of every pinned key
	strangers [2]uint32  // newcomers and junk so far
	due       [2]float64 // newcomers and junk whose time has come but for a fraction
	now       []attempt  // those of this tick
}

// run lets the attack go on for span against a store of so many slots.
func (a attack) run(s store, slots int, span time.Duration) outcome {
	p := &population{attack: a, slots: slots, rng: rand.New(rand.NewPCG(7, 11))}
	p.admitted[target] = make([]int64, targetsEach*len(periods))
	p.admitted[pinned] = make([]int64, int(a.pinned*float64(slots)))

	var o outcome
	for t := range int(span / tick) {
		p.gather(t)
		p.rng.Shuffle(len(p.now), func(i, j int) { p.now[i], p.now[j] = p.now[j], p.now[i] })
		for i, a := range p.now {
			at := time.Duration(t)*tick + tick*time.Duration(i)/time.Duration(len(p.now))
			allowed := s.take(at, a.id())
			switch {
			case a.kind == victim:
				o.victims.add(allowed)
			case a.kind == newcomer:
				o.newcomers.add(allowed)
			case a.kind <= pinned && allowed:
				p.admitted[a.kind][a.n]++
			}
		}
		o.attempts += len(p.now)
	}
	limit := burst + perSecond*span.Seconds()
	o.target, o.pinned = most(p.admitted[target])/limit, most(p.admitted[pinned])/limit
	o.lossy = -1
	if n := s.evictedInDebt(); n >= 0 {
		o.lossy = float64(n) / span.Seconds()
	}
	return o
}

// gather lists the attempts of tick t.
func (p *population) gather(t int) {
	p.now = p.now[:0]
	for i := range p.admitted[target] {
		if (t+7*i)%ticks(periods[i%len(periods)]) == 0 {
			p.repeat(attempt{target, uint32(i)}, burst)
		}
	}
	// Pinned keys are drained in the first half second; then each tries twice a second, twice of what it is due.
	every := ticks(time.Second / 2)
	for n := (every - t%every) % every; n < len(p.admitted[pinned]); n += every {
		times := 1
		if t < every {
			times = burst
		}
		p.repeat(attempt{pinned, uint32(n)}, times)
	}
	// Victims are one for eighty slots, each at half of its rate.
	every = ticks(2 * time.Second)
	for n := (every - t%every) % every; n < p.slots/80; n += every {
		p.repeat(attempt{victim, uint32(n)}, 1)
	}
	p.arrive(0, newcomer, float64(p.slots)/800)
	p.arrive(1, junk, p.junk*float64(p.slots))
}

func (p *population) repeat(a attempt, times int) {
	for range times {
		p.now = append(p.now, a)
	}
}

// arrive brings keys that were never seen.
func (p *population) arrive(i int, k kind, perSecond float64) {
	for p.due[i] += perSecond * tick.Seconds(); p.due[i] >= 1; p.due[i]-- {
		p.now = append(p.now, attempt{k, p.strangers[i]})
		p.strangers[i]++
	}
}

func ticks(d time.Duration) int { return int(d / tick) }

func most(counts []int64) float64 {
	found := int64(0)
	for _, n := range counts {
		found = max(found, n)
	}
	return float64(found)
}
