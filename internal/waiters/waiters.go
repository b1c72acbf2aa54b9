// Package waiters counts requests that wait for their turn, and keeps room among them for callers of whom few wait.
package waiters

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/headgate-io/headgate/identity"
)

// Who waits holds a goroutine and a connection, so there is room for so many: headgate.Options.MaxWaiters.
// Half of it is for whoever comes. The other half is dealt into queues of equal room, and each caller
// may enter a few of them, its hand, which a secret draws: shuffle sharding, as the priority and
// fairness of the Kubernetes API server has it. Whoever floods the limiter fills the first half, and
// the queues of its own hand; a caller finds no place only if others fill all queues of its hand.
//
// With room for 1024 a queue has 2. One caller with ten thousand requests gets 512 of them to wait;
// the 513th is refused, since each queue of its hand has more than 2. The first of another caller
// enters a queue that is empty.
//
// Where rules tell classes of requests apart, a class leaves places for those above it, and may
// always have some of its own (Part). Fewer are wanted for certain than the others leave, so they
// are there.
const (
	queues   = 256
	handSize = 6
)

// Room counts the requests that wait, or may have to.
type Room struct {
	seed   maphash.Seed // of hands: nobody can choose a name whose hand is somebody else's
	all    atomic.Int64
	queued [queues]atomic.Int64 // the part of all that entered by each

	ofClass [MaxClasses]atomic.Int64 // those that came with a Part

	refused Refused
}

// Refused is how many requests found no place.
type Refused struct {
	Full        atomic.Uint64 // all were taken
	BeyondShare atomic.Uint64 // others of their caller had its share
	LowerClass  atomic.Uint64 // the rest was for higher classes
}

// MaxClasses is above every Part.Class.
const MaxClasses = 8

// Part is what a class of requests may have of the places, in percent.
type Part struct {
	Class      uint8 // 0 for requests that are of none, which may have all
	Kept       int   // for other classes
	Guaranteed int   // whatever others want
}

// New returns an empty Room.
func New() *Room { return &Room{seed: maphash.MakeSeed()} }

// Count is how many are in it.
func (r *Room) Count() int { return int(r.all.Load()) }

// Refused is how many found no place, and why.
func (r *Room) Refused() *Refused { return &r.refused }

// NoPlace stands for the place of a request that found none.
const NoPlace = -1

// Enter finds a place for a request of somebody, among most, or NoPlace. There are never more than
// most in a place: each saw a count of no more when it came, its own included.
func (r *Room) Enter(most int64, who *identity.Principal, part Part) (place int) {
	queue := r.shortest(handOf(r.hash(who)))
	share := most / 2 / queues // 0 if there is less room than two for a queue: all of it is for whoever comes
	all, mine, ofClass := r.all.Add(1), r.queued[queue].Add(1), r.ofClass[part.Class].Add(1)
	place = queue + queues*int(part.Class)
	switch {
	case all > most:
		r.refused.Full.Add(1)
	case all > most-most*int64(part.Kept)/100 && ofClass > most*int64(part.Guaranteed)/100:
		r.refused.LowerClass.Add(1)
	case all > most-queues*share && mine > share:
		r.refused.BeyondShare.Add(1)
	default:
		return place
	}
	r.Leave(place)
	return NoPlace
}

// Leave gives back the place that Enter found, if it did.
func (r *Room) Leave(place int) {
	if place != NoPlace {
		r.queued[place%queues].Add(-1)
		r.ofClass[place/queues].Add(-1)
		r.all.Add(-1)
	}
}

// shortest is the queue of a hand that fewest are in.
func (r *Room) shortest(hand [handSize]uint8) (queue int) {
	queue = int(hand[0])
	for _, q := range hand[1:] {
		if r.queued[q].Load() < r.queued[queue].Load() {
			queue = int(q)
		}
	}
	return queue
}

// handOf deals handSize different queues, every hand as likely as any other (R. W. Floyd, A Sample of Brilliance,
// Communications of the ACM 30(9), 1987). There are 3.7e11 hands, and a hash has bits enough for each draw.
func handOf(hash uint64) (hand [handSize]uint8) {
	for n := range hand {
		last := uint64(queues - handSize + n)
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
func (r *Room) hash(who *identity.Principal) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
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
