// One request's way: endpoint, caller, rules, buckets, answer. Whoever includes it is a door (plain.c, proxy.c), and says
// where shared buckets are, if there are any.
#ifndef ENGINE_H
#define ENGINE_H
#include "buckets.h"
#include "caller.h"

struct request {
	struct asked asked;
	struct caller caller;
	i64 now;
	int timeless; // nobody could say what time it is
};

struct writer {
	u8 *at, *end;
};

struct verdict {
	u32 status; // 0: the request passes
	u32 why;    // which of the texts at atRefusals, if status is 400, 404 or 405
	i64 retry;  // nanoseconds, if it is 429
	u32 wouldDeny, lost;
	const struct list *list;
	u32 count; // of takes
};

struct take {
	const struct rule *rule;
	u64 name;
	struct state state;
	struct outcome outcome;
	i64 units;
	u32 shadow, unknown, page, cas;
	struct set *set;
};

static struct take takes[MAX_TAKES];

// Of the door: the page of a shared bucket, 0 if it cannot be had; and whether it was written: 0, 1 if another was faster,
// 2 if it cannot be.
static struct set *readPage(u32 page, u32 *cas);
static int writePage(u32 page, const struct set *set, u32 cas);

#define HEADER AT(struct header, 0)

static u64 nameOf(const struct rule *r, u64 endpoint, const struct caller *c) {
	u64 words[6] = {r->number, endpoint, 0, 0, 0, 0};
	u32 by = r->subject;
	if (by == PROJECT && c->key && c->key->project)
		words[2] = 'p', words[3] = c->key->project;
	else if ((by == PRINCIPAL || by == PRINCIPAL_IP) && c->key) {
		words[2] = 'k', words[3] = c->key->number;
	} else if (by != ENDPOINT)
		by = IP;
	if (by == IP || by == PRINCIPAL_IP || by == SITE) {
		words[2] += c->kind;
		words[4] = c->high, words[5] = c->low;
		if (r->subject == SITE && c->kind == 6)
			words[4] &= ~0ULL << 16, words[5] = 0;
	}
	u64 h = 0;
	for (int i = 0; i < 6; i++)
		h = mix(words[i] ^ h ^ seed[0], seed[1] + i * SPREAD);
	return (h & ~3ULL) | r->class;
}

// ask is one look at a bucket, whose set is there.
static int ask(struct take *t, i64 now) {
	const struct shape *sh = &t->rule->shape;
	struct state before = t->state = load(t->set, t->name, sh, now);
	int allowed = charge(&t->state, now, sh, t->units);
	report(allowed ? t->state : before, now, sh, t->units, allowed, &t->outcome);
	return allowed;
}

static void fetchSet(struct take *t) {
	if (t->rule->flags & SHARED)
		t->set = readPage(t->page, &t->cas);
	t->unknown = !t->set;
}

// put writes a shared bucket down: 0 if it was, 1 if there is no room any more, 2 if it cannot be.
static int put(struct take *t, i64 now) {
	for (int tries = 0; tries < 16; tries++) {
		save(t->set, t->name, &t->rule->shape, now, t->state);
		int wrote = writePage(t->page, t->set, t->cas);
		if (!wrote)
			return 0;
		if (wrote > 1)
			break;
		fetchSet(t);
		if (t->unknown)
			break;
		if (!ask(t, now))
			return 1;
	}
	t->unknown = 1;
	return 2;
}

// undo takes a charge back from a shared bucket, less what has drained of it meanwhile; a charge that cannot be taken back
// stays.
static void undo(struct take *t, i64 now) {
	const struct shape *sh = &t->rule->shape;
	for (int tries = 0; tries < 16; tries++) {
		fetchSet(t);
		if (t->unknown)
			return;
		struct state s = load(t->set, t->name, sh, now);
		i64 back = t->units;
		drain(&s, now, sh);
		if (s.stamp > now)
			back -= scale(s.stamp - now, sh->drain, sh->tick - 1, sh->tick);
		if (back > 0)
			s.debt = s.debt > back ? s.debt - back : 0;
		save(t->set, t->name, sh, now, s);
		if (writePage(t->page, t->set, t->cas) != 1)
			return;
	}
}

static struct verdict refuse(u32 status, u32 why) { return (struct verdict){.status = status, .why = why}; }

static int denies(const struct take *t) { return !t->shadow && !t->unknown && !t->outcome.allowed; }

// settle takes from all buckets, or from none.
static int settle(struct verdict *v, i64 now) {
	u32 n = v->count, i;
	int denied = 0;
	for (i = 0; i < n; i++) {
		struct take *t = takes + i;
		if (t->unknown)
			continue;
		if (!ask(t, now) && !t->shadow)
			denied = 1;
	}
	for (i = 0; i < n && !denied; i++) {
		struct take *t = takes + i;
		if (t->unknown || !t->outcome.allowed || !(t->rule->flags & SHARED) || t->units <= 0)
			continue;
		int lost = put(t, now);
		if (lost && !t->shadow && (lost == 1 || !(t->rule->flags & OPEN))) {
			denied = 1;
			while (i--)
				if ((takes[i].rule->flags & SHARED) && !takes[i].unknown && takes[i].outcome.allowed && takes[i].units > 0)
					undo(takes + i, now);
			break;
		}
	}
	for (i = 0; i < n; i++) {
		struct take *t = takes + i;
		if (t->unknown || (t->rule->flags & SHARED))
			continue;
		if (!denied && t->outcome.allowed && t->units > 0)
			save(t->set, t->name, &t->rule->shape, now, t->state);
	}
	if (denied) // what is told is how the buckets stay
		for (i = 0; i < n; i++)
			if (!takes[i].unknown && takes[i].outcome.allowed) {
				struct take *t = takes + i;
				report(load(t->set, t->name, &t->rule->shape, now), now, &t->rule->shape, t->units, 1, &t->outcome);
			}
	return !denied;
}

static struct verdict judge(struct request *r) {
	const struct header *d = HEADER;
	u32 named = 0; // which of the methods that are refused is asked for: of messages, and last TRACE
	while (named < d->refused && !is(r->asked.method, r->asked.methodLength, AT(struct text, d->atRefused) + named))
		named++;
	if (named + 1 < d->refused)
		return refuse(405, NO_METHOD);
	struct match m = match(AT(struct table, d->atTable), &r->asked);
	if (m.status == INVALID)
		return refuse(400, m.fault);
	if (m.status != KNOWN && d->flags & REJECT_UNKNOWN &&
	    !(m.status == UNKNOWN_METHOD && r->asked.methodLength == 7 && same(r->asked.method, (const u8 *)"OPTIONS", 7)))
		return m.status == UNKNOWN_PATH ? refuse(404, NO_PATH) : refuse(405, NO_METHOD);
	if (m.status != KNOWN && named < d->refused) // an answer to TRACE repeats the request with its credentials
		return refuse(405, NO_METHOD);
	u32 class = r->caller.key ? r->caller.key->class : 0;
	struct verdict v = {0};
	v.list = AT(struct list, d->atLists) + AT(u16, d->atMatrix)[class * (d->endpoints + 1) + m.id];
	v.count = v.list->count;
	i64 cost = AT(i64, d->atCosts)[m.id];
	u32 closed = 0;
	for (u32 i = 0; i < v.count; i++) {
		const struct entry *e = AT(struct entry, v.list->atEntries) + i;
		struct take *t = takes + i;
		t->rule = AT(struct rule, d->atRules) + e->rule;
		t->shadow = e->flags & SHADOW;
		t->name = nameOf(t->rule, e->flags & EVERY_ENDPOINT ? ~0ULL : AT(u64, d->atNumbers)[m.id], &r->caller);
		t->units = units(&t->rule->shape, cost);
		t->page = t->name >> 2 & d->pages;
		t->set = (struct set *)d->memory + (t->name >> 2 & d->sets);
		fetchSet(t);
		t->unknown |= r->timeless;
		if (t->unknown && !t->shadow) {
			v.lost = 1;
			closed |= !(t->rule->flags & OPEN);
		}
	}
	if (closed) {
		v.status = 503;
		return v;
	}
	int allowed = settle(&v, r->now);
	for (u32 i = 0; i < v.count; i++) {
		struct take *t = takes + i;
		if (t->unknown) {
			v.lost = 1;
			if (!t->shadow && !(t->rule->flags & OPEN))
				v.status = 503;
		} else if (!t->outcome.allowed && t->shadow)
			v.wouldDeny++;
	}
	if (!allowed && !v.status) {
		v.status = 429;
		for (u32 i = 0; i < v.count; i++)
			if (denies(takes + i) && takes[i].outcome.retry > v.retry)
				v.retry = takes[i].outcome.retry;
	}
	return v;
}

// What is told. A writer that is full writes nothing more.

static __attribute__((noinline)) void put1(struct writer *w, u8 c) {
	if (w->at < w->end)
		*w->at++ = c;
}
static __attribute__((noinline)) void putText(struct writer *w, const u8 *s, u32 n) {
	while (n--)
		put1(w, *s++);
}
static void putAt(struct writer *w, const struct text *t) { putText(w, data + t->at, t->length); }

static __attribute__((noinline)) void putNumber(struct writer *w, u64 n) {
	if (n > 9)
		putNumber(w, n / 10);
	put1(w, '0' + n % 10);
}

static i64 seconds(i64 ns) { return ns / 1000000000 + (ns % 1000000000 > 0); }

// untilMore is how long until the bucket holds more than now (httplimit.untilMore, in the same floating point).
static i64 untilMore(const struct take *t) {
	const struct rule *r = t->rule;
	const struct outcome *o = &t->outcome;
	if (o->never)
		return 0;
	if (!o->allowed)
		return o->retry;
	i64 missing = r->burst - o->remaining - 1;
	if (missing < 0)
		return 0;
	return o->reset - (i64)((double)missing * (double)r->per / (double)r->limit);
}

// putQuotas writes RateLimit, after draft-ietf-httpapi-ratelimit-headers-10 section 4.
static void putQuotas(struct writer *w, const struct verdict *v) {
	const u8 *start = w->at;
	for (u32 i = 0; i < v->count; i++) {
		const struct take *t = takes + i;
		if (t->shadow || t->unknown)
			continue;
		if (w->at > start)
			putText(w, (const u8 *)", ", 2);
		putAt(w, &t->rule->name);
		putText(w, (const u8 *)";r=", 3);
		putNumber(w, t->outcome.remaining);
		i64 wait = untilMore(t);
		if (wait > 0) {
			putText(w, (const u8 *)";t=", 3);
			putNumber(w, seconds(wait));
		}
	}
}

// putFraction writes n parts of which there are so many in one, without zeros at the end.
static void putFraction(struct writer *w, u64 n, u32 one) {
	putNumber(w, n / one);
	if (n %= one)
		put1(w, '.');
	for (; n; n %= one) {
		n *= 10;
		put1(w, '0' + n / one);
	}
}

// putWait writes a time as time.Duration.Round(time.Microsecond).String does.
static void putWait(struct writer *w, i64 ns) {
	u64 us = ns / 1000 + (ns % 1000 >= 500), s = us / 1000000;
	if (!us)
		put1(w, '0');
	else if (us < 1000) {
		putNumber(w, us);
		putText(w, (const u8 *)"\302\265", 2);
	} else if (!s) {
		putFraction(w, us, 1000);
		put1(w, 'm');
	} else {
		if (s >= 3600) {
			putNumber(w, s / 3600);
			put1(w, 'h');
		}
		if (s >= 60) {
			putNumber(w, s / 60 % 60);
			put1(w, 'm');
		}
		putFraction(w, us - s / 60 * 60000000, 1000000);
	}
	put1(w, 's');
}

// putBody writes problem details (RFC 9457), as internal/problem and internal/refusal do for every door.
static void putBody(struct writer *w, const struct verdict *v) {
	const struct header *d = HEADER;
	if (v->status != 429) {
		putAt(w, v->status == 503 ? &d->lost : AT(struct text, d->atRefusals) + v->why);
		return;
	}
	const struct take *binding = 0;
	for (u32 i = 0; i < v->count; i++)
		if (denies(takes + i) && (!binding || takes[i].outcome.retry > binding->outcome.retry))
			binding = takes + i;
	putAt(w, &d->denied);
	putAt(w, &binding->rule->detail);
	putWait(w, v->retry);
	const struct text *before = &d->violated;
	for (u32 i = 0; i < v->count; i++)
		if (denies(takes + i)) {
			putAt(w, before);
			putAt(w, &takes[i].rule->title);
			before = &d->comma;
		}
	putAt(w, &d->end);
}

// putMethods writes Allow (RFC 9110 section 10.2.1): the methods that the target may be used with.
static void putMethods(struct writer *w, struct asked r) {
	const struct header *d = HEADER;
	const struct table *t = AT(struct table, d->atTable);
	const u8 *start = w->at;
	for (u32 i = 0; i < d->allowable; i++) {
		const struct text *method = AT(struct text, d->atAllowable) + i;
		r.method = data + method->at;
		r.methodLength = method->length;
		if (match(t, &r).status != KNOWN)
			continue;
		if (w->at > start)
			putText(w, (const u8 *)", ", 2);
		putAt(w, method);
	}
}

// retryAfter is what Retry-After says, 0 for nothing.
static i64 retryAfter(const struct verdict *v) {
	if (v->status == 503)
		return 5;
	if (v->status != 429)
		return 0;
	i64 s = seconds(v->retry);
	return s ? s : 1;
}

// begin says whether the data is what Build wrote, by a checksum (FNV-1a); only then may anything else be called.
static int begin(const u8 *at, u32 memory) {
	data = at;
	const struct header *d = HEADER;
	if (d->magic != MAGIC || d->size > memory || d->room > memory)
		return 0;
	u64 sum = 0xcbf29ce484222325;
	for (u32 i = 16; i < d->size; i++)
		sum = (sum ^ data[i]) * 0x100000001b3;
	return sum == d->sum;
}

#endif
