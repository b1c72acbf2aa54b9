package redis

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// CL.THROTTLE is told a limit as max_burst, count and period, in whole seconds. What counts is the
// time from one token to the next, which servers compute as period through count in whole
// nanoseconds, rounded down: 3 in 1 s is a token every 333,333,333 ns, and 3.000000003 in 1 s. So a
// limit whose tokens do not come at whole nanoseconds is told as the next slower one for which they
// do, here 500,000,000 in 166,666,667 s: a token every 333,333,334 ns. It is slower by less than a
// thousandth, and mostly by less than a millionth.

// quota is a limit as CL.THROTTLE is told it.
type quota struct {
	interval int64 // nanoseconds from token to token
	burst    int64
	args     [3]string // max_burst, count, period
}

const (
	// longest bounds a burst's time to be full, so that servers can add it to the time of day in
	// nanoseconds: 73 years.
	longest = time.Duration(1 << 61)

	// longestPeriod bounds a period, so that it is exact in nanoseconds in a double, in which
	// redis-cell divides it.
	longestPeriod = 1 << 32

	// shortestInterval is that of a million tokens a second: redis-cell tells what remains by
	// dividing whole microseconds.
	shortestInterval = 1000
)

var (
	errQueue = errors.New(
		"is a queue's, and the store's CL.THROTTLE tells turns in whole seconds: want algorithm token_bucket")
	errPlaces = errors.New("counts requests under way, which the store's CL.THROTTLE cannot: want scope local")
	errFast   = errors.New(
		"has more than 1,000,000 tokens a second, and the store's CL.THROTTLE counts in microseconds: want fewer")
)

// Throttles says why CL.THROTTLE cannot count a limit, or nil.
func Throttles(s rate.Shape) error {
	_, err := newQuota(s)
	return err
}

func newQuota(s rate.Shape) (*quota, error) {
	switch {
	case s.Algorithm == rate.LeakyBucket:
		return nil, errQueue
	case countsPlaces(&s):
		return nil, errPlaces
	case !s.Algorithm.Drains():
		return nil, errWindows
	case s.Drain < 1 || s.Unit < 1 || s.Tick < 1 || s.Burst() < 1:
		return nil, fmt.Errorf("is none: %+v", s)
	}
	// One token takes unit/drain ticks.
	interval := new(big.Rat).Mul(big.NewRat(s.Unit, s.Drain), big.NewRat(s.Tick, 1))
	count, period, ok := told(interval)
	if !ok {
		return nil, fmt.Errorf("has a token in %v, which the store's CL.THROTTLE cannot be told: want more",
			seconds(interval))
	}
	q := &quota{interval: period * int64(time.Second) / count, burst: s.Burst()}
	switch {
	case q.interval < shortestInterval:
		return nil, errFast
	case q.burst > int64(longest)/q.interval:
		return nil,
			fmt.Errorf("takes longer than %d years to fill a burst of %d, want less: the store's CL.THROTTLE "+
				"counts nanoseconds", longest/(365*24*time.Hour), q.burst)
	}
	q.args = [3]string{strconv.FormatInt(q.burst-1, 10), strconv.FormatInt(count, 10), strconv.FormatInt(period, 10)}
	return q, nil
}

// told is how to tell that tokens come so many nanoseconds apart: exactly, or in the finest parts of
// a second in which the period is not too long.
func told(interval *big.Rat) (count, period int64, ok bool) {
	perSecond := new(big.Rat).Mul(interval, big.NewRat(1, int64(time.Second)))
	if interval.IsInt() && perSecond.Num().IsInt64() && perSecond.Denom().IsInt64() {
		if period, count = perSecond.Num().Int64(), perSecond.Denom().Int64(); period <= longestPeriod {
			return count, period, true
		}
	}
	for parts := int64(time.Second); parts > 0; parts /= 1000 {
		up := new(big.Rat).Mul(perSecond, big.NewRat(parts, 1))
		whole := new(big.Int).Add(up.Num(), new(big.Int).Sub(up.Denom(), big.NewInt(1)))
		whole.Quo(whole, up.Denom())
		if !whole.IsInt64() || whole.Int64() > longestPeriod {
			continue
		}
		least := big.NewRat(whole.Int64(), parts)
		return least.Denom().Int64(), least.Num().Int64(), true
	}
	return 0, 0, false
}

func seconds(interval *big.Rat) string {
	f, _ := new(big.Rat).Quo(interval, big.NewRat(int64(time.Second), 1)).Float64()
	return strconv.FormatFloat(f, 'g', 6, 64) + " s"
}

// within is how long some tokens, one at least, take at most; and no longer than known, which is -1 for nothing known.
func (q *quota) within(tokens int64, known time.Duration) time.Duration {
	most := time.Duration(max(1, min(tokens, q.burst)) * q.interval)
	if known >= 0 {
		most = min(most, known)
	}
	return most
}
