package headgate

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/headgate-io/headgate/identity"
)

// Who waits holds a goroutine and a connection, so there is room for so many: Options.MaxWaiters.
// Half of it is for whoever comes. The other half is dealt into queues of equal room, and each caller
// may enter a few of them, its hand, which a secret draws: shuffle sharding, as the priority and
// fairness of the Kubernetes API server has it. Whoever floods the limiter fills the first half, and
// the queues of its own hand; a caller finds no place only if others fill all queues of its hand.
//
// With room for 1024 a queue has 2. One caller with ten thousand requests gets 512 of them to wait;
// the 513th is refused, since each queue of its hand has more than 2. The first of another caller
// enters a queue that is empty.
const (
	waitQueues = 256
	handSize   = 6
)

// waiting counts the requests that wait, or may have to.
type waiting struct {
	seed   maphash.Seed // of hands: nobody can choose a name whose hand is somebody else's
	all    atomic.Int64
	queues [waitQueues]atomic.Int64 // the part of all that entered by each

	full, beyondShare atomic.Uint64 // requests that found no place
}

// noPlace is in place of the queue of a request that found none.
const noPlace = -1

// enter finds a place for a request of somebody, among most, and returns its queue, or noPlace. There
// are never more than most in a place: each saw a count of no more when it came, its own included.
func (w *waiting) enter(most int64, who *identity.Principal) (queue int) {
	queue = w.shortest(handOf(w.hash(who)))
	share := most / 2 / waitQueues // 0 if there is less room than two for a queue: all of it is for whoever comes
	all, mine := w.all.Add(1), w.queues[queue].Add(1)
	switch {
	case all > most:
		w.full.Add(1)
	case all > most-waitQueues*share && mine > share:
		w.beyondShare.Add(1)
	default:
		return queue
	}
	w.leave(queue)
	return noPlace
}

// leave gives back the place that enter found, if it did.
func (w *waiting) leave(queue int) {
	if queue != noPlace {
		w.queues[queue].Add(-1)
		w.all.Add(-1)
	}
}

// shortest is the queue of a hand that fewest are in.
func (w *waiting) shortest(hand [handSize]uint8) (queue int) {
	queue = int(hand[0])
	for _, q := range hand[1:] {
		if w.queues[q].Load() < w.queues[queue].Load() {
			queue = int(q)
		}
	}
	return queue
}

// handOf deals handSize different queues, every hand as likely as any other (R. W. Floyd, A Sample of Brilliance,
// Communications of the ACM 30(9), 1987). There are 3.7e11 hands, and a hash has bits enough for each draw.
func handOf(hash uint64) (hand [handSize]uint8) {
	for n := range hand {
		last := uint64(waitQueues - handSize + n)
		draw, rest := bits.Mul64(hash, last+1) // a fraction of 2^64, and what it has beyond the draw
		q := uint8(draw)
		hash = rest
		if slices.Contains(hand[:n], q) {
			q = uint8(last)
		}
		hand[n] = q
	}
	return hand
}

// hash is of whom a request is from: a verified principal wherever it is, and everybody else by address.
func (w *waiting) hash(who *identity.Principal) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	if who.Kind == identity.Address {
		b := who.Prefix.Addr().As16()
		h.Write(b[:])
		return h.Sum64()
	}
	h.WriteByte(byte(who.Kind))
	h.WriteString(who.Project)
	h.WriteByte(0)
	h.WriteString(who.ID)
	return h.Sum64()
}
