// Requests to templates: package endpoint's canonical form and its compiled automaton, which Build copies into the
// module as they are. TestSameEndpoints compares every answer of both.
#ifndef ENDPOINT_H
#define ENDPOINT_H
#include "number.h"

// Of endpoint.Fault.
enum fault {
	NO_FAULT, NOT_ABSOLUTE, RAW_BYTE, BAD_ESCAPE, CONTROL_BYTE, ESCAPED_SLASH, BACKSLASH, DOT_PARAMS, AMBIGUOUS_DOTS,
	DOUBLE_ENCODED, ESCAPED_DOTS, REPEATED_SLASH, DOT_SEGMENT, PARAMETERS, NEEDLESS_ESCAPE, BAD_UTF8, TRAILING_SLASH,
	ESCAPED_PARAMS, OTHER_CASE, MISSING_SLASH, DOTS_AND_SLASH, AMBIGUOUS_QUERY, TUNNEL, BAD_METHOD, EMPTY_TAIL
};

// Of endpoint.Status.
enum { UNKNOWN_PATH, UNKNOWN_METHOD, KNOWN, INVALID };

// Of endpoint.Profile.
enum { REJECT_SLASH, DECODE_SLASH, KEEP_SLASH };
enum { REJECT_PARAMS, STRIP_PARAMS, KEEP_PARAMS };
enum { NO_REPEATED = 1, NO_DOTS = 2, NO_UNRESERVED = 4, NO_BAD_UTF8 = 8, NO_TRAILING = 16 };

struct text {
	u32 at, length;
};

// Written by endpoint's AppendCompiled; what begins with at is a place in the data.
struct table {
	u8 slash, params, fold, twice, refuse, unused[3];
	u32 start, atStates, atSlots, atText, shift, methods, atMethods, atIDs, atMiddles, strict;
	u64 seed;
	// Of strict.go: other tables, 0 for none.
	u32 folded, lenient, others, bare, atEnds, upper, tails;
};
struct node {
	u32 other, row;
	u16 prefix, suffix, middle, flags; // 1: named, 2: final
};
struct edge {
	u64 key;
	u32 from, length, to, unused;
};

// A match; fault is why it is INVALID.
struct match {
	u32 status, id, fault;
};

static const u8 *data;

#define AT(type, place) ((const type *)(data + (place)))

static int same(const u8 *a, const u8 *b, u32 n) {
	while (n && *a == *b)
		n--, a++, b++;
	return !n;
}

static int alphanumeric(u8 c) { return (u8)(c - '0') < 10 || (u8)((c | 0x20) - 'a') < 26; }
static int upper(u8 c) { return (u8)(c - 'A') < 26; }

// among reports whether a text, which ends in 0, has a byte.
static __attribute__((noinline)) int among(const char *text, u8 c) {
	for (; *text; text++)
		if ((u8)*text == c)
			return 1;
	return 0;
}

static int unhex(u8 c) { return (u8)(c - '0') < 10 ? c - '0' : (u8)((c | 0x20) - 'a') < 6 ? (c | 0x20) - 'a' + 10 : -1; }

// Whether a canonical path holds a byte as itself.
static int literal(u8 b) { return b > ' ' && b < 0x7f && !among("#%?\\{}", b); }

struct path {
	const struct table *t;
	const u8 *text;
	u32 length;
};

// unescape is the byte that three bytes at i stand for, or -1.
static __attribute__((noinline)) int unescape(const struct path *p, u32 i) {
	if (i + 2 >= p->length)
		return -1;
	int high = unhex(p->text[i + 1]), low = unhex(p->text[i + 2]);
	return (high | low) < 0 ? -1 : high << 4 | low;
}

static int hexAt(const struct path *p, u32 i) {
	for (int n = 0; n < 2; n++) {
		if (i >= p->length)
			return 0;
		int b = p->text[i++];
		if (b == '%')
			b = unescape(p, i - 1), i += 2;
		if (b < 0 || unhex(b) < 0)
			return 0;
	}
	return 1;
}

// decode is the byte that the path has at i, by how many bytes spell it; or why it may not.
static __attribute__((noinline)) u32 decode(const struct path *p, u32 i, u8 *b, u32 *width) {
	const struct table *t = p->t;
	*b = p->text[i];
	*width = 1;
	if (*b == '\\')
		return BACKSLASH;
	if (*b != '%')
		return NO_FAULT;
	int c = unescape(p, i);
	*b = c;
	*width = 3;
	if (c < 0)
		return BAD_ESCAPE;
	if (c < ' ' || c == 0x7f)
		return CONTROL_BYTE;
	if ((c == '/' || c == '\\') && t->slash == REJECT_SLASH)
		return ESCAPED_SLASH;
	if (c == '\\')
		return BACKSLASH;
	if (c == '%' && !t->twice && hexAt(p, i + 3))
		return DOUBLE_ENCODED;
	if (t->refuse & NO_UNRESERVED && (alphanumeric(c) || among("-._~", c)))
		return NEEDLESS_ESCAPE;
	return NO_FAULT;
}

// dotsBesideSlash reports whether a part of a segment with encoded slashes would be a dot segment, or empty, if they
// were slashes.
static int dotsBesideSlash(const struct path *p, u32 from, u32 to) {
	u32 dots = 0, other = 0, params = 0, width;
	u8 b = 0;
	while (from < to) {
		decode(p, from, &b, &width);
		from += width;
		if (b == '/') {
			if (!other && dots <= 2)
				return 1;
			dots = other = params = 0;
		} else if (!params) {
			if (b == ';')
				params = 1;
			else if (b == '.')
				dots++;
			else
				other = 1;
		}
	}
	return !other && dots <= 2;
}

// notUTF8 reports whether canonical text is not UTF-8 once decoded (RFC 3629 section 4).
static int notUTF8(const u8 *s, u32 n) {
	u32 left = 0, least = 0x80, most = 0xbf;
	for (u32 i = 0; i < n; i++) {
		u8 b = s[i];
		if (b == '%')
			b = unhex(s[i + 1]) << 4 | unhex(s[i + 2]), i += 2;
		if (left) {
			if (b < least || b > most)
				return 1;
			left--;
			least = 0x80, most = 0xbf;
		} else if (b >= 0x80) {
			if (b < 0xc2 || b > 0xf4)
				return 1;
			left = 1 + (b >= 0xe0) + (b >= 0xf0);
			if (b == 0xe0)
				least = 0xa0;
			if (b == 0xed)
				most = 0x9f;
			if (b == 0xf0)
				least = 0x90;
			if (b == 0xf4)
				most = 0x8f;
		}
	}
	return left;
}

// canonical writes the canonical form of a target, which is at most three times as long, and returns its length by
// written; or why there is none.
static u32 canonical(const struct table *t, const u8 *target, u32 n, u8 *out, u32 *written) {
	*written = 0;
	if (!n || target[0] != '/')
		return NOT_ABSOLUTE;
	u32 end = n;
	for (u32 i = n; i--;) {
		if (target[i] <= ' ' || target[i] >= 0x7f || target[i] == '#')
			return RAW_BYTE;
		if (target[i] == '?')
			end = i;
	}
	struct path p = {t, target, end};
	u32 length = 0, next = 0, fault, width;
	u32 named = 0, above = 0, overVoid = 0; // see dotStack in endpoint/segment.go
	u32 slashAtEnd = 0, dotted = 0, escapedSlash = 0;
	while (next < end) {
		u32 start = length, from = next + (target[next] == '%' ? 3 : 1), i = from, params = 0, kept = 0, nameEnd = 0;
		u8 b;
		out[length++] = '/';
		for (; i < end; i += width) {
			if ((fault = decode(&p, i, &b, &width)))
				return fault;
			int stripped = params && t->params == STRIP_PARAMS;
			if (b == '/') {
				if (width == 1)
					break;
				escapedSlash = 1;
				if (stripped)
					return ESCAPED_SLASH;
				if (t->slash != KEEP_SLASH)
					break;
				kept = 1;
			}
			if (b == ';' && !params) {
				if (t->params == REJECT_PARAMS)
					return PARAMETERS;
				if (t->params == STRIP_PARAMS && width > 1)
					return ESCAPED_PARAMS;
				params = 1, nameEnd = length;
				stripped = t->params == STRIP_PARAMS;
			}
			if (stripped)
				continue;
			if (t->fold && upper(b))
				b |= 0x20;
			if (literal(b) && b != '/') // an encoded slash that is kept stays one
				out[length++] = b;
			else {
				out[length++] = '%';
				out[length++] = "0123456789ABCDEF"[b >> 4];
				out[length++] = "0123456789ABCDEF"[b & 15];
			}
		}
		next = i;
		if (!params)
			nameEnd = length;
		if (kept && dotsBesideSlash(&p, from, i))
			return ESCAPED_DOTS;
		slashAtEnd = 0;
		u32 name = nameEnd - start - 1;
		if ((name == 1 || name == 2) && out[start + 1] == '.' && out[start + name] == '.') {
			if (params)
				return DOT_PARAMS;
			if (t->refuse & NO_DOTS)
				return DOT_SEGMENT;
			length = start;
			slashAtEnd = dotted = 1;
			if (name == 2) {
				if (!above && overVoid)
					return AMBIGUOUS_DOTS;
				if (length) {
					named -= named > 0;
					above -= above > 0;
					do
						length--;
					while (out[length] != '/');
				}
			}
			continue;
		}
		if (length == start + 1) {
			length = start;
			slashAtEnd = !params;
			if (t->refuse & NO_REPEATED && (params || next < end))
				return REPEATED_SLASH;
		}
		if (name)
			named++, above++;
		else if (named)
			above = 0, overVoid = 1;
	}
	if (slashAtEnd && length && t->refuse & NO_TRAILING)
		return TRAILING_SLASH;
	if (!length)
		out[length++] = '/';
	if (escapedSlash) {
		if (t->slash == DECODE_SLASH && dotted)
			return DOTS_AND_SLASH;
		if (t->slash == KEEP_SLASH)
			for (u32 i = 0; i < end; i++)
				if (among("\"<>^`{|}", target[i]))
					return ESCAPED_SLASH;
	}
	if (t->refuse & NO_BAD_UTF8 && notUTF8(out, length))
		return BAD_UTF8;
	*written = length;
	return NO_FAULT;
}

// The hash of edges.go.

#define SPREAD 0x9E3779B97F4A7C15ULL

static u64 mix(u64 a, u64 b) {
	u64 low, high = multiply(a, b, &low);
	return high ^ low;
}

static __attribute__((noinline)) u64 hashText(u64 seed, const u8 *s, u32 n) {
	u64 first = 0, last = 0, all = n;
	if (n >= 8) {
		for (; n > 16; s += 8, n -= 8)
			seed = mix(seed ^ *(const u64 *)s, SPREAD);
		first = *(const u64 *)s, last = *(const u64 *)(s + n - 8);
		all = n; // as hashText of Go counts what is left
	} else if (n >= 4)
		first = *(const u32 *)s, last = *(const u32 *)(s + n - 4);
	else if (n)
		first = (u64)s[0] << 8 | s[n >> 1], last = s[n - 1];
	return mix(first ^ seed, last << 1 ^ all * SPREAD ^ SPREAD);
}

// find is where the edge of a state leads whose text is two parts after one another; 0xffffffff if there is none.
static u32 find(const struct table *t, u32 state, const u8 *a, u32 an, const u8 *b, u32 bn) {
	u64 hash = hashText(t->seed ^ state * SPREAD, a, an);
	if (b)
		hash = hashText(hash, b, bn);
	u64 key = (u64)state << 32 | (u32)hash;
	const struct edge *e = AT(struct edge, t->atSlots) + (u32)(hash >> t->shift);
	for (u32 i = 0; i < 8 && e->key; i++, e++) {
		const u8 *text = data + t->atText + e->from;
		if (e->key == key && e->length == an + bn && same(text, a, an) && same(text + an, b, bn))
			return e->to;
	}
	return ~0u;
}

static int insideEscape(const u8 *s, u32 n, u32 i) {
	return i < n && ((i >= 1 && s[i - 1] == '%') || (i >= 2 && s[i - 2] == '%'));
}

// holds reports whether text has the parts of middle, each of which ends in 0, in their order, with something before,
// between and after them.
static int holds(const u8 *text, u32 n, const u8 *middle, u32 length) {
	while (length) {
		u32 part = 0, at = 1;
		while (part < length && middle[part])
			part++;
		for (;; at++) {
			if (at + part > n)
				return 0;
			if (same(text + at, middle, part) && !insideEscape(text, n, at))
				break;
		}
		text += at + part, n -= at + part;
		part += part < length;
		middle += part, length -= part;
	}
	return n > 0;
}

// walk is the state that a canonical path leads to.
static const struct node *walk(const struct table *t, const u8 *path, u32 n) {
	const struct node *nodes = AT(struct node, t->atStates);
	u32 s = t->start;
	for (u32 from = 1; n > 1;) {
		u32 to = from;
		while (to < n && path[to] != '/')
			to++;
		const u8 *name = path + from;
		u32 length = to - from, next = nodes[s].other;
		if (nodes[s].flags & 1) {
			u32 found = find(t, s, name, length, 0, 0);
			if (found != ~0u)
				next = found;
		}
		while (next >> 31) { // a probe looks at the same segment again
			u32 probe = next << 1 >> 1;
			const struct node *d = nodes + probe;
			u32 suffix = length - d->suffix;
			next = d->other;
			if (d->prefix + d->suffix >= length || insideEscape(name, length, suffix))
				continue;
			if (d->middle) {
				const struct text *m = AT(struct text, t->atMiddles) + d->middle - 1;
				if (!holds(name + d->prefix, suffix - d->prefix, data + m->at, m->length))
					continue;
			}
			u32 found = find(t, probe, name, d->prefix, name + suffix, d->suffix);
			if (found != ~0u)
				next = found;
		}
		s = next;
		if (to == n || nodes[s].flags & 2)
			break;
		from = to + 1;
	}
	return nodes + s;
}

static int is(const u8 *s, u32 n, const struct text *t) { return n == t->length && same(s, data + t->at, n); }

struct asked {
	const u8 *method, *target;
	u32 methodLength, targetLength;
	u8 *room; // for the canonical form: three times the target
};

static __attribute__((noinline)) struct match matchAlone(const struct table *t, const struct asked *r) {
	struct match m = {UNKNOWN_PATH, 0, 0};
	u32 length;
	if ((m.fault = canonical(t, r->target, r->targetLength, r->room, &length))) {
		m.status = INVALID;
		return m;
	}
	u32 row = walk(t, r->room, length)->row;
	if (row) {
		m.status = UNKNOWN_METHOD;
		const struct text *method = AT(struct text, t->atMethods);
		for (u32 i = 0; i < t->methods; i++) {
			u32 id = AT(u32, t->atIDs)[row * t->methods + i];
			if (id && is(r->method, r->methodLength, method + i)) {
				m.status = KNOWN;
				m.id = id;
				return m;
			}
		}
	}
	if (r->methodLength == 7 && same(r->method, (const u8 *)"CONNECT", 7))
		m.fault = TUNNEL;
	for (u32 i = 0; i < r->methodLength; i++)
		if (!alphanumeric(r->method[i]) && !among("!#$%&'*+-.^_`|~", r->method[i]))
			m.fault = BAD_METHOD;
	if (!r->methodLength)
		m.fault = BAD_METHOD;
	if (m.fault)
		m.status = INVALID;
	return m;
}

static int knows(u32 at, const struct asked *r) { return at && matchAlone(AT(struct table, at), r).status == KNOWN; }

// find the template of a request, as Table.Match does: the judge of strict.go follows.
static struct match match(const struct table *t, const struct asked *r) {
	struct match m = matchAlone(t, r);
	if (!t->strict)
		return m;
	const u8 *ends = data + t->atEnds; // by ID; 1: written without a slash at the end, 2: with, 4: {name...}
	if (t->atEnds) {
		if (m.fault == TRAILING_SLASH) {
			m = matchAlone(AT(struct table, t->lenient), r);
			if (m.status != KNOWN || !(ends[m.id] & 2))
				return (struct match){INVALID, 0, TRAILING_SLASH};
			if (ends[m.id] & 4 && knows(t->bare, r))
				return (struct match){INVALID, 0, EMPTY_TAIL};
		} else if (m.status == KNOWN && (ends[m.id] & 3) == 2 && (t->tails || knows(t->others, r)))
			return (struct match){INVALID, 0, MISSING_SLASH};
	}
	if (m.status < KNOWN && knows(t->bare, r))
		return (struct match){INVALID, 0, EMPTY_TAIL};
	if (!t->folded || m.status == INVALID)
		return m;
	u32 capitals = t->upper;
	for (u32 i = 0; i < r->targetLength; i++)
		capitals |= upper(r->target[i]);
	if (capitals) {
		struct match f = matchAlone(AT(struct table, t->folded), r);
		if (f.id != m.id || f.status == INVALID)
			return (struct match){INVALID, 0, OTHER_CASE};
	}
	return m;
}

#endif
