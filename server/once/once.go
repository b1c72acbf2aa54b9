// Package once remembers what may be used once, in bounded memory.
package once

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/siphash"
)

// A name is kept as its 128-bit SipHash under a secret of this process, in one of the sets of its holder's region,
// with the time at which it was made. A full set gives up the name that was made first, and keeps that time as its
// floor: a name made no later may be the one that was given up, and counts as used. So whatever comes, nothing is
// used twice, if the clock steps back or names turn out to be good for longer; what shrinks under a flood is how
// old a name may be that comes for the first time.
//
//	set with room for two, and floor 0:  a made at 60, b at 70
//	c comes, made at 80                  b at 70, c at 80, floor 60
//	a comes again                        used: not after the floor
//
// A holder's names are all in one of eight regions, so that whoever floods with names of his own narrows the time
// of an eighth of the others. Names that say they will be made later have half of a set at most: given up, they would
// leave a floor that is ahead of the clock, and nothing that is made now could be used until then.

const (
	ways    = 8
	regions = 8
)

// Others are processes that remember names together.
type Others interface {
	// Use reports whether a name was used by none of them, and notes that it is now. It is not known where they cannot
	// be asked in time.
	Use(holder, name string, made time.Time) (fresh, known bool)
}

// Memory remembers names. It may be used concurrently.
type Memory struct {
	others Others
	secret siphash.Key
	sets   []set // those of a region one after the other
}

type set struct {
	mu    sync.Mutex
	floor int64 // guarded by mu
	names [ways]name
}

// name is free while its hash is zero.
type name struct {
	hash [2]uint64 // guarded by set.mu
	made int64     // guarded by set.mu; Unix nanoseconds
}

// New returns a Memory of size names at least, at 26 bytes each. Sizes are rounded up to a power of two. Others, if
// there are any, are asked about each name that is used here for the first time; what they do not know is good here.
func New(size int, others Others) *Memory {
	var secret [siphash.Size]byte
	if _, err := rand.Read(secret[:]); err != nil {
		panic(err) // crypto/rand.Read never fails unless its Reader was replaced
	}
	sets := regions
	for sets*ways < size {
		sets *= 2
	}
	return &Memory{others: others, secret: siphash.New(secret), sets: make([]set, sets)}
}

// Use reports whether name, which says that it was made then, was not used before, and notes that it is now. It always
// says the same of when it was made. The names of different holders are different names.
func (m *Memory) Use(holder, name string, made, now time.Time) bool {
	if !m.look(holder, name, made, now, true) {
		return false
	}
	if m.others == nil {
		return true
	}
	fresh, known := m.others.Use(holder, name, made)
	return fresh || !known
}

// Used reports the opposite of what Use would, as far as is known without asking others, and notes nothing.
func (m *Memory) Used(holder, name string, made, now time.Time) bool {
	return !m.look(holder, name, made, now, false)
}

func (m *Memory) look(holder, text string, made, now time.Time, use bool) (fresh bool) {
	b := binary.AppendUvarint(make([]byte, 0, 128), uint64(len(holder))) // so that no two pairs are one text
	b = append(b, holder...)
	perRegion := uint64(len(m.sets) / regions)
	region := m.secret.Sum64(b) % regions
	b = append(b, text...)
	lo, hi := m.secret.Sum128(b)
	s := &m.sets[region*perRegion+lo%perRegion]
	return s.look([2]uint64{hi, lo | 1}, made.UnixNano(), now.UnixNano(), use)
}

func (s *set) look(hash [2]uint64, made, now int64, use bool) (fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, ahead := 0, 0
	for i := range s.names {
		n := &s.names[i]
		if n.hash == hash {
			return false
		}
		if n.made < s.names[first].made {
			first = i
		}
		if n.made > now {
			ahead++
		}
	}
	if made <= s.floor || made > now && ahead >= ways/2 {
		return false
	}
	if use {
		n := &s.names[first]
		s.floor = max(s.floor, n.made)
		*n = name{hash, made}
	}
	return true
}
