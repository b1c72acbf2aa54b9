package bucket

import "context"

// Store keeps the state of every budget. bucket/memory, bucket/redis and
// bucket/scoped do, and bucket/buckettest is its contract as tests. It is safe for
// concurrent use, and times are in Unix nanoseconds.
//
// What only some stores can do besides is a type of its own: Learner, Sharer.
// headgate.New asks the store which of them it is.
type Store interface {
	// TryConsume takes from all buckets or from none, and writes takes[i]'s
	// outcome to outs[i]. An error means that it could not find out; nothing was
	// taken then.
	TryConsume(ctx context.Context, now int64, takes []Take, outs []Outcome) (bool, error)

	// Peek answers what TryConsume would, and changes nothing.
	Peek(ctx context.Context, now int64, takes []Take, outs []Outcome) (bool, error)

	// Correct changes the debts of buckets outside of any request, one after the
	// other, and writes to moved[i] how many units of changes[i] it added, or took
	// off when below zero. An error means that nothing was changed; but what is
	// shared may have been, as an answer may get lost. What several processes
	// share has to see to Change.Charged: a headgate.Limiter knows of its own
	// reservations alone.
	Correct(ctx context.Context, now int64, changes []Change, moved []int64) error
}

// Learner is a Store that has to hear of a change before the first take under it,
// because it forgets full buckets, and would remember them if their limit had
// become slower before. bucket/memory is one.
type Learner interface {
	// Learn says that limits changed at since, and that no bucket owes at settled
	// what it owed then. It comes before the first take under the new limits, and
	// with a since of 0 if there were none before.
	Learn(since, settled int64)
}

// Sharer is a Store that knows how many replicas there are. bucket/scoped is one.
type Sharer interface {
	// Sharing says how buckets are shared at this moment.
	Sharing() Sharing
}
