// The bucket: the debt of those who took from it, in exact integers. It is package bucket's state.go and package
// rate's units, for limits that drain all the time; TestSameDecisions compares every answer of both, and with what
// proofs/ proves.
#ifndef BUCKET_H
#define BUCKET_H
#include "number.h"

// Of rate.Shape: units that drain in a tick, units of a token and of all tokens, nanoseconds in a tick.
struct shape {
	i64 drain, unit, capacity, tick;
};

// Of bucket.State: Debt units were outstanding at stamp. Zero is a full bucket.
struct state {
	i64 debt, stamp;
};

// Of bucket.Outcome; times in nanoseconds.
struct outcome {
	i64 remaining, retry, reset;
	u32 allowed, never;
};

// units are what a cost weighs, or -1 if no bucket of the shape can pay it.
static i64 units(const struct shape *sh, i64 cost) {
	u64 low;
	if (cost < 0 || !sh->unit || multiply(cost, sh->unit, &low) || low > (u64)sh->capacity)
		return -1;
	return low;
}

// drain lets time pass until now, in whole ticks, and returns how much has drained since the last of them.
static __attribute__((noinline)) i64 drain(struct state *s, i64 now, const struct shape *sh) {
	if (now <= s->stamp || !sh->tick)
		return 0;
	u64 low, high, owed, owedHigh, elapsed = (u64)now - (u64)s->stamp;
	high = multiply(elapsed, sh->drain, &low);
	owedHigh = multiply(s->debt, sh->tick, &owed);
	if (high > owedHigh || (high == owedHigh && low >= owed)) {
		s->debt = 0;
		s->stamp = now;
		return 0;
	}
	u64 whole = elapsed / sh->tick, part = elapsed % sh->tick;
	s->debt -= whole * sh->drain;
	s->stamp += whole * sh->tick;
	return part * sh->drain / sh->tick;
}

// charge adds units of debt if they fit, and says whether they did.
static int charge(struct state *s, i64 now, const struct shape *sh, i64 units) {
	if (units <= 0)
		return !units;
	struct state d = *s;
	i64 credit = drain(&d, now, sh);
	if (d.debt - credit > sh->capacity - units)
		return 0;
	d.debt += units;
	*s = d;
	return 1;
}

// until is the time from now until units of debt have drained since a stamp.
static __attribute__((noinline)) i64 until(i64 stamp, i64 now, const struct shape *sh, i64 units) {
	if (units <= 0)
		return 0;
	i64 wait = scale(units, sh->tick, sh->drain - 1, sh->drain);
	u64 apart = now >= stamp ? (u64)now - (u64)stamp : (u64)stamp - (u64)now;
	if (now >= stamp)
		return apart > (u64)wait ? 0 : wait - (i64)apart;
	return apart > (u64)(LATEST - wait) ? LATEST : wait + (i64)apart;
}

// report says how the bucket stands after charge was asked for units and answered allowed.
static void report(struct state s, i64 now, const struct shape *sh, i64 units, int allowed, struct outcome *o) {
	o->allowed = allowed;
	o->never = !allowed && (units < 0 || units > sh->capacity);
	o->remaining = o->retry = o->reset = 0;
	if (sh->drain <= 0)
		return;
	i64 credit = drain(&s, now, sh), left = sh->capacity - s.debt + credit;
	o->remaining = left < 0 ? 0 : left / sh->unit;
	o->reset = until(s.stamp, now, sh, s.debt);
	if (!allowed && !o->never)
		o->retry = until(s.stamp, now, sh, s.debt + units - sh->capacity);
}

#endif
