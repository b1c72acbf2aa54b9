// Package redis keeps buckets in Redis, or in a server that speaks its language, so that many processes share them.
//
// A decision is one script on the server: it reads the buckets named, lets their debts drain by the
// server's own clock, and charges all or none. The arithmetic is that of package bucket, in whole
// numbers; what is reported about a bucket is computed here, from the debt that the script answers.
// So the answers are those of bucket/memory, but times are told apart to a microsecond, which is
// what the server's clock can do: waits are rounded up to one.
//
//	store, err := redis.New(redis.Options{Server: client})
//	allowed, err := store.TryConsume(ctx, 0, takes, outs)
//
// The package links no client. Server is whatever can run a script: one method.
//
// An [Authority] answers the questions of bucket/lease for tokens of the same buckets, and
// [Members] tells how many replicas there are.
//
// # What is kept
//
// A bucket in debt is one string of some 20 bytes, which expires when the debt has drained; a full
// bucket is nothing at all. Its name is the configured prefix, the tag of whose it is in braces,
// and 56 bits that only who has the secret can compute (key.Namer).
//
// Places among the requests under way are a sorted set for each caller, with a name for each place.
// It expires as well; see place.lua.
//
// # What can go wrong
//
// An error means that no decision was made, and is an *Error that says why. A request whose answer
// was lost may have been charged; none is ever admitted without. If the server loses its memory,
// buckets are full again: each may admit its burst once more.
//
// # Changed limits
//
// A bucket carries the shape that it was left under. Whoever finds another one than its own
// converts the bucket as bucket.Held does, and puts it back if it has not changed meanwhile: one
// more trip, once a bucket and change. See follow.go for replicas that do not hear of a change at
// the same time, and for buckets that expired before anybody could convert them.
package redis
