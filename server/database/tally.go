package database

import "hash/maphash"

// tally counts what a fold would, and keeps of each place two numbers where a
// fold keeps rules: the changes of a shell may be twice as many as there are
// rules.
//
// The images of one place come to three: how often it became, less how often it
// was; and the hashes of what it became, less those of what it was. A step that
// leads where the next one begins cancels out in both.
type tally struct {
	seed   maphash.Seed
	places map[uint64]balance // by hash of the place
}

type balance struct {
	rules uint64
	signs int32
}

func newTally() tally { return tally{maphash.MakeSeed(), map[uint64]balance{}} }

func (t *tally) add(i image) {
	what := maphash.Comparable(t.seed, i.content())
	at := what // where there is no place
	if !i.lost {
		at = maphash.Comparable(t.seed, placeOf(i.rule))
	}
	b := t.places[at]
	b.signs += int32(i.sign)
	b.rules += uint64(i.sign) * what
	if b == (balance{}) {
		delete(t.places, at) // as it was
		return
	}
	t.places[at] = b
}

func (t *tally) count() (added, changed, removed int) {
	for _, b := range t.places {
		switch {
		case b.signs > 0:
			added++
		case b.signs < 0:
			removed++
		default:
			changed++
		}
	}
	return added, changed, removed
}
