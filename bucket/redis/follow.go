package redis

import (
	"math"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// A bucket that was left under another limit is read, converted here, and put in its place by the script that decides, if it is still as it
// was read. What is owed drains at each limit's rate in its time and is cut to the new burst, as in bucket/memory (bucket.Held). Two things
// are different on a server that many share.
//
// Replicas hear of a change one after the other. Meanwhile one finds what another left, back and forth. What was left after a limit took effect,
// but in another shape, is not cut: else each turn would forgive what the larger burst had admitted. It is taken to have drained at the slower
// rate, and owes up to the most that a bucket may. So it is for a process that does not know when the limit took effect, because it is new.
//
// And a bucket expires when its debt would have drained under the limit that it was left under. When a slower one takes effect before,
// what is found afterwards is nothing, and looks like a full bucket. As long as that can be, which is what Take.Before says, a missing bucket is taken
// to have expired just now, so to have owed at the change all that drained since at the old rate. With 100 per second before and 10 per second
// since half a second, it owed 50 at most, of which 5 have drained again: it is left with 45 less than its burst. A client who comes for the
// first time pays for that with a wait of some seconds; the envelope holds.

// restated is args with how to read the buckets that the script found under other limits.
func (s *Store) restated(answer []any, claims []*claim, args []string) ([]string, error) {
	now, ok := number(answer[0])
	if !ok || len(answer)%2 != 0 {
		return nil, unreadable(answer)
	}
	args = args[:len(claims)]
	for range claims {
		args = append(args, "")
	}
	for found := answer[2:]; len(found) > 0; found = found[2:] {
		i, isNumber := number(found[0])
		value, isString := found[1].(string)
		if !isNumber || !isString || i < 1 || int(i) > len(claims) {
			return nil, unreadable(answer)
		}
		c := claims[i-1]
		state, err := s.follow(c, value, now*1000)
		if err != nil {
			return nil, err
		}
		told := appendDoubles(nil, state.Debt, micros(ceilMicros(state.Stamp)))
		args[len(claims)+int(i)-1] = string(append(told, value...))
	}
	return args, nil
}

// follow is the bucket of c that was found as value, "" for none, at now.
func (s *Store) follow(c *claim, value string, now int64) (bucket.State, error) {
	t := &c.take
	if value == "" {
		if s.callers {
			return bucket.State{Stamp: now}, nil // nothing expires
		}
		return expired(now, t), nil
	}
	h, ok := parse(value)
	if !ok {
		return bucket.State{}, foreign(c.key)
	}
	if h.State.Stamp > t.Since && h.Shape != t.Shape {
		return uncut(h, t.Shape, now), nil
	}
	h.Follow(now, t)
	return h.State, nil
}

// uncut is a bucket that was left in another shape, in this one: as if it had drained at the slower of both rates, and whatever it owes.
func uncut(h bucket.Held, to rate.Shape, now int64) bucket.State {
	wide := to
	wide.Capacity = to.MaxDebt()
	at, late := h.State.Convert(h.Shape, wide, h.State.Stamp), h.State.Convert(h.Shape, wide, now)
	if late.FullAt(to) > at.FullAt(to) {
		return late
	}
	return at
}

// stateLength is how many bytes debt and stamp take.
const stateLength = 14

// parse reads a bucket as the scripts write it.
func parse(value string) (h bucket.Held, ok bool) {
	if len(value) < stateLength {
		return h, false
	}
	h.Shape, ok = readName(value[stateLength:])
	debt, stamp := sevenBytes(value), sevenBytes(value[stateLength/2:])
	if !ok || debt >= exact || stamp >= exact {
		return h, false
	}
	h.State = bucket.State{Debt: debt, Stamp: stamp * 1000}
	return h, true
}

func sevenBytes(s string) (n int64) {
	for i := range stateLength / 2 {
		n |= int64(s[i]) << (8 * i)
	}
	return n
}

// expired is the most that a missing bucket of t may owe at now.
func expired(now int64, t *bucket.Take) bucket.State {
	worst, until := bucket.State{Stamp: now}, t.Since
	for past := t.Before; past != nil; past, until = past.Before, past.Since {
		if until >= now || past.Shape != (rate.Shape{}) && !past.Shape.Algorithm.Drains() {
			continue // it did not replace this one yet; or counted in windows, so not here
		}
		h := bucket.Held{Shape: t.Shape, State: bucket.State{Debt: t.Shape.Capacity, Stamp: t.Since}}
		if past.Shape != (rate.Shape{}) {
			h.Shape, h.State = past.Shape, owedSince(&past.Shape, until, now)
			h.Follow(now, t)
		}
		if h.State.FullAt(t.Shape) > worst.FullAt(t.Shape) {
			worst = h.State
		}
	}
	return worst
}

// owedSince is a bucket that is full at now and was charged at since for the last time: the most that it can have owed then.
func owedSince(sh *rate.Shape, since, now int64) bucket.State {
	elapsed := min(uint64(now)-uint64(since), math.MaxInt64)
	return bucket.State{Debt: min(sh.Drained(time.Duration(elapsed)), sh.MaxDebt()), Stamp: since}
}

// past is a past in the store's shapes. What cannot be kept in the store left nothing there.
func (s *shapes) past(p *rate.Past) *rate.Past {
	if p == nil {
		return nil
	}
	restated := &rate.Past{Shape: p.Shape, Since: ceilMicros(p.Since), Before: s.past(p.Before), Window: p.Window}
	if p.Shape != (rate.Shape{}) {
		if sh, err := s.of(p.Shape); err == nil {
			restated.Shape = sh.Shape
		}
	}
	return restated
}
