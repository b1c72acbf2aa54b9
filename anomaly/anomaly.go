// Package anomaly gives callers a score, from 0 to 100, by what they did of late. It is the sum of five parts, each
// with a name and a number behind it, so that nobody has to believe it:
//
//	rate       it makes more requests than it usually does
//	endpoints  its requests go to endpoints that it did not ask for before
//	errors     its requests are answered with 4xx
//	unknown    its requests match no endpoint
//	spellings  its requests are spelled as no client needs to spell them (endpoint.Disguised)
//
// Time is cut into windows, of five minutes for one. What counts is this window, and of the one before as much as is
// left of this one:
//
//	        window 7          window 8                    window 8 is over for three quarters:
//	├─────────────────┼────────────┬─────┤                what counts is its 30 answers, and a
//	  40 answers, 4 of   30 answers,│now                  quarter of the 40 before: 12 of 40
//	  them errors        11 errors  │                      were errors
//
// So whatever a caller did is forgotten after two windows, and a caller that stops is back at 0. What it usually does
// is the mean of the windows in which it did anything: nights and weekends say nothing.
//
// A [Table] only counts. What follows from a score, others say: [Settings.TierOf].
package anomaly

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Part is one part of a score.
type Part uint8

// The parts. The numbers behind them are of an Account.
const (
	Rate      Part = iota // Sent, from 2 to 10 times Usual
	Endpoints             // Fresh, from 30 to 80 percent of Asked
	Errors                // Errors, from 20 to 80 percent of Answers
	Unknown               // Unknown, from 10 to 50 percent of Asked
	Spellings             // Disguised, from 10 to 50 percent of Asked

	// Parts is how many there are.
	Parts = 5
)

var partNames = [Parts]string{"rate", "endpoints", "errors", "unknown", "spellings"}

// String reports the name of a part, "rate".
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return "Part(" + strconv.Itoa(int(p)) + ")"
}

// Score is how unlike a usual caller one is, 0 to 100. The zero Score is that of a caller of whom too little is known.
type Score struct {
	Known bool  // there is one: the caller was there in an earlier window
	Total uint8 // the sum of Parts, 100 at most
	Parts [Parts]uint8
}

// Account is what a score is made of. Counts are of the windows that count, in requests.
type Account struct {
	Score Score

	Sent  float64 // requests, those that were denied among them
	Usual float64 // requests in a window, of the windows before; see Windows

	Asked     float64 // requests that no limit denied
	Fresh     float64 // of those, to an endpoint that it had asked for neither in this window nor in the one before
	Unknown   float64 // of those, that match no endpoint
	Disguised float64 // of those, that are spelled as no client needs to

	Answers float64 // of the API, to requests that match an endpoint
	Errors  float64 // of those, with a status of 4xx but 429

	// Windows is how many windows Usual is the mean of, as one forgets the oldest. Rate is no part of the score below
	// Learning.
	Windows int
}

// The bounds of a score's making.
const (
	// Least is how many requests or answers a share is a share of at least, so that a few say little.
	Least = 20

	// Learning is how many windows with requests there are before a caller has a usual rate, and Memory how many
	// that is the mean of.
	Learning = 6
	Memory   = 64

	// LeastUsual is the usual rate of whoever has less, in requests a window.
	LeastUsual = 10
)

// DefaultWeights are the most points of each part. No part alone makes 70, any two of the heavier ones do.
var DefaultWeights = [Parts]uint8{Rate: 40, Endpoints: 20, Errors: 40, Unknown: 40, Spellings: 40}

// Tier has callers with a score pay by the rules of a tier as well.
type Tier struct {
	From uint8  // the least score, 1 to 100
	Name string // of the tier

	// Addresses says that callers without a verified credential do too, who may be many behind one address.
	Addresses bool
}

// MaxTiers is how many tiers Settings may have.
const MaxTiers = 8

// Settings say how scores are made. They do not change once they are in use.
type Settings struct {
	Window  time.Duration // 1 s to 24 h
	Weights [Parts]uint8  // the most points of each part, 0 to 100
	Tiers   []Tier        // by From, ascending
}

// Check reports what is wrong with s, all of it.
func (s *Settings) Check() error {
	var errs []error
	if s.Window < time.Second || s.Window > 24*time.Hour {
		errs = append(errs, fmt.Errorf("Window is %v, want 1s to 24h", s.Window))
	}
	for p, w := range s.Weights {
		if w > 100 {
			errs = append(errs, fmt.Errorf("Weights[%v] is %d, want 0 to 100", Part(p), w))
		}
	}
	if len(s.Tiers) > MaxTiers {
		errs = append(errs, fmt.Errorf("Tiers has %d, want %d at most", len(s.Tiers), MaxTiers))
	}
	for i, t := range s.Tiers {
		switch {
		case t.From < 1 || t.From > 100:
			errs = append(errs, fmt.Errorf("Tiers[%d].From is %d, want 1 to 100", i, t.From))
		case i > 0 && t.From <= s.Tiers[i-1].From:
			errs = append(errs, fmt.Errorf("Tiers[%d].From is %d, want more than %d, the one before", i, t.From,
				s.Tiers[i-1].From))
		}
		if t.Name == "" {
			errs = append(errs, fmt.Errorf("Tiers[%d].Name is empty, want a tier", i))
		}
	}
	return errors.Join(errs...)
}

// TierOf is the tier by whose rules a caller pays as well: that of the highest From that its score has; false for
// none.
func (s *Settings) TierOf(score Score, verified bool) (Tier, bool) {
	for i := len(s.Tiers) - 1; i >= 0; i-- {
		if t := &s.Tiers[i]; score.Total >= t.From && (verified || t.Addresses) {
			return *t, true
		}
	}
	return Tier{}, false
}

// one is a request in the units that counts are kept in, so that part of a window can count.
const one = 1 << 10

// counts are those of an Account, in units.
type counts struct{ sent, asked, fresh, unknown, disguised, answers, errors int64 }

// score makes one of what a caller did and usually does.
func (c *counts) score(usual int64, windows int, w *[Parts]uint8) (s Score) {
	s.Known = windows > 0
	if !s.Known {
		return s
	}
	if windows >= Learning {
		base := max(usual, LeastUsual*one)
		s.Parts[Rate] = ramp(w[Rate], c.sent, 2*base, 10*base)
	}
	s.Parts[Endpoints] = share(w[Endpoints], c.fresh, c.asked, 30, 80)
	s.Parts[Errors] = share(w[Errors], c.errors, c.answers, 20, 80)
	s.Parts[Unknown] = share(w[Unknown], c.unknown, c.asked, 10, 50)
	s.Parts[Spellings] = share(w[Spellings], c.disguised, c.asked, 10, 50)
	sum := 0
	for _, points := range s.Parts {
		sum += int(points)
	}
	s.Total = uint8(min(sum, 100))
	return s
}

// share is the points for some of all, from so many percent of all to so many.
func share(weight uint8, some, all, from, to int64) uint8 {
	all = max(all, Least*one)
	return ramp(weight, 100*some, from*all, to*all)
}

// ramp is no points up to from, weight of them from to on, and in between in proportion.
func ramp(weight uint8, x, from, to int64) uint8 {
	switch {
	case x <= from:
		return 0
	case x >= to:
		return weight
	}
	return uint8(int64(weight) * (x - from) / (to - from)) // counts are below 2^43, so nothing overflows
}
