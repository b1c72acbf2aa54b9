// The filter for programs that run JavaScript, or anything that runs WASM: no import, no clock, no memory but its own.
//
//	start(seed, seed) -> 1 if the data is whole; with two random numbers, before all else
//	room() -> where to write what is asked: as many bytes as most() says
//	decide(method, target, address, key, now) -> the status to answer, 0 to let the request pass. The four texts stand in
//	    the room one after another, and these are their lengths; now is a time in nanoseconds that never goes back
//	told(n) -> where text n stands, and length(n): RateLimit, RateLimit-Policy, Allow, and the body of an answer;
//	    4 is the name of the field that holds a key, in lower case, nothing if no key is known
//	retry() -> what Retry-After says, 0 for nothing
//	would_deny() -> how many rules in shadow would have denied the request
#include "engine.h"

extern u8 __heap_base;

#define MOST (64 << 10)
#define EXPORT(name) __attribute__((export_name(#name))) name

static struct set *readPage(u32 page, u32 *cas) { // there are no workers to share with: the one table is shared
	*cas = 0;
	return (struct set *)HEADER->memory + page;
}
static int writePage(u32 page, const struct set *set, u32 cas) {
	(void)page, (void)set, (void)cas;
	return 0;
}

static struct verdict verdict;
static struct text texts[5];

static u32 memory(void) { return __builtin_wasm_memory_size(0) << 16; }
static u8 *roomAt(void) { return (u8 *)HEADER->room; }

int EXPORT(start)(u64 first, u64 second) {
	seed[0] = first, seed[1] = second;
	if (!begin(&__heap_base, memory()) || HEADER->room + 4 * MOST + 8192 > memory())
		return 0;
	if (HEADER->keys)
		texts[4] = (struct text){(u32)data + HEADER->keyHeader.at, HEADER->keyHeader.length};
	return 1;
}
void *EXPORT(room)(void) { return roomAt(); }
u32 EXPORT(most)(void) { return MOST; }
u32 EXPORT(told)(u32 n) { return texts[n].at; }
u32 EXPORT(length)(u32 n) { return texts[n].length; }
u32 EXPORT(retry)(void) { return retryAfter(&verdict); }
u32 EXPORT(would_deny)(void) { return verdict.wouldDeny; }

static u8 *note(int n, u8 *from, u8 *to) {
	texts[n] = (struct text){(u32)from, to - from};
	return to;
}

// What is told of tests alone: the canonical form and the template of a target.
static struct match found;

static struct asked askedOf(u32 method, u32 target) {
	return (struct asked){roomAt(), roomAt() + method, method, target, roomAt() + MOST};
}
u32 EXPORT(find_endpoint)(u32 method, u32 target) {
	struct asked a = askedOf(method, target);
	found = match(AT(struct table, HEADER->atTable), &a);
	return found.status << 28 | found.fault << 20 | found.id;
}
u32 EXPORT(canon)(u32 target) {
	u32 length, fault = canonical(AT(struct table, HEADER->atTable), roomAt(), target, roomAt() + MOST, &length);
	note(0, roomAt() + MOST, roomAt() + MOST + length);
	return fault;
}

u32 EXPORT(decide)(u32 method, u32 target, u32 address, u32 key, i64 now) {
	const struct header *d = HEADER;
	struct request r = {askedOf(method, target), {0}, now, 0};
	const u8 *at = roomAt() + method + target;
	locate(&r.caller, at, address, d->v6bits);
	r.caller.key = findKey(d, at + address, key);
	verdict = judge(&r);
	u8 *from = r.asked.room + 3 * MOST, *end = (u8 *)memory();
	struct writer w = {from, end};
	putQuotas(&w, &verdict);
	from = note(0, from, w.at);
	texts[1] = (struct text){0, 0};
	if (w.at > (u8 *)texts[0].at)
		texts[1] = (struct text){(u32)data + verdict.list->policies.at, verdict.list->policies.length};
	if (verdict.status == 405)
		putMethods(&w, r.asked);
	from = note(2, from, w.at);
	if (verdict.status)
		putBody(&w, &verdict);
	note(3, from, w.at);
	return verdict.status;
}
