package activity

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
)

// Scored are the callers with the highest scores, with what they are called: MostScored of them. A caller comes in at
// the cost of one whose score was lower when it was seen last.
type Scored struct {
	names *Names
	sets  [scoredSets]scoredSet
}

const (
	scoredSets = 128

	// MostScored is how many callers there are in Scored.
	MostScored = scoredSets * ways
)

type scoredSet struct {
	mu      sync.Mutex
	entries [ways]scoredEntry // guarded by mu
}

type scoredEntry struct {
	key   key.Key // zero if it is free
	who   identity.Principal
	total uint8
}

// NewScored returns Scored that are called by names.
func NewScored(names *Names) *Scored { return &Scored{names: names} }

// Note notes the score of a caller. It fits headgate.Options.Scored.
func (s *Scored) Note(who *identity.Principal, score anomaly.Score) {
	if score.Total == 0 {
		return // who had a score before is left out once somebody asks
	}
	k := s.names.name(who)
	set := &s.sets[k.Hi%scoredSets]
	set.mu.Lock()
	defer set.mu.Unlock()
	least := &set.entries[0]
	for i := range set.entries {
		e := &set.entries[i]
		if e.key == k {
			e.total = score.Total
			return
		}
		if e.total < least.total {
			least = e
		}
	}
	if least.key == (key.Key{}) || least.total < score.Total {
		whole := kept(who) // its name all of it, or its score would be another's: of a token that is bounded
		whole.ID, whole.Project = strings.Clone(who.ID), strings.Clone(who.Project)
		*least = scoredEntry{key: k, who: whole, total: score.Total}
	}
}

// Top yields the callers with the highest scores at present, the highest first, at most so many, and how many of those
// that are remembered have one. Now says what the score of one is now. With reveal they have their names.
func (s *Scored) Top(most int, reveal bool, now func(*identity.Principal) uint8) (callers []ScoredCaller, all int) {
	callers = []ScoredCaller{}
	for i := range s.sets {
		set := &s.sets[i]
		set.mu.Lock()
		for j := range set.entries {
			e := &set.entries[j]
			if e.key == (key.Key{}) {
				continue
			}
			if e.total = now(&e.who); e.total == 0 {
				*e = scoredEntry{}
				continue
			}
			callers = append(callers, ScoredCaller{shown(s.names.shown(e.key), &e.who, reveal), e.who, e.total})
		}
		set.mu.Unlock()
	}
	slices.SortFunc(callers, func(a, b ScoredCaller) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Hash, b.Hash))
	})
	return callers[:min(len(callers), most)], len(callers)
}

// ScoredCaller is one with a score.
type ScoredCaller struct {
	Caller
	Who   identity.Principal
	Total uint8
}
