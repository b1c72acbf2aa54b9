package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// The server counts in doubles, which hold whole numbers below 2^53 exactly, and its clock in
// microseconds. So a limit is restated in ticks of at least a microsecond, as coarse as it takes
// for all its numbers to stay below: 1,000,003 a day with a burst of as many is 86,400,000,000
// units a token and 8.6e16 in all per microsecond, and a thousandth of that per millisecond. That
// is exact: like bucket.State the script also counts what drains in a tick that has begun.
//
// Few limits have no such tick, prime rates with bursts beyond 10^12 tokens. They are made slower
// by less than a millionth, so they never admit more; or refused.

const (
	// exact is the first whole number after which doubles leave some out.
	exact = 1 << 53

	// MaxCapacity is the most units that a bucket holds in the store. It may owe twice as many.
	MaxCapacity = exact / 2

	// slowest is by how much a limit may be slowed down, as a part of one: a millionth.
	slowest = 1_000_000
)

// ticks in the order of preference.
var ticks = [...]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour}

// shape is a limit as the server counts it.
type shape struct {
	rate.Shape        // ticks are whole microseconds
	own        int64  // units in a token as the limit's own shape counts them
	numbers    string // drain, tick and capacity, as scripts read them
	name       string // which shape it is; see appendName
}

var errWindows = errors.New(
	"counts in windows, which a shared store does not: want algorithm token_bucket or leaky_bucket")

// Coarsen is s as the store counts it, in numbers that doubles hold, or why it cannot. At every
// whole microsecond it admits what s does; if its rate is slower, less.
func Coarsen(s rate.Shape) (rate.Shape, error) {
	if !s.Algorithm.Drains() {
		return rate.Shape{}, errWindows
	}
	burst := s.Burst()
	if burst < 1 || burst > MaxCapacity {
		return rate.Shape{}, fmt.Errorf("the burst is %d, want 1 to %d in a shared store", burst, int64(MaxCapacity))
	}
	perNano := big.NewRat(s.Drain, s.Unit)
	perNano.Mul(perNano, big.NewRat(1, s.Tick))
	largest := big.NewInt(MaxCapacity / burst) // unit
	for _, tick := range ticks {
		perTick := new(big.Rat).Mul(perNano, big.NewRat(int64(tick), 1))
		if perTick.Denom().Cmp(largest) <= 0 && perTick.Num().Cmp(maxDrain(tick)) <= 0 {
			return shapeOf(perTick.Num(), perTick.Denom(), burst, tick, s.Algorithm), nil
		}
	}
	return slowed(perNano, largest, burst, s.Algorithm)
}

// maxDrain is the largest drain for which the script is exact: that of a part of a tick is
// computed, and of whole ticks none has parts that are a microsecond.
func maxDrain(tick time.Duration) *big.Int {
	if tick == time.Microsecond {
		return big.NewInt(exact - 1)
	}
	return big.NewInt((exact - 1) / tick.Microseconds())
}

// slowed is the shape nearest to a rate from below, of those with the largest unit possible.
func slowed(perNano *big.Rat, largest *big.Int, burst int64, a rate.Algorithm) (rate.Shape, error) {
	best, drain, unit := time.Duration(0), new(big.Int), new(big.Int)
	for _, tick := range ticks {
		perTick := new(big.Rat).Mul(perNano, big.NewRat(int64(tick), 1))
		d, u := times(largest, perTick), largest
		if most := maxDrain(tick); d.Cmp(most) > 0 {
			u = times(most, new(big.Rat).Inv(perTick))
			d = times(u, perTick)
		}
		if u.Sign() > 0 && d.Cmp(drain) > 0 {
			best, drain, unit = tick, d, u
		}
	}
	if drain.Cmp(big.NewInt(slowest)) < 0 {
		return rate.Shape{},
			fmt.Errorf("the rate and a burst of %d do not fit in 53 bits together, as a shared store counts them: "+
				"want a smaller burst, or a count that shares a larger divisor with its time", burst)
	}
	return shapeOf(drain, unit, burst, best, a), nil
}

// times is n*r, rounded down.
func times(n *big.Int, r *big.Rat) *big.Int {
	product := new(big.Int).Mul(n, r.Num())
	return product.Quo(product, r.Denom())
}

func shapeOf(drain, unit *big.Int, burst int64, tick time.Duration, a rate.Algorithm) rate.Shape {
	return rate.Shape{
		Drain:     drain.Int64(),
		Unit:      unit.Int64(),
		Capacity:  burst * unit.Int64(),
		Tick:      int64(tick),
		Algorithm: a,
	}
}

// perShape remembers what it has computed of shapes, of which rules have few. Two that meet in one place are computed
// in turn.
type perShape[T any] [1 << shapeBits]atomic.Pointer[computed[T]]

const shapeBits = 10

type computed[T any] struct {
	shape rate.Shape
	made  *T
}

// of is what compute makes of a shape.
func (s *perShape[T]) of(sh rate.Shape, compute func(rate.Shape) (*T, error)) (*T, error) {
	place := &s[spread(&sh)]
	if known := place.Load(); known != nil && known.shape == sh {
		return known.made, nil
	}
	made, err := compute(sh)
	if err != nil {
		return nil, err
	}
	place.Store(&computed[T]{sh, made})
	return made, nil
}

// spread is a place for a shape. Its numbers are those of rules, so nobody can have many meet.
func spread(s *rate.Shape) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio: Knuth, The Art of Computer Programming, volume 3, §6.4
	n := uint64(s.Drain)
	for _, next := range [...]int64{s.Unit, s.Capacity, s.Tick, int64(s.Algorithm)<<32 | int64(s.Phase)} {
		n = bits.RotateLeft64(n*odd, 32) ^ uint64(next)
	}
	return n * odd >> (64 - shapeBits)
}

// shapes remembers what it has coarsened.
type shapes struct{ perShape[shape] }

func (s *shapes) of(sh rate.Shape) (*shape, error) { return s.perShape.of(sh, newShape) }

func newShape(s rate.Shape) (*shape, error) {
	c, err := Coarsen(s)
	if err != nil {
		return nil, err
	}
	made := &shape{Shape: c, own: s.Unit, name: string(appendName(nil, c))}
	made.numbers = string(appendDoubles(nil, c.Drain, micros(c.Tick), c.Capacity))
	return made, nil
}

func micros(nanos int64) int64 { return nanos / 1000 }

// appendDoubles appends numbers as scripts read them.
func appendDoubles(dst []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
	}
	return dst
}

// format is the version of what a bucket is kept as. It is above all that a text begins with.
const format = 0xc0

// appendName appends what tells shapes apart in a bucket: the version, the tick and the algorithm
// in one byte, and drain, unit and burst as varints. A limit of 10 per second and a burst of 20
// takes six bytes.
func appendName(dst []byte, s rate.Shape) []byte {
	code := byte(format) | byte(s.Algorithm)<<3
	for i, tick := range ticks {
		if int64(tick) == s.Tick {
			code |= byte(i)
		}
	}
	dst = binary.AppendUvarint(append(dst, code), uint64(s.Drain))
	dst = binary.AppendUvarint(dst, uint64(s.Unit))
	return binary.AppendUvarint(dst, uint64(s.Burst()))
}

// readName is what appendName wrote, or false for anything else.
func readName(name string) (rate.Shape, bool) {
	if name == "" || name[0]&0xe0 != format || name[0]>>3&3 > byte(rate.LeakyBucket) || int(name[0]&7) >= len(ticks) {
		return rate.Shape{}, false
	}
	s := rate.Shape{Tick: int64(ticks[name[0]&7]), Algorithm: rate.Algorithm(name[0] >> 3 & 3)}
	rest := []byte(name[1:])
	for _, field := range []*int64{&s.Drain, &s.Unit, &s.Capacity} {
		n, length := binary.Uvarint(rest)
		if length <= 0 || n < 1 || n >= exact {
			return rate.Shape{}, false
		}
		*field, rest = int64(n), rest[length:]
	}
	if len(rest) > 0 || s.Capacity > MaxCapacity/s.Unit {
		return rate.Shape{}, false
	}
	s.Capacity *= s.Unit
	return s, string(appendName(nil, s)) == name
}
