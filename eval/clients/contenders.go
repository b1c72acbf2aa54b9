package main

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// constant pauses the queue for the same time after every refusal: what every proposal has
// to be better than.
type constant struct{ pause time.Duration }

// ranged is the first form of [pace.AP]: its pause is between 30 and 90 s, and is halved when more
// than 16 requests were served since the one before. It suits buckets that take longer than a
// minute to fill, and no others.
type ranged struct{}

// Start implements [pace.Algorithm].
func (ranged) Start(_ time.Duration, random func() float64) pace.Pacer {
	return &ranging{waiting: waiting{pause: time.Minute, random: random}, served: -1}
}

type ranging struct {
	waiting
	served int // since the last refusal, below 0 before the first
}

func (p *ranging) Accepted(time.Duration, pace.Hint) {
	if p.served >= 0 {
		p.served++
	}
}

func (p *ranging) Refused(now time.Duration, _ int, _ pace.Hint) {
	switch {
	case p.served == 0:
		p.pause = min(90*time.Second, 2*p.pause)
	case p.served > 16:
		p.pause = max(30*time.Second, p.pause/2)
	}
	p.served = 0
	p.until = now + time.Duration(float64(p.pause)*(0.8+0.4*p.random()))
}

// obedient comes when the server says, and up to a second later.
type obedient struct{}

// Start implements [pace.Algorithm].
func (a constant) Start(time.Duration, func() float64) pace.Pacer { return &waiting{pause: a.pause} }

// Start implements [pace.Algorithm].
func (obedient) Start(_ time.Duration, random func() float64) pace.Pacer {
	return &waiting{backoff: pace.UB{}.Start(0, random), random: random}
}

type waiting struct {
	pause   time.Duration
	backoff pace.Pacer // where the server says nothing
	random  func() float64
	until   time.Duration
}

func (p *waiting) Next(time.Duration) time.Duration  { return p.until }
func (p *waiting) Sent(time.Duration)                {}
func (p *waiting) Accepted(time.Duration, pace.Hint) {}
func (p *waiting) Concurrent() int                   { return 1 }
func (p *waiting) Rate() float64                     { return 0 }
func (p *waiting) Mode(time.Duration) string         { return "pause" }
func (p *waiting) Refused(now time.Duration, n int, h pace.Hint) {
	switch {
	case p.backoff == nil:
		p.until = now + p.pause
	case h.Wait > 0: // as Retry-After has it: whole seconds
		wait := (h.Wait + time.Second - 1).Truncate(time.Second)
		p.until = now + wait + time.Duration(p.random()*float64(time.Second))
	default:
		p.backoff.Refused(now, n, h)
		p.until = p.backoff.Next(now)
	}
}

// scenario is one of the paper's settings.
type scenario struct {
	name     string
	workload func(random *rand.Rand, requests int) workload
	paper    pace.Paper
}

func scenarios() []scenario {
	papers := pace.Papers()
	return []scenario{
		{"5 clients", func(r *rand.Rand, n int) workload { return bursty(r, 5, n, 100, 300*time.Millisecond) },
			papers[1]},
		{"100 clients", func(r *rand.Rand, n int) workload { return bursty(r, 100, n, 5, 3*time.Second) }, papers[2]},
		{"stand-in for the log", trace, papers[0]},
		{"5 clients, uniform", func(r *rand.Rand, n int) workload { return uniform(r, 5, n) }, papers[1]},
		{"100 clients, uniform", func(r *rand.Rand, n int) workload { return uniform(r, 100, n) }, papers[2]},
	}
}

// loads are how many requests there are in a run.
var loads = []int{400, 500, 600, 700, 800}

// contender is an algorithm and what it can rely on.
type contender struct {
	name      string
	algorithm pace.Algorithm // nil: the oracle
	says      speech
	telemetry bool
}

func contenders(s scenario, profile pace.Profile) []contender {
	return []contender{
		{name: "UB", algorithm: pace.UB{}},
		{name: "WB", algorithm: s.paper.WB(profile)},
		{name: "ATB", algorithm: s.paper.ATB(profile)},
		{name: "AATB", algorithm: s.paper.AATB(profile), telemetry: true},
		{name: "pause 60 s", algorithm: constant{time.Minute}},
		{name: "AP of 30 to 90 s", algorithm: ranged{}},
		{name: "AP", algorithm: pace.AP{}},
		{name: "XATB", algorithm: pace.XATB{}, telemetry: true},
		{name: "obeys, truth", algorithm: obedient{}, says: truth},
		{name: "obeys, spaced", algorithm: obedient{}, says: spaced},
		{name: "obeys, reserved", algorithm: obedient{}, says: reserved},
		{name: "HATB", algorithm: pace.HATB{}, says: reserved},
		{name: "Auto, no server", algorithm: pace.Auto{}, telemetry: true},
		{name: "oracle"},
	}
}

func contenderNamed(s scenario, name string) contender { return contenderIn(s, name, pace.Corrected) }

func contenderIn(s scenario, name string, profile pace.Profile) contender {
	for _, c := range contenders(s, profile) {
		if c.name == name {
			return c
		}
	}
	panic("no contender " + name)
}
