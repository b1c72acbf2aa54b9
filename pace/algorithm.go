package pace

import "time"

// Algorithm decides how a client paces itself. [Auto], [HATB], [XATB], [AP], [UB],
// [WB], [ATB] and [AATB] are the algorithms there are.
type Algorithm interface {
	// Start returns the state of one client at one quota, at the moment now.
	// random returns numbers in [0, 1).
	Start(now time.Duration, random func() float64) Pacer
}

// Pacer is the state of an [Algorithm]. Its methods are not safe for concurrent
// use. Times are readings of one monotonic clock, from any origin.
type Pacer interface {
	// Next returns when the next attempt may be sent: now or earlier means at once.
	Next(now time.Duration) time.Duration

	// Sent notes that an attempt is sent.
	Sent(now time.Duration)

	// Accepted notes that the server served an attempt.
	Accepted(now time.Duration, h Hint)

	// Refused notes that the server refused an attempt because of a limit. It was
	// the n-th attempt of its request, the first being 1.
	Refused(now time.Duration, n int, h Hint)

	// Concurrent returns how many attempts may be unanswered at once, 0 for any
	// number.
	Concurrent() int

	// Rate returns the rate that is kept to, in requests a second, 0 if there is none.
	Rate() float64

	// Mode says in a word what is relied on: "hints" of the server, "shared" by
	// telemetry, a "rate" of its own, a "pause" after refusals, or "backoff" of each
	// request.
	Mode(now time.Duration) string
}

// between returns a random duration in [low, high).
func between(random func() float64, low, high time.Duration) time.Duration {
	return low + time.Duration(random()*float64(high-low))
}

// longest can still be added to a clock reading.
const longest = 100 * 365 * 24 * time.Hour

// seconds converts a number of seconds, at most longest.
func seconds(s float64) time.Duration {
	if s >= longest.Seconds() {
		return longest
	}
	return time.Duration(s * float64(time.Second))
}
