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
// others than before.
func (l *Limiter) rules() *policy.Set {
	set := l.policies.Set()
	if set != l.told.Load() {
		l.inform(set)
	}
	return set
}

// inform may be called more than once for one Set, and for one that was in force
// earlier by a request that was late. Neither does any harm.
func (l *Limiter) inform(set *policy.Set) {
	if l.learn != nil && set != nil {
		l.learn.Learn(set.Since())
	}
	l.told.Store(set)
}
