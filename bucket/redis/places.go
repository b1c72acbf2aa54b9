package redis

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// A limit on requests under way is a sliding log in a process: counts are all that it needs, as one process gives each
// place back once. What several share counts places by their names, because an answer may get lost, a message may
// arrive twice or late, and a process may stand still until others have its places; see place.lua.

// countsPlaces reports whether a limit is one on requests under way: no other is shared that is counted in logs.
func countsPlaces(s *rate.Shape) bool { return s.Algorithm == rate.SlidingLog }

// keptFor is for how many seconds places are kept, rounded up.
func keptFor(s *rate.Shape) int64 {
	const second = int64(time.Second)
	return min((s.Tick-1)/second+1, longestKept)
}

// longestKept is the most that place.lua has room for, in seconds.
const longestKept = 4094

// shapeOf is the limit of a take as the server counts it.
func (s *Store) shapeOf(t *bucket.Take) (*shape, error) {
	if t.Place == 0 || !countsPlaces(&t.Shape) {
		return s.shapes.of(t.Shape)
	}
	return &shape{
		Shape:   t.Shape,
		own:     t.Shape.Unit,
		numbers: string(appendDoubles(nil, 0, keptFor(&t.Shape), t.Shape.Capacity)),
		name:    s.nameOf(t.Place),
	}, nil
}

// nameOf names a place that this store takes.
func (s *Store) nameOf(place uint32) string {
	return string(binary.BigEndian.AppendUint32(s.own[:len(s.own):len(s.own)], place))
}

func (c *claim) isPlace() bool { return countsPlaces(&c.shape.Shape) }

// addPlace is add for a place: one request has one, however many takes name its bucket.
func (c *claim) addPlace(t *bucket.Take) {
	switch {
	case t.Cost <= 0 || c.units == 1:
	case t.Shadow:
		c.shadow = 1
	default:
		c.units, c.shadow = 1, 0
	}
}

// reportPlace says how many places are left. When one of those that are taken is given back nobody knows.
func (c *claim) reportPlace(o *bucket.Outcome, allowed bool) {
	*o = bucket.Outcome{Allowed: allowed, Remaining: max(0, c.take.Shape.Capacity-c.state.Debt)}
	if c.state.Debt > 0 {
		o.ResetAfter = time.Duration(c.take.Shape.Tick)
	}
	if !allowed {
		o.RetryAfter = time.Duration(c.take.Shape.Tick)
	}
}

// placing is a place to be taken anew, or to be given back.
type placing struct {
	key     string
	place   string // empty for whichever places there are
	seconds int64  // to keep it for, 0 to give it back
	most    int64  // to give back if none is named

	change int // in the list that asks for it
}

// mostPlaced bounds the places of one message: the server does nothing else meanwhile, and requests wait for it.
const mostPlaced = 64

// correctPlaces makes those changes that are of places.
func (s *Store) correctPlaces(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	groups := tagged[placing]{cluster: s.cluster}
	var room [64]byte
	for i := range changes {
		c := &changes[i]
		if !countsPlaces(&c.Shape) || c.Units >= 0 && !c.Renew {
			continue
		}
		of := bucket.Take{Key: c.Key, Tag: c.Tag}
		one := placing{key: string(appendBucket(room[:0], s.prefix, &of)), change: i, most: exact / 2}
		if c.Place != 0 {
			one.place = s.nameOf(c.Place)
		} else if c.Units > -one.most {
			one.most = -c.Units
		}
		if c.Renew {
			one.seconds = keptFor(&c.Shape)
		}
		groups.add(c.Tag, one)
	}
	failed := make([]error, len(groups.groups))
	if len(failed) == 0 {
		return nil
	}
	each(len(failed), func(g int) {
		all := groups.groups[g]
		for len(all) > 0 && failed[g] == nil {
			n := min(len(all), mostPlaced)
			var found []int64
			if found, failed[g] = s.places(ctx, now, all[:n]); failed[g] == nil {
				for i, one := range all[:n] {
					moved[one.change] = -found[i]
					if changes[one.change].Renew {
						moved[one.change] = 1
					}
				}
			}
			all = all[n:]
		}
	})
	return first(failed)
}

// places takes places anew and gives places back, which one script has to reach, and says of each how many were taken.
func (s *Store) places(ctx context.Context, now int64, all []placing) ([]int64, error) {
	keys, args := make([]string, len(all)), make([]string, len(all))
	for i, one := range all {
		keys[i] = one.key
		args[i] = string(append(appendDoubles(nil, s.time(now), one.seconds, one.most), one.place...))
	}
	answer, err := s.run(ctx, placesScript, keys, args)
	if err != nil {
		return nil, err
	}
	found := make([]int64, len(all))
	if len(answer) != 1+len(all) {
		return nil, unreadable(answer)
	}
	for i := range found {
		n, ok := number(answer[1+i])
		if !ok {
			return nil, unreadable(answer)
		}
		found[i] = min(n, math.MaxInt32)
	}
	return found, nil
}
