package key

import (
	"hash/maphash"
	"sync/atomic"
)

// names remembers the names of those that were asked for last, so that a caller who comes again is named
// without HMAC: 20 ns in the place of 400 (BenchmarkName). It is a table of a fixed size, in which one who
// comes takes the place of another, and holds no more of anybody than two keyed hashes.
type names struct {
	hi, lo, ofEndpoint maphash.Seed
	slots              [remembered]named
}

const remembered = 1 << 16 // of 40 bytes: 2.5 MB

// named is one of them. Who writes makes turn odd meanwhile, so that who reads sees that it has read parts of two.
type named struct {
	turn                    atomic.Uint64
	fromHi, fromLo, hi, low atomic.Uint64
}

func newNames() *names {
	return &names{hi: maphash.MakeSeed(), lo: maphash.MakeSeed(), ofEndpoint: maphash.MakeSeed()}
}

// of is what a name is found by: of secrets that nobody outside of the process knows, as of a Hasher. What clients
// choose weighs 128 bits of it; endpoints, which they do not, 64.
func (n *names) of(rule uint64, endpoint string, subject []byte) Key {
	at := maphash.String(n.ofEndpoint, endpoint)
	return Key{
		Hi: maphash.Bytes(n.hi, subject) + rule*ruleHi + at*endpointHi,
		Lo: maphash.Bytes(n.lo, subject) + rule*ruleLo + at*endpointLo,
	}
}

func (n *names) find(from Key) (name Key, ok bool) {
	s := &n.slots[from.Lo%remembered]
	turn := s.turn.Load()
	ok = s.fromHi.Load() == from.Hi && s.fromLo.Load() == from.Lo
	name = Key{Hi: s.hi.Load(), Lo: s.low.Load()}
	return name, ok && turn&1 == 0 && turn > 0 && s.turn.Load() == turn
}

// keep gives up if somebody else writes there.
func (n *names) keep(from, name Key) {
	s := &n.slots[from.Lo%remembered]
	turn := s.turn.Load()
	if turn&1 == 1 || !s.turn.CompareAndSwap(turn, turn+1) {
		return
	}
	s.fromHi.Store(from.Hi)
	s.fromLo.Store(from.Lo)
	s.hi.Store(name.Hi)
	s.low.Store(name.Lo)
	s.turn.Store(turn + 2)
}
