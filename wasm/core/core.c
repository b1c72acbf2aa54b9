// The arithmetic alone, as a module that asks nothing of its host: one bucket at a time, whose shape and state stand
// in memory where the host reads and writes them.
//
//	at_bucket() -> where it stands: shape (4 i64), state (2 i64), outcome (3 i64, 2 i32)
//	take(now, cost) -> 1 if it is allowed
#include "bucket.h"

static struct {
	struct shape shape;
	struct state state;
	struct outcome outcome;
} bucket;

__attribute__((export_name("at_bucket"))) void *at_bucket(void) { return &bucket; }

__attribute__((export_name("take"))) int take(i64 now, i64 cost) {
	i64 weight = units(&bucket.shape, cost);
	int allowed = charge(&bucket.state, now, &bucket.shape, weight);
	report(bucket.state, now, &bucket.shape, weight, allowed, &bucket.outcome);
	return allowed;
}
