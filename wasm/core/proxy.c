// The filter for proxies: proxy-wasm, ABI 0.2.1 (github.com/proxy-wasm/spec). One instance runs in each worker.
//
// Whatever a host call returns stands in memory that the host has asked for by proxy_on_memory_allocate: here that is what
// is left behind the buckets, from the beginning again at each callback. Nothing else grows.
#include "engine.h"

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define EXPORT(name) __attribute__((export_name(#name))) name

enum { OK, NOT_FOUND, CAS_MISMATCH = 8 };
enum { REQUEST, RESPONSE = 2 };   // header maps
enum { CONTINUE, PAUSE };         // what becomes of a stream
enum { MONOTONIC = 1, ERROR = 4 };

IMPORT("env", "proxy_log") u32 host_log(u32 level, const char *s, u32 n);
IMPORT("env", "proxy_get_header_map_value")
u32 host_field(u32 map, const u8 *name, u32 n, const u8 **value, u32 *length);
IMPORT("env", "proxy_add_header_map_value")
u32 host_add(u32 map, const char *name, u32 n, const u8 *value, u32 length);
IMPORT("env", "proxy_get_property") u32 host_property(const char *path, u32 n, const u8 **value, u32 *length);
IMPORT("env", "proxy_set_property") u32 host_note(const char *path, u32 n, const u8 *value, u32 length);
IMPORT("env", "proxy_set_effective_context") u32 host_turn(u32 context);
IMPORT("env", "proxy_get_shared_data")
u32 host_shared(const char *name, u32 n, const void **value, u32 *length, u32 *cas);
IMPORT("env", "proxy_set_shared_data")
u32 host_share(const char *name, u32 n, const void *value, u32 length, u32 cas);
IMPORT("env", "proxy_send_local_response")
u32 host_answer(u32 status, const char *why, u32 whyLength, const u8 *body, u32 length, const u8 *fields, u32 fieldsLength,
	u32 grpc);
IMPORT("env", "proxy_define_metric") u32 host_metric(u32 kind, const char *name, u32 n, u32 *id);
IMPORT("env", "proxy_increment_metric") u32 host_count(u32 id, i64 by);
IMPORT("wasi_snapshot_preview1", "clock_time_get") u32 host_time(u32 clock, i64 precision, i64 *now);
IMPORT("wasi_snapshot_preview1", "random_get") u32 host_random(void *at, u32 n);

extern u8 __heap_base;

#define S(text) text, sizeof text - 1

static u8 *free_, *end; // of what is left

void *EXPORT(proxy_on_memory_allocate)(u32 n) {
	if (n > (u32)(end - free_))
		return 0;
	u8 *at = free_;
	free_ += (n + 7) & ~7u;
	return at;
}

static void reset(void) {
	free_ = (u8 *)HEADER->room;
	end = (u8 *)(__builtin_wasm_memory_size(0) << 16) - 8;
}

// Shared buckets stand in a fixed set of values, all written when the filter is configured: a value that is not there yet
// could only be written whoever else does so too, and none can ever be removed.

static char pageName[] = "headgate.0000";

static u32 namePage(u32 page) {
	for (int i = 0; i < 4; i++)
		pageName[9 + i] = 'a' + (page >> (5 * i) & 31);
	return sizeof pageName - 1;
}

static struct set *readPage(u32 page, u32 *cas) {
	const void *value;
	u32 length;
	if (host_shared(pageName, namePage(page), &value, &length, cas) != OK || length != sizeof(struct set))
		return 0;
	return (struct set *)value;
}

static int writePage(u32 page, const struct set *set, u32 cas) {
	u32 got = host_share(pageName, namePage(page), set, sizeof *set, cas);
	return got == OK ? 0 : got == CAS_MISMATCH ? 1 : 2;
}

static int present(const char *name, u32 n, const void *otherwise, u32 size, const void **value) {
	u32 length, cas;
	if (host_shared(name, n, value, &length, &cas) == NOT_FOUND) {
		if (host_share(name, n, otherwise, size, 0) != OK)
			return 0;
		if (host_shared(name, n, value, &length, &cas) != OK)
			return 0;
	}
	return length == size;
}

enum { ALLOWED, DENIED, REFUSED, WOULD_DENY, LOST, METRICS };
static u32 metrics[METRICS];

// The marker of the ABI's version: hosts look whether it is there.
void EXPORT(proxy_abi_version_0_2_1)(void) {}
void EXPORT(proxy_on_context_create)(u32 context, u32 parent) { (void)context, (void)parent; }
u32 EXPORT(proxy_on_vm_start)(u32 unused, u32 size) {
	(void)unused, (void)size;
	return 1;
}

u32 EXPORT(proxy_on_configure)(u32 context, u32 size) {
	(void)context;
	if (!begin(&__heap_base, __builtin_wasm_memory_size(0) << 16)) {
		host_log(ERROR, S("headgate: the module's data is not whole, want a module that headgate edge build wrote"));
		return 0;
	}
	if (size) {
		host_log(ERROR, S("headgate: configuration is given, want none: rules are built into the module"));
		return 0;
	}
	reset();
	u32 failed = host_random(seed, sizeof seed);
	if (HEADER->flags & USES_SHARED) {
		const void *value;
		failed |= !present(S("headgate.seed"), seed, sizeof seed, &value);
		if (!failed) {
			seed[0] = ((const u64 *)value)[0];
			seed[1] = ((const u64 *)value)[1];
		}
		static const struct set empty;
		for (u32 page = 0; page <= HEADER->pages && !failed; page++) {
			reset();
			failed = !present(pageName, namePage(page), &empty, sizeof empty, &value);
		}
	}
	static const char *const names[METRICS] = {"headgate_edge_allowed", "headgate_edge_denied", "headgate_edge_refused",
		"headgate_edge_would_deny", "headgate_edge_lost"};
	for (u32 i = 0; i < METRICS; i++) {
		u32 n = 0;
		while (names[i][n])
			n++;
		failed |= host_metric(0, names[i], n, metrics + i) != OK;
	}
	if (failed)
		host_log(ERROR, S("headgate: the host lacks random numbers, metrics or shared data"));
	return !failed;
}

static void count(u32 metric, u32 by) {
	if (by)
		host_count(metrics[metric], by);
}

#define LOOKED_AT (8 << 10) // bytes of X-Forwarded-For, from its end: as package identity does

// hop is the n-th entry from the right of a list with commas, or nothing.
static struct text hop(const u8 *s, u32 length, u32 n) {
	u32 to = length, from = length > LOOKED_AT ? length - LOOKED_AT : 0;
	for (u32 i = length; i-- > from;)
		if (s[i] == ',') {
			if (!--n)
				return (struct text){i + 1, to - i - 1};
			to = i;
		}
	return n == 1 && !from ? (struct text){0, to} : (struct text){0, 0};
}

#define EXPOSE "access-control-expose-headers"
#define EXPOSED "RateLimit, RateLimit-Policy, Retry-After"

// fromPage reports whether a browser asks for a page of some origin, whose scripts may read what is exposed.
static int fromPage(void) {
	const u8 *value;
	u32 length;
	return host_field(REQUEST, (const u8 *)S("origin"), &value, &length) == OK && length;
}

// The answer's fields, as the host reads them: how many, the lengths of each name and value, and then these, each with a 0
// behind it.
struct pair {
	const char *name;
	const u8 *value;
	u32 nameLength, length;
};

static void answer(const struct verdict *v, const struct asked *a) {
	struct pair pairs[8] = {
		{"content-type", (const u8 *)"application/problem+json", 12, 24},
		{"cache-control", (const u8 *)"no-store", 13, 8},
		{"x-content-type-options", (const u8 *)"nosniff", 22, 7},
	};
	u32 n = 3, page = fromPage(); // it asks the host, which writes where what is free begins
	struct writer w = {free_, end};
#define PAIR(text)                                                                                                          \
	pairs[n].name = text;                                                                                                    \
	pairs[n].nameLength = sizeof text - 1;                                                                                   \
	pairs[n].value = w.at
#define DONE pairs[n].length = w.at - pairs[n].value, n++
	PAIR("ratelimit");
	putQuotas(&w, v);
	if (w.at > pairs[n].value) {
		DONE;
		PAIR("ratelimit-policy");
		putAt(&w, &v->list->policies);
		DONE;
		if (page)
			pairs[n++] = (struct pair){EXPOSE, (const u8 *)EXPOSED, sizeof EXPOSE - 1, sizeof EXPOSED - 1};
	}
	i64 wait = retryAfter(v);
	if (wait) {
		PAIR("retry-after");
		putNumber(&w, wait);
		DONE;
	}
	if (v->status == 405) {
		PAIR("allow");
		putMethods(&w, *a);
		DONE;
	}
	const u8 *body = w.at;
	putBody(&w, v);
	u32 bodyLength = w.at - body;
	const u8 *fields = w.at = (u8 *)(((u32)w.at + 7) & ~7u);
	u32 *sizes = (u32 *)w.at;
	w.at += 4 + 8 * n;
	if (w.at > w.end)
		w.at = w.end; // what does not fit is left out: the host refuses it, and the request stays held
	else {
		*sizes++ = n;
		for (u32 i = 0; i < n; i++)
			*sizes++ = pairs[i].nameLength, *sizes++ = pairs[i].length;
	}
	for (u32 i = 0; i < n; i++) {
		putText(&w, (const u8 *)pairs[i].name, pairs[i].nameLength);
		put1(&w, 0);
		putText(&w, pairs[i].value, pairs[i].length);
		put1(&w, 0);
	}
	host_answer(v->status, S("headgate"), body, bodyLength, fields, w.at - fields, -1);
}

// What a response is to be told, until the host asks for it: that is another callback, with other requests in between. It is
// kept here, because the host takes microseconds to; but where another stream has the place, or it is too long, by the host.
#define HELD 256
static struct held {
	u32 context, length;
	u8 text[248];
} held[HELD];
static u32 elsewhere; // how many the host keeps, at most

static void keep(const u8 *s, u32 n) {
	host_note(S("headgate"), s, n);
	elsewhere++;
}

static void hold(u32 context, const u8 *s, u32 n) {
	struct held *h = held + context % HELD;
	if (n > sizeof h->text) {
		keep(s, n);
		return;
	}
	if (h->context && host_turn(h->context) == OK) { // it has no answer yet, and is not gone
		keep(h->text, h->length);
		host_turn(context);
	}
	h->context = context;
	h->length = n;
	__builtin_memcpy(h->text, s, n);
}

// release is what hold has been told of a stream, 0 for nothing.
static const u8 *release(u32 context, u32 *length) {
	struct held *h = held + context % HELD;
	const u8 *value;
	if (h->context == context) {
		h->context = 0;
		*length = h->length;
		return h->text;
	}
	if (!elsewhere || host_property(S("headgate"), &value, length) != OK || *length <= 4)
		return 0;
	elsewhere--;
	return value;
}

u32 EXPORT(proxy_on_request_headers)(u32 context, u32 fields, u32 last) {
	(void)fields, (void)last;
	const struct header *d = HEADER;
	struct request r = {0};
	const u8 *value;
	u32 length, found = 0;
	reset();
	if (host_field(REQUEST, (const u8 *)S(":method"), &r.asked.method, &r.asked.methodLength) != OK)
		r.asked.methodLength = 0;
	if (host_field(REQUEST, (const u8 *)S(":path"), &r.asked.target, &r.asked.targetLength) != OK)
		r.asked.targetLength = 0;
	if (d->hops && host_field(REQUEST, (const u8 *)S("x-forwarded-for"), &value, &length) == OK) {
		struct text one = hop(value, length, d->hops);
		found = one.length && locate(&r.caller, value + one.at, one.length, d->v6bits);
	}
	if (!found && host_property(S("source\0address"), &value, &length) == OK)
		locate(&r.caller, value, length, d->v6bits);
	if (d->keys && host_field(REQUEST, data + d->keyHeader.at, d->keyHeader.length, &value, &length) == OK)
		r.caller.key = findKey(d, value, length);
	r.timeless = host_time(MONOTONIC, 1, &r.now) != 0;
	r.asked.room = proxy_on_memory_allocate(3 * r.asked.targetLength + 8);
	struct verdict v = {.status = 503};
	if (r.asked.room)
		v = judge(&r);
	count(LOST, v.lost);
	count(WOULD_DENY, v.wouldDeny);
	count(v.status == 429 ? DENIED : v.status ? REFUSED : ALLOWED, 1);
	if (v.status) {
		answer(&v, &r.asked);
		return PAUSE;
	}
	struct writer w = {free_ + 4, end};
	*(u32 *)free_ = (u32)((const u8 *)v.list - data);
	putQuotas(&w, &v);
	if (w.at > free_ + 4)
		hold(context, free_, w.at - free_);
	return CONTINUE;
}

u32 EXPORT(proxy_on_response_headers)(u32 context, u32 fields, u32 last) {
	(void)fields, (void)last;
	reset();
	u32 length;
	const u8 *value = release(context, &length);
	if (value) {
		const struct list *list = AT(struct list, *(const u32 *)value);
		host_add(RESPONSE, S("ratelimit"), value + 4, length - 4);
		host_add(RESPONSE, S("ratelimit-policy"), data + list->policies.at, list->policies.length);
		if (fromPage())
			host_add(RESPONSE, S(EXPOSE), (const u8 *)S(EXPOSED));
	}
	return CONTINUE;
}
