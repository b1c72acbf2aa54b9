package headgate

import "github.com/headgate-io/headgate/policy"

// Learner is what Buckets may be besides. One that forgets full buckets, and
// would remember them if their limit had become slower before, has to hear of
// a change before the first take under it. bucket/memory implements it.
type Learner interface {
	// Learn says that limits changed at the Unix time since in nanoseconds.
	Learn(since int64)
}

// rules returns the rules in force, or nil, and tells the buckets when they are
// others than before, or a temporary one has ended.
func (l *Limiter) rules(now int64) *policy.Set {
	set := l.policies.Set()
	if wall := l.clock.Wall(now); set != l.told.Load() || wall >= l.due.Load() {
		l.inform(set, now, wall)
	}
	return set
}

// inform may be called more than once for one Set, and for one that was in force
// earlier by a request that was late. Neither does any harm.
func (l *Limiter) inform(set *policy.Set, now, wall int64) {
	if set != nil {
		if l.learn != nil {
			since := set.Since()
			if end := set.LastEnd(wall); end != 0 {
				since = max(since, end-(wall-now))
			}
			l.learn.Learn(since)
		}
		l.due.Store(set.NextEnd(wall))
	}
	l.told.Store(set)
}
