package pace

import "time"

// Auto obeys what the server says, as far as that can be relied on, and otherwise
// is [AP]:
//
//   - A time that the server reserved for this client, or spaced from the times that
//     it gives others (marked by the parameter slot of RateLimit), is kept to the
//     millisecond.
//   - Any other time is a lower bound of the pause: a server that tells every client
//     of one quota when its next token comes makes them all come at that time.
type Auto struct {
	// Pause is used where the server gives no time.
	Pause AP

	// Jitter is the most that is added to a reserved time. Default 50 ms; negative
	// adds nothing.
	Jitter time.Duration
}

// Start implements [Algorithm].
func (a Auto) Start(now time.Duration, random func() float64) Pacer {
	switch {
	case a.Jitter == 0:
		a.Jitter = 50 * time.Millisecond
	case a.Jitter < 0:
		a.Jitter = 0
	}
	return &auto{jitter: a.Jitter, random: random, pause: a.Pause.Start(now, random).(*ap)}
}

type auto struct {
	jitter time.Duration
	random func() float64
	pause  *ap
	until  time.Duration // by the server
	empty  bool          // the server said that nothing is left
}

func (p *auto) Next(now time.Duration) time.Duration { return max(p.until, p.pause.Next(now)) }

func (p *auto) Sent(now time.Duration) { p.pause.Sent(now) }

func (p *auto) Accepted(now time.Duration, h Hint) {
	p.pause.Accepted(now, h)
	p.empty = h.Empty()
	if p.empty && h.Slot && h.Wait > 0 {
		p.until = p.kept(now, h)
	}
}

func (p *auto) Refused(now time.Duration, n int, h Hint) {
	if h.Slot && h.Wait > 0 {
		p.empty = true
		p.until = p.kept(now, h)
		return
	}
	p.pause.Refused(now, n, h)
	if h.Wait > 0 {
		p.until = max(p.until, now+h.Wait)
	}
}

// kept is when a reserved time begins. The server counted from when it answered.
func (p *auto) kept(now time.Duration, h Hint) time.Duration {
	return now - h.RoundTrip/2 + h.Wait + between(p.random, 0, p.jitter)
}

func (p *auto) Concurrent() int {
	if p.empty {
		return 1
	}
	return p.pause.Concurrent()
}
