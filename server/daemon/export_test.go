package daemon

import "time"

// Envelopes is envelopes, for tests.
var Envelopes = envelopes

// LentEnvelopes is lentEnvelopes, for tests.
var LentEnvelopes = lentEnvelopes

// Faulty is faulty, for tests.
var Faulty = faulty

// UnderWay is how many requests have a reservation.
func UnderWay(d *Daemon) int { return d.parts.limiter.Reservations().Outstanding }

// By is o with decisions by a clock of the test's.
func By(o Options, now func() time.Time) Options {
	o.now = now
	return o
}
