package revert

import "time"

// Settings say when a change is taken back. All are required.
type Settings struct {
	// Share is the part of an endpoint's requests, in percent, above which its
	// 429s are the change's fault. Lower takes back what was meant; higher lets
	// more callers suffer.
	Share int64

	// For is how long they must be above it: in every fifth of it.
	For time.Duration

	// MinRequests is how many requests must have come in that time.
	MinRequests int64

	// MinCallers is how many callers must be turned away. The share is taken
	// without the requests of the MinCallers-1 that are turned away most.
	MinCallers int

	// Watch is how long after a change its endpoints are looked at.
	Watch time.Duration
}

// parts is in how many parts For is looked at. More parts find out sooner that
// an endpoint has recovered, and make endpoints with few requests look as if
// they had.
const parts = 5

// Part is the time between two looks.
func (s Settings) Part() time.Duration { return s.For / parts }

// above reports whether a count is above the share.
func (s Settings) above(c Count) bool { return c.Denied*100 > s.Share*c.Total }

// Count is how many requests an endpoint had, and how many of them were answered
// 429.
type Count struct{ Total, Denied int64 }

// Percent is the share of those answered 429.
func (c Count) Percent() float64 {
	if c.Total == 0 {
		return 0
	}
	return 100 * float64(c.Denied) / float64(c.Total)
}

func (c Count) plus(d Count) Count { return Count{c.Total + d.Total, c.Denied + d.Denied} }
