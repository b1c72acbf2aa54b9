package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// A message is a head and any number of entries, all numbers as in encoding/binary:
//
//	byte      version, 2
//	byte      kind: telling or copying
//	8 bytes   from, the teller's name, big-endian
//	8 bytes   to, the listener's; 0 in a copy
//	uvarint   number, which grows with each message of one teller
//	uvarint   heard: for how many milliseconds the teller has not heard the listener, from 0; never is the largest 32-bit number
//	entries, each: 16 bytes the bucket's key; uvarints of the shape, Drain, Unit, Capacity / Unit, Tick;
//	  uvarints Nth, Admitted, Returned, Own; and in a copy Owed, the number of counts, and each: 8 bytes a name,
//	  uvarints Nth, Admitted, Returned
const (
	version = 2

	telling = 0 // what the teller admitted, now and again
	copying = 1 // all that it knows, for one that joins

	headRoom = 2 + 8 + 8 + 2*binary.MaxVarintLen64
	// What is of 32 bits takes 5 bytes, a tick 3, and what rate.MaxCapacity bounds 9.
	entryRoom = 16 + 2*5 + 3 + 6*9
	countRoom = 8 + 5 + 2*9

	never = math.MaxUint32
)

type head struct {
	kind     byte
	from, to uint64
	number   uint64
	unheard  uint64 // milliseconds
}

func appendHead(b []byte, h *head) []byte {
	b = append(b, version, h.kind)
	b = binary.BigEndian.AppendUint64(b, h.from)
	b = binary.BigEndian.AppendUint64(b, h.to)
	b = binary.AppendUvarint(b, h.number)
	return binary.AppendUvarint(b, h.unheard)
}

func appendEntry(b []byte, kind byte, k key.Key, e *Entry) []byte {
	b = binary.BigEndian.AppendUint64(b, k.Hi)
	b = binary.BigEndian.AppendUint64(b, k.Lo)
	for _, n := range [...]int64{e.Shape.Drain, e.Shape.Unit, e.Shape.Capacity / e.Shape.Unit, e.Shape.Tick,
		int64(e.Nth), e.Admitted, e.Returned, e.Own} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if kind == copying {
		b = binary.AppendUvarint(b, uint64(e.Owed))
	}
	return b
}

// appendCounts adds the counts to an entry of a copy.
func appendCounts(b []byte, known []Count) []byte {
	b = binary.AppendUvarint(b, uint64(len(known)))
	for _, c := range known {
		b = binary.BigEndian.AppendUint64(b, c.Name)
		b = binary.AppendUvarint(b, uint64(c.Nth))
		b = binary.AppendUvarint(b, uint64(c.Admitted))
		b = binary.AppendUvarint(b, uint64(c.Returned))
	}
	return b
}

// readCounts reads what appendCounts wrote.
func readCounts(b []byte) (known []Count, rest []byte, err error) {
	r := reader{rest: b}
	n := r.uvarint(MaxReplicas)
	for range n {
		if len(r.rest) < 8 {
			return nil, nil, errShort
		}
		c := Count{Name: binary.BigEndian.Uint64(r.rest)}
		r.rest = r.rest[8:]
		c.Nth = uint32(r.uvarint(math.MaxUint32))
		c.Admitted, c.Returned = int64(r.uvarint(rate.MaxCapacity)), int64(r.uvarint(rate.MaxCapacity))
		if r.err != nil {
			return nil, nil, r.err
		}
		known = append(known, c)
	}
	return known, r.rest, r.err
}

var errShort = errors.New("the message ends within a number")

// readHead reads a head, and returns what follows.
func readHead(b []byte) (h head, rest []byte, err error) {
	if len(b) < 18 {
		return h, nil, fmt.Errorf("the message has %d bytes, want 18 or more", len(b))
	}
	if b[0] != version {
		return h, nil, fmt.Errorf("the message is of version %d, want %d", b[0], version)
	}
	if h.kind = b[1]; h.kind > copying {
		return h, nil, fmt.Errorf("the message is of kind %d, want %d or %d", h.kind, telling, copying)
	}
	h.from, h.to = binary.BigEndian.Uint64(b[2:]), binary.BigEndian.Uint64(b[10:])
	r := reader{rest: b[18:]}
	h.number, h.unheard = r.uvarint(math.MaxUint64), r.uvarint(never)
	return h, r.rest, r.err
}

// reader reads numbers, and remembers the first fault.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) uvarint(most uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	switch {
	case n <= 0:
		r.err = errShort
		return 0
	case v > most:
		r.err = fmt.Errorf("a number is %d, want %d at most", v, most)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// readEntry reads an entry, and returns what follows. What it returns is a shape that rate.Compile
// could have made, as far as buckets depend on it.
func readEntry(b []byte, kind byte) (k key.Key, e Entry, rest []byte, err error) {
	if len(b) < 16 {
		return k, e, nil, errShort
	}
	k = key.Key{Hi: binary.BigEndian.Uint64(b), Lo: binary.BigEndian.Uint64(b[8:])}
	r := reader{rest: b[16:]}
	e.Shape.Drain = int64(r.uvarint(rate.MaxDrain))
	e.Shape.Unit = int64(r.uvarint(rate.MaxCapacity))
	burst := r.uvarint(rate.MaxCapacity)
	e.Shape.Tick = int64(r.uvarint(uint64(time.Millisecond)))
	e.Nth = uint32(r.uvarint(math.MaxUint32))
	e.Admitted, e.Returned = int64(r.uvarint(rate.MaxCapacity)), int64(r.uvarint(rate.MaxCapacity))
	e.Own = int64(r.uvarint(rate.MaxCapacity))
	if kind == copying {
		e.Owed = int64(r.uvarint(rate.MaxCapacity))
	}
	if r.err != nil {
		return k, e, nil, r.err
	}
	unit := uint64(e.Shape.Unit)
	switch tick := time.Duration(e.Shape.Tick); {
	case tick != 1 && tick != time.Microsecond && tick != time.Millisecond:
		return k, e, nil, fmt.Errorf("a limit's tick is %v, want 1ns, 1µs or 1ms", tick)
	case e.Shape.Drain < 1 || unit < 1 || burst < 1:
		return k, e, nil,
			fmt.Errorf("a limit drains %d units of which a token has %d, and holds %d tokens; want 1 or more",
				e.Shape.Drain, unit, burst)
	case burst > rate.MaxCapacity/unit:
		return k, e, nil, fmt.Errorf("a limit holds %d tokens of %d units, want 2^62 units at most", burst, unit)
	}
	e.Shape.Capacity = int64(burst * unit)
	return k, e, r.rest, nil
}
