package simulate

import "time"

// Link is a way through the network, of messages in one direction or both. Messages may overtake each other.
type Link struct {
	World *World

	// A message takes from Delay to Delay + Jitter, and is lost with probability Loss, 0 to 1.
	Delay, Jitter time.Duration
	Loss          float64

	// Cut loses every message that is sent, as a network does that has come apart.
	Cut bool

	Sent, Lost int
}

// Send has arrive happen at the other end, unless the message is lost.
func (l *Link) Send(arrive func()) {
	l.Sent++
	if l.Cut || l.Loss > 0 && l.World.Rand.Float64() < l.Loss {
		l.Lost++
		return
	}
	l.World.After(l.World.Between(l.Delay, l.Delay+l.Jitter), arrive)
}
