package bucket_test

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// twin is the bucket as the definition has it, in fractions of a token, slow and without bounds.
type twin struct {
	limit rate.Limit
	debt  *big.Rat // tokens owed at the time at
	at    int64
}

// drained is the twin at now.
func (w twin) drained(now int64) twin {
	if now <= w.at {
		return w
	}
	elapsed := new(big.Rat).SetInt(new(big.Int).Sub(big.NewInt(now), big.NewInt(w.at)))
	w.debt = new(big.Rat).Sub(w.debt, elapsed.Mul(elapsed, big.NewRat(w.limit.Tokens, int64(w.limit.Per))))
	if w.debt.Sign() < 0 {
		w.debt.SetInt64(0)
	}
	w.at = now
	return w
}

// take answers like State.Take. Waits are counted from now, and the longest is what a time.Duration holds.
func (w *twin) take(now, cost int64) bucket.Outcome {
	d := w.drained(now)
	after := new(big.Rat).Add(d.debt, new(big.Rat).SetInt64(cost))
	over := new(big.Rat).Sub(after, new(big.Rat).SetInt64(w.limit.Burst))
	o := bucket.Outcome{Allowed: cost == 0 || over.Sign() <= 0 && cost > 0, Never: cost < 0 || cost > w.limit.Burst}
	switch {
	case o.Allowed && cost > 0:
		d.debt = after
		*w = d
	case !o.Allowed && !o.Never:
		o.RetryAfter = d.wait(now, over)
	}
	left := new(big.Rat).Sub(new(big.Rat).SetInt64(w.limit.Burst), d.debt)
	o.Remaining = new(big.Int).Div(left.Num(), left.Denom()).Int64()
	o.ResetAfter = d.wait(now, d.debt)
	return o
}

// wait is the time from now until tokens have drained, rounded up.
func (w twin) wait(now int64, tokens *big.Rat) time.Duration {
	if tokens.Sign() <= 0 {
		return 0
	}
	exact := new(big.Rat).Mul(tokens, big.NewRat(int64(w.limit.Per), w.limit.Tokens))
	ns := new(big.Int).Add(exact.Num(), exact.Denom())
	ns.Sub(ns, big.NewInt(1)).Div(ns, exact.Denom())
	ns.Add(ns, new(big.Int).Sub(big.NewInt(w.at), big.NewInt(now)))
	if !ns.IsInt64() {
		return 1<<63 - 1
	}
	return time.Duration(ns.Int64())
}

func FuzzTakeAgainstTwin(f *testing.F) {
	schedule := func(moves ...int64) []byte {
		var b []byte
		for _, m := range moves {
			b = binary.LittleEndian.AppendUint64(b, uint64(m))
		}
		return b
	}
	f.Add(int64(3), int64(1e9), int64(5), schedule(0, 5, 333_333_333, 1, 1, 1, 1<<50, 6, -(1<<40), 1))
	f.Add(int64(1_000_003), int64(864e11), int64(1<<40), schedule(0, 1<<39, 999, 1, 1, 1<<39, 86_399_741, 1, -5, 1))
	f.Add(int64(1), int64(1<<62), int64(1), schedule(1<<62, 1, 1<<61, 1, 1<<62, 1))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var moves []int64
		for range 40 {
			moves = append(moves, rng.Int64()>>rng.IntN(60), rng.Int64N(20))
		}
		f.Add(1+rng.Int64()>>rng.IntN(62), 1+rng.Int64()>>rng.IntN(62), 1+rng.Int64()>>rng.IntN(62), schedule(moves...))
	}
	f.Fuzz(func(t *testing.T, tokens, per, burst int64, schedule []byte) {
		limit := rate.Limit{Tokens: tokens, Per: time.Duration(per), Burst: burst}
		shape, err := rate.Compile(limit)
		if err != nil {
			return
		}
		var state bucket.State
		slow := twin{limit: limit, debt: new(big.Rat)}
		now := int64(0)
		for ; len(schedule) >= 16; schedule = schedule[16:] {
			move, cost := int64(binary.LittleEndian.Uint64(schedule)), int64(binary.LittleEndian.Uint64(schedule[8:]))
			now += move // wraps around as it likes
			before := state
			after, got := state.Take(now, shape, cost)
			if after.Stamp < before.Stamp {
				t.Fatalf("%+v.Take(%d, %d) lowers the stamp to %d", before, now, cost, after.Stamp)
			}
			if shape.Tick > 1 && now < slow.at {
				// Stamp is not the latest time but the latest tick, so the bucket is the stricter
				// of the two until the clock has caught up.
				if got.Allowed && !slow.take(now, cost).Allowed {
					t.Fatalf("%+v: %+v.Take(%d, %d) admits, and should not", limit, before, now, cost)
				}
				state = after
				continue
			}
			want := slow.take(now, cost)
			want.RetryAfter, want.ResetAfter = beyond(want.RetryAfter, got.RetryAfter),
				beyond(want.ResetAfter, got.ResetAfter)
			if got != want {
				t.Fatalf("%+v: %+v.Take(%d, %d) = %+v, want %+v", limit, before, now, cost, got, want)
			}
			state = after
		}
	})
}

// beyond is want, or got where both are past the 292 years of a time.Duration and coarse ticks have
// blurred the last of them.
func beyond(want, got time.Duration) time.Duration {
	const edge = 1<<63 - 1 - 2*time.Millisecond
	if want > edge && got > edge {
		return got
	}
	return want
}
