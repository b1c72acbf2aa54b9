package pace

import "time"

// HATB is a bucket that the server hints at: it obeys what the server says, as far as
// that can be relied on.
//
//   - A time that the server reserved for this client, or spaced from the times that
//     it gives others (marked by the parameter headgate-slot of RateLimit), is kept to
//     the millisecond.
//   - Any other time is a lower bound of the pause: a server that tells every client
//     of one quota when its next token comes makes them all come at that time.
//   - Where the server says nothing, it is [AP].
//
// [Transport] tells a server that reserves how many requests wait, so that it can
// reserve a time for the next one when it serves one.
type HATB struct {
	// Pause is used where the server gives no time.
	Pause AP

	// Jitter is the most that is added to a time of the server. Default 50 ms;
	// negative adds nothing.
	Jitter time.Duration

	// Distrust, if set, takes reserved times as lower bounds too: for servers whose
	// marks may be forged on their way.
	Distrust bool
}

// Start implements [Algorithm].
func (a HATB) Start(now time.Duration, random func() float64) Pacer {
	return a.over(a.Pause.Start(now, random), now, random)
}

// over is a with another algorithm's pacer for where the server gives no time.
func (a HATB) over(otherwise Pacer, now time.Duration, random func() float64) *hatb {
	switch {
	case a.Jitter == 0:
		a.Jitter = 50 * time.Millisecond
	case a.Jitter < 0:
		a.Jitter = 0
	}
	return &hatb{HATB: a, random: random, otherwise: otherwise, marked: now - longest, most: 1}
}

type hatb struct {
	HATB
	random    func() float64
	otherwise Pacer
	until     time.Duration // by the server
	most      int           // requests that may be unanswered at once as far as the server says, 0 for any number
	marked    time.Duration // when it last gave a time that can be relied on
	window    time.Duration // of the quota, as far as the server says
	held      bool          // since then a request was refused without one
}

// hinted reports whether the server's times alone are obeyed: it gave one within two
// windows of the quota, and none of its refusals was without one since.
func (p *hatb) hinted(now time.Duration) bool {
	window := p.window
	if window == 0 {
		window = time.Minute
	}
	return !p.held && now-p.marked <= 2*window
}

func (p *hatb) Next(now time.Duration) time.Duration {
	if p.hinted(now) {
		return max(now, p.until)
	}
	return max(p.until, p.otherwise.Next(now))
}

func (p *hatb) Sent(now time.Duration) { p.otherwise.Sent(now) }

// relied reports whether a hint has a time that can be relied on.
func (p *hatb) relied(h Hint) bool { return h.Slot && h.Wait > 0 && !p.Distrust }

func (p *hatb) Accepted(now time.Duration, h Hint) {
	p.otherwise.Accepted(now, h)
	p.most = 0
	if h.Remaining >= 0 {
		p.most = int(max(1, min(h.Remaining, 1<<20)))
	}
	if h.Empty() && h.Wait > 0 {
		p.until = max(p.until, p.kept(now, h))
		p.mark(now, h)
	}
}

func (p *hatb) Refused(now time.Duration, n int, h Hint) {
	if p.relied(h) {
		p.most = 1
		p.until = max(p.until, p.kept(now, h))
		p.mark(now, h)
		return
	}
	p.held = true
	p.otherwise.Refused(now, n, h)
	if h.Wait > 0 {
		p.until = max(p.until, now+h.Wait)
	}
}

func (p *hatb) mark(now time.Duration, h Hint) {
	if p.relied(h) {
		p.marked, p.held = now, false
	}
	if full := h.FullIn(); full > 0 {
		p.window = min(full, time.Hour)
	}
}

// slowest is how long a request is believed to take to the limiter, at most.
const slowest = time.Second

// kept is when a time of the server begins. It counts from when the limiter decided: a moment of
// the round trip that nobody knows here. Who comes too early is refused, and who comes a little
// later loses nothing, as a time is kept for some seconds; so it is taken to be the end of the
// round trip. Of a long one most is what the server behind the limiter took.
func (p *hatb) kept(now time.Duration, h Hint) time.Duration {
	return now - max(0, h.RoundTrip-slowest) + h.Wait + between(p.random, 0, p.Jitter)
}

// Concurrent is 1 until the server has said something: what it has left is not known, and all
// that wait would be refused together.
func (p *hatb) Concurrent() int {
	most := p.otherwise.Concurrent()
	if p.most > 0 && (most == 0 || p.most < most) {
		return p.most
	}
	return most
}

// Mode implements [Pacer].
func (p *hatb) Mode(now time.Duration) string {
	if p.hinted(now) {
		return "hints"
	}
	return p.otherwise.Mode(now)
}

// Rate implements [Pacer].
func (p *hatb) Rate() float64 { return p.otherwise.Rate() }
