package redis

import (
	"context"
	"slices"
	"sync"
)

// In a cluster one script reaches the buckets of one tag. A decision over several tags runs a
// script for each, all at the same time. If one denies, or fails, those that charged give back what
// they took, less what has drained since (bucket.State.Refund), so nothing is ever granted by it.
// What is not given back, because the request's time was up or a server went away, is lost to the
// client, and no more than it asked for.

// byTag puts the claims of one tag together, in the order in which they come.
func byTag(claims []*claim) (groups [][]*claim) {
next:
	for _, c := range claims {
		for g := range groups {
			if groups[g][0].take.Tag == c.take.Tag {
				groups[g] = append(groups[g], c)
				continue next
			}
		}
		groups = append(groups, []*claim{c})
	}
	return groups
}

// tagged is things about buckets in groups that one script each can do: in a cluster those of one tag, and else all.
type tagged[T any] struct {
	cluster bool
	numbers map[uint16]int
	groups  [][]T
}

// add adds one about a bucket of a tag, and says which group that is.
func (t *tagged[T]) add(tag uint16, one T) (number int) {
	if !t.cluster {
		tag = 0
	}
	number, ok := t.numbers[tag]
	if !ok {
		if t.numbers == nil {
			t.numbers = map[uint16]int{}
		}
		number = len(t.groups)
		t.numbers[tag], t.groups = number, append(t.groups, nil)
	}
	t.groups[number] = append(t.groups[number], one)
	return number
}

// each does all groups at the same time.
func (t *tagged[T]) each(do func(group []T)) {
	if len(t.groups) > 0 {
		each(len(t.groups), func(g int) { do(t.groups[g]) })
	}
}

// apart decides groups of claims, all or none.
func (s *Store) apart(ctx context.Context, now int64, groups [][]*claim, charge bool) (bool, error) {
	allowed, errs := make([]bool, len(groups)), make([]error, len(groups))
	each(len(groups), func(g int) { allowed[g], errs[g] = s.together(ctx, now, groups[g], charge) })
	all := !slices.Contains(allowed, false)
	if all {
		return true, nil
	}
	each(len(groups), func(g int) {
		switch {
		case !allowed[g]:
		case charge:
			s.giveBack(ctx, now, groups[g])
		default:
			for _, c := range groups[g] {
				c.state.Debt -= c.charged() // as it was found
			}
		}
	})
	return false, first(errs)
}

// giveBack undoes what a group was charged. When it cannot, the answer is a denial all the same,
// and no error: whoever lets requests pass when the store does not answer must not let this one.
func (s *Store) giveBack(ctx context.Context, now int64, group []*claim) {
	for _, c := range group {
		units := c.charged()
		switch {
		case units > 0 && c.isPlace():
			if _, err := s.places(ctx, now, []placing{{key: c.key, place: c.shape.name}}); err != nil {
				return
			}
		case units > 0:
			back := shift{units: -units}
			// in whose microsecond the bucket may have been filled
			back.ofCharge(c.shape, units, micros(c.at), micros(c.at)-1)
			if _, err := s.shift(ctx, now, c, back); err != nil {
				return
			}
		}
	}
}

// each calls do for 0 to n-1, all at the same time; the last on this goroutine.
func each(n int, do func(int)) {
	var wg sync.WaitGroup
	for i := range n - 1 {
		wg.Go(func() { do(i) })
	}
	do(n - 1)
	wg.Wait()
}

func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
