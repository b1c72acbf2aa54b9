package redis

import (
	"context"
	"math"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// A bucket that was left under another limit is read, converted here, and put in its place by the
// script that decides, if it is still as it was read. What is owed drains at each limit's rate in
// its time and is cut to the new burst, as in bucket/memory (bucket.Held). Three things are
// different on a server that many share.
//
// Its clock and the caller's are set to different times: see dates.go.
//
// Replicas hear of a change one after the other. Meanwhile one finds what another left, back and
// forth. What was left after a limit took effect, but in another shape, is not cut: else each turn
// would forgive what the larger burst had admitted. It is taken to have drained at the slower rate,
// and owes up to the most that a bucket may. So it is for a process that does not know when the
// limit took effect, because it is new; and for what was left before in a shape that this process
// did not have then. Where the slower rate is that of the other limit, the first to see such a
// bucket puts it in its place under its own limit, even to deny: else it would go on draining at
// the rate of a limit that nobody has any more.
//
// And a bucket expires when its debt would have drained under the limit that it was left under.
// When a slower one takes effect before, what is found afterwards is nothing, and looks like a full
// bucket. What becomes of it depends on how soon the new limit fills.
//
// Where that takes a few seconds (soon), a missing bucket is taken to have expired just now, so to have owed at the
// change all that drained since at the old rate. With 100 per second before and 10 per second since half a second, it
// owed 50 at most, of which 5 have drained again: it is left with 45 less than its burst. A client who comes for the
// first time pays for that with a wait of some seconds; the envelope holds.
//
// Where it takes longer, that client would be locked out: after a change to 5 per day, for hours. There a missing
// bucket is full. So that whoever is in debt and asks does not become missing, the first to find a bucket under the old
// limit puts it in its place under the new one, even to deny, and it lives for as long as it owes there. Only who asks
// for nothing between the change and the time when its debt would have drained at the old rate begins anew, and has the
// new burst: no more than the new limit admits by itself.

// restated is args with how to read the buckets that the script found under other limits. One that
// cannot be read, or that was written before the server's clock was set back, is put in order at
// once; and where put says so, one that must not wait for a charge.
func (s *Store) restated(
	ctx context.Context, answer []any, d dates, claims []*claim, args []string, put bool,
) ([]string, error) {
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
		state, how := s.follow(c, d, value, now*1000)
		if how == broken || how == outdated && put && !s.callers {
			mended, err := s.mend(ctx, c, value, state)
			if err != nil {
				return nil, err
			}
			if mended && how == broken {
				s.mended.Add(1)
			}
			continue
		}
		told := appendDoubles(nil, state.Debt, micros(ceilMicros(state.Stamp)))
		args[len(claims)+int(i)-1] = string(append(told, value...))
	}
	return args, nil
}

// reading is what becomes of a value that was found under the name of a bucket.
type reading int

const (
	readable reading = iota // it may stand until the bucket is charged
	outdated                // it would expire while the bucket owes, or drain at the rate of a limit that is no more
	broken                  // it is no bucket, or none that can be
)

// follow is the bucket of c that was found as value, "" for none, at now; and whether it may be read as that, or is to
// take the place of the value.
//
// What cannot be read is a bucket that owes its whole burst: nobody knows what it owed, and more
// than that it did not, but for what was spent beyond a burst. A stamp that lies more than a second
// ahead is of before the server's clock was set back.
func (s *Store) follow(c *claim, d dates, value string, now int64) (state bucket.State, how reading) {
	t := d.take(c.take)
	if value == "" {
		if s.callers {
			return bucket.State{Stamp: now}, readable // nothing expires
		}
		return expired(now, &t), readable
	}
	h, ok := parse(value)
	if !ok {
		return bucket.State{Debt: t.Shape.Capacity, Stamp: now}, broken
	}
	if !s.callers && h.State.Stamp > now+ahead {
		h.State.Stamp = now
		return uncut(h, &t, now), broken
	}
	if h.Shape != t.Shape && (h.State.Stamp > t.Since || !inForce(h.Shape, &t, h.State.Stamp)) {
		if !slower(&t.Shape, &h.Shape) {
			how = outdated
		}
		state = uncut(h, &t, now)
	} else {
		state = followed(h, now, &t)
	}
	if !fillsSoon(&t.Shape) && state.FullAt(t.Shape) > now {
		how = outdated
	}
	return state, how
}

func followed(h bucket.Held, now int64, t *bucket.Take) bucket.State {
	h.Follow(now, t)
	return h.State
}

// ahead is by how much a stamp may lie ahead of the server's clock, as in the scripts: so long is a
// bucket held at most by a clock that was set back.
const ahead = int64(time.Second)

// inForce reports whether a shape may have been that of t's limit at a time, as far as is known.
func inForce(sh rate.Shape, t *bucket.Take, at int64) bool {
	for p := t.Before; p != nil; p = p.Before {
		if p.Since <= at {
			return p.Shape == sh || p.Shape == rate.Shape{}
		}
	}
	return true
}

// mend has a bucket take the place of a value that is none, or of none that can be: if nobody else did so.
func (s *Store) mend(ctx context.Context, c *claim, value string, state bucket.State) (mended bool, err error) {
	arg := appendDoubles(nil, s.time(state.Stamp), state.Debt, micros(ceilMicros(state.Stamp)), c.shape.Drain,
		micros(c.shape.Tick))
	answer, err := s.run(ctx, mendScript, []string{c.key}, []string{string(arg) + c.shape.name, value})
	return err == nil && answer[1] == int64(1), err
}

// Mended is how many buckets were put in order since the Store was made: those that could not be
// read, which begin to fill from nothing, and those that were dated more than a second ahead, by a
// clock of the server that was set back since.
func (s *Store) Mended() uint64 { return s.mended.Load() }

// uncut is a bucket that was left in another shape, in t's: as if it had drained at the slower
// of both rates, and whatever it owes, up to the most that a bucket may. One that owes its whole
// burst owes it in this shape too, or what did not fit into a small burst would be forgiven by a
// large one.
func uncut(h bucket.Held, t *bucket.Take, now int64) bucket.State {
	to, wide := t.Shape, t.Shape
	wide.Capacity = to.MaxDebt()
	at := h.State.Convert(h.Shape, wide, h.State.Stamp)
	h.State.Stamp = t.Slower().Since(h.State.Stamp, now) // what was lowered since has drained less
	early := bucket.State{Debt: at.Debt, Stamp: h.State.Stamp}
	if late := h.State.Convert(h.Shape, wide, now); late.FullAt(to) > early.FullAt(to) {
		at, early = late, late
	}
	if _, room := h.State.Try(now, &h.Shape, h.Shape.Unit); !room {
		spent := bucket.State{Debt: max(0, to.Capacity-to.Unit+1), Stamp: max(now, at.Stamp)}
		if spent.FullAt(to) > early.FullAt(to) {
			return spent
		}
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

// soon is how long a client waits at most for what others may have owed.
const soon = 5 * time.Second

// fillsSoon reports whether a bucket that owes its burst is full soon.
func fillsSoon(sh *rate.Shape) bool { return sh.TimeToFull(sh.Capacity) <= soon }

// expired is the most that a missing bucket of t may owe at now.
func expired(now int64, t *bucket.Take) bucket.State {
	worst, until := bucket.State{Stamp: now}, t.Since
	for past := t.Before; past != nil; past, until = past.Before, past.Since {
		if until >= now || past.Shape != (rate.Shape{}) && !past.Shape.Algorithm.Drains() {
			continue // it did not replace this one yet; or counted in windows, so not here
		}
		if past.Shape != (rate.Shape{}) && !fillsSoon(&t.Shape) {
			continue
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

// owedSince is a bucket that is full at now and was charged at since for the last time: the most
// that it can have owed then.
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
