// Package adaptive lowers the rates of an endpoint while the API behind is slow or fails, and raises them again when
// it is well: a multiplier of what the rules say, between a floor and 1.
//
//	request is sent, answered ──▶ Endpoint: a window of a second ──▶ Judge ──▶ multiplier ──▶ rate.Lowered ──▶ buckets
//
// At the end of a window with fifty answers or more, by what callers saw:
//
//	the 95th percentile above the objective      m = 0.9 m, or so much less as fewer were answered than sent
//	above 0.6 of it, or more than 5 % failed     m = 0.9 m
//	else, and callers were refused for m         m = m + 0.02
//	else                                         m stays: what nobody asks for needs no more room
//
// Additive increase and multiplicative decrease lead several gateways before one API to fair parts of it (Chiu and
// Jain, 1989). With fewer answers a window lasts longer, up to ten times; of one that has too few even so, nothing is
// known: m is frozen, and then returns to 1 within a minute. What was sent and is not answered within the objective
// counts as slow, so an API that has stopped is no silence.
//
// # One caller is one voice
//
// A percentile over all answers is what the busiest caller says: it asks for what is slow, and has everybody limited.
// Here each caller has a percentile of its own, and what counts is their median, so that it takes half of the callers.
// The same goes for failures: they count if more than 5 % of the answers are, for most callers. Where callers get few
// answers, that takes more of them: with two each, a third. Of more than MaxCallers, a random sample is heard, of which
// no one knows who is in it. Memory is the same for any number of callers and answers: 3 KiB an endpoint.
//
// # Bounds
//
// Rates are lowered, never raised above what the rules say, and bursts are left alone: every bound on what rules admit
// holds as it is. Time is an argument of every method, in nanoseconds that never step (Unix nanoseconds, but nothing
// depends on it). If it steps back all the same, a window begins anew.
package adaptive
