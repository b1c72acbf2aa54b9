package rate

import "time"

// Seconds is d in whole seconds, rounded up: a client told to come too early is
// refused twice.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 { // not added before, as d may be the longest there is
		s++
	}
	return s
}
