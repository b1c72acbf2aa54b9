package pace

import (
	"math"
	"time"
)

// UB is exponential backoff with full jitter, without a limit on attempts: the
// baseline of the paper. After the n-th refusal of a request it waits a random time
// between 0.1 s and min(2^n - 1, c) seconds, where c is drawn from [30, 34) once.
type UB struct{}

// Start implements [Algorithm].
func (UB) Start(_ time.Duration, random func() float64) Pacer {
	return &ub{random: random, longest: between(random, 30*time.Second, 34*time.Second)}
}

type ub struct {
	random  func() float64
	longest time.Duration
	until   time.Duration // nothing is sent before
}

func (p *ub) Next(time.Duration) time.Duration { return p.until }
func (p *ub) Sent(time.Duration)               {}
func (p *ub) Accepted(time.Duration, Hint)     {}
func (p *ub) Concurrent() int                  { return 1 }
func (p *ub) Rate() float64                    { return 0 }
func (p *ub) Mode(time.Duration) string        { return "backoff" }
func (p *ub) Refused(now time.Duration, n int, _ Hint) {
	bound := p.longest
	if n < 6 { // 2^6 - 1 is beyond every longest
		bound = min(bound, time.Duration(1<<n-1)*time.Second)
	}
	p.until = now + between(p.random, 100*time.Millisecond, bound)
}

// WB is UB with a window besides: at most PerMinute in any 60 seconds.
type WB struct {
	// PerMinute is required: 15, 40 and 4 in the paper's three settings.
	PerMinute int

	// Profile says what is counted: attempts as the paper's text has it
	// (Published), or successes alone as the published code does (Reference and
	// Corrected: its figures can only be reproduced this way).
	Profile Profile
}

// Start implements [Algorithm].
func (a WB) Start(now time.Duration, random func() float64) Pacer {
	return &wb{
		ub:     UB{}.Start(now, random).(*ub),
		counts: a.Profile == Published,
		last:   newRing(max(1, a.PerMinute)),
	}
}

type wb struct {
	*ub
	counts bool // attempts, not successes
	last   ring
}

func (p *wb) Next(now time.Duration) time.Duration {
	at := p.ub.Next(now)
	if oldest, full := p.last.oldest(); full {
		at = max(at, oldest+time.Minute)
	}
	return at
}

func (p *wb) Sent(now time.Duration) {
	if p.counts {
		p.last.add(now)
	}
}

func (p *wb) Accepted(now time.Duration, _ Hint) {
	if !p.counts {
		p.last.add(now)
	}
}

// ring holds the last times of something, at most as many as it was made for.
type ring struct {
	times []time.Duration
	next  int
	full  bool
}

func newRing(size int) ring { return ring{times: make([]time.Duration, size)} }

func (r *ring) add(t time.Duration) {
	r.times[r.next] = t
	r.next++
	if r.next == len(r.times) {
		r.next, r.full = 0, true
	}
}

// oldest returns the earliest of the times, if there are as many as fit.
func (r *ring) oldest() (time.Duration, bool) { return r.times[r.next], r.full }

// Profile says which reading of the paper an algorithm follows, where its text,
// its listings and its published code differ.
type Profile uint8

const (
	// Corrected is what reproduces the paper's figures, without the faults of its
	// code.
	Corrected Profile = iota
	// Published is the text of the paper, to the letter.
	Published
	// Reference is what the paper's published code does.
	Reference
)

// Paper is one of the three settings of the paper's Table V.
type Paper struct {
	Name             string
	PerMinute        int     // W of WB; B and, per minute, r0 of ATB and AATB
	InitialCongested float64 // c0 of ATB, per minute
}

// Papers returns the settings: real (a trace of 18 to 27 clients), 5 and 100
// clients.
func Papers() []Paper {
	return []Paper{{"paper-real", 15, 30}, {"paper-5", 40, 300}, {"paper-100", 4, 12}}
}

// WB returns window-based backoff with these settings.
func (p Paper) WB(profile Profile) WB { return WB{PerMinute: p.PerMinute, Profile: profile} }

// ATB returns the adaptive token bucket with these settings.
func (p Paper) ATB(profile Profile) ATB {
	return ATB{
		Bucket: float64(p.PerMinute), Rate: float64(p.PerMinute) / 60, Congested: p.InitialCongested / 60,
		MaxRate: math.Inf(1), Profile: profile,
	}
}

// AATB returns the assisted adaptive token bucket with these settings.
func (p Paper) AATB(profile Profile) AATB {
	return AATB{
		Bucket: float64(p.PerMinute), Rate: float64(p.PerMinute) / 60, MaxRate: math.Inf(1), Profile: profile,
	}
}
