// A bounded table of buckets: sets of 16, which never grow. A bucket without debt is a free place. Where all 16 owe
// something, the one that will be full first makes room, and its set remembers when that would have been: whoever is new
// in the set is taken to owe as much. So what is forgotten never grants a token (bucket/memory does the same, finer).
#ifndef BUCKETS_H
#define BUCKETS_H
#include "data.h"

#define SLOTS 16
#define CLASSES 4 // of rules, by how long a whole burst takes to come back: debts of one say nothing about another's

struct slot {
	u64 name; // a keyed hash; its lowest bits are the class
	i64 debt, stamp, full;
};
struct set {
	i64 doubt[CLASSES];
	struct slot slots[SLOTS];
};

static u64 seed[2]; // drawn by the host at random

// seek is the bucket's slot, or else the one that is full first.
static struct slot *seek(struct set *set, u64 name) {
	struct slot *first = set->slots;
	for (int i = 0; i < SLOTS; i++) {
		struct slot *s = set->slots + i;
		if (s->name == name)
			return s;
		if (s->full < first->full)
			first = s;
	}
	return first;
}

// load is what is known of a bucket.
static struct state load(struct set *set, u64 name, const struct shape *sh, i64 now) {
	struct slot *s = seek(set, name);
	struct state state = {s->debt, s->stamp};
	i64 doubt = set->doubt[name % CLASSES];
	if (s->name != name) {
		state.debt = 0, state.stamp = 0;
		if (doubt > now) {
			i64 owed = scale(doubt - now, sh->drain, 0, sh->tick), most = sh->capacity + sh->drain;
			state.debt = owed < most ? owed + 1 : most;
			state.stamp = now;
		}
	}
	return state;
}

static void save(struct set *set, u64 name, const struct shape *sh, i64 now, struct state state) {
	struct slot *s = seek(set, name);
	i64 wait = scale(state.debt, sh->tick, sh->drain - 1, sh->drain);
	i64 full = state.stamp > LATEST - wait ? LATEST : state.stamp + wait;
	if (s->name != name && s->full > now) {
		u64 forgotten = s->full < full ? s->name : name; // the nearer to full of the two
		i64 *doubt = &set->doubt[forgotten % CLASSES], until = s->full < full ? s->full : full;
		if (*doubt < until)
			*doubt = until;
		if (forgotten == name)
			return;
	}
	*s = (struct slot){name, state.debt, state.stamp, full};
}

#endif
