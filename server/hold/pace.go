package hold

import "time"

// Pace is how fast a client has to be while a server waits for it.
type Pace struct {
	Patience time.Duration // what a client may be behind
	MinRate  int64         // bytes a second that keep it from falling behind
}

// Spend returns what is left of a client's time after it was waited for, when it
// moved so many bytes meanwhile. It is never more than Patience: nobody saves up
// time by having been quick. 0 or less means that the client is too slow.
func (p Pace) Spend(left, waited time.Duration, bytes int64) time.Duration {
	left -= waited
	// Beyond what Patience is worth, bytes earn nothing more; so nothing overflows.
	if worth := p.Patience.Seconds() * float64(p.MinRate); float64(bytes) >= worth {
		return min(p.Patience, max(left, 0)+p.Patience)
	}
	return min(p.Patience, left+time.Duration(float64(bytes)/float64(p.MinRate)*float64(time.Second)))
}
