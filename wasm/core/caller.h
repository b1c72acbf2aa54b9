// Whose budget a request spends: the holder of a key whose digest is known, else the client's address.
#ifndef CALLER_H
#define CALLER_H
#include "data.h"

struct caller {
	u64 high, low; // the address, or the network of IPv6 that shares a budget
	u32 kind;      // 4, 6, 64 for an IPv4 address behind NAT64, or 0 where there is none
	const struct key *key;
};

static u32 turn(u32 x, int n) { return x >> n | x << (32 - n); }
static u32 bigEndian(u32 x) { return __builtin_bswap32(x); }

// compress is one block of SHA-256 (FIPS 180-4 section 6.2.2); its constants are in the data.
static __attribute__((noinline)) void compress(const u32 *k, u32 *h, const u8 *block) {
	u32 w[16], v[8];
	for (int i = 0; i < 8; i++)
		v[i] = h[i];
	for (int i = 0; i < 64; i++) {
		if (i < 16)
			w[i] = bigEndian(((const u32 *)block)[i]);
		else {
			u32 a = w[(i + 1) & 15], b = w[(i + 14) & 15];
			w[i & 15] += w[(i + 9) & 15] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
		}
		u32 e = v[4], a = v[0];
		u32 one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (v[6] ^ (e & (v[5] ^ v[6]))) + k[i] + w[i & 15];
		u32 two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
		for (int j = 7; j; j--)
			v[j] = v[j - 1];
		v[4] += one;
		v[0] = one + two;
	}
	for (int i = 0; i < 8; i++)
		h[i] += v[i];
}

// hash goes on from a state after 64 bytes, with the rest of a message of at most 256 bytes.
static __attribute__((noinline)) void hash(const u32 *k, const u32 *state, const u8 *s, u32 n, u32 *h) {
	u8 block[64];
	u32 at = 0, bits = (64 + n) * 8, i;
	for (i = 0; i < 8; i++)
		h[i] = state[i];
	for (i = 0;; i++) {
		if (i > n && at == 56) {
			((u32 *)block)[14] = 0;
			((u32 *)block)[15] = bigEndian(bits);
			break;
		}
		block[at++] = i < n ? s[i] : i == n ? 0x80 : 0;
		if (at == 64)
			compress(k, h, block), at = 0;
	}
	compress(k, h, block);
	for (i = 0; i < 8; i++)
		h[i] = bigEndian(h[i]);
}

// findKey is the key with a text, or 0. What it compares is a digest by HMAC (RFC 2104), of which the data holds the
// two states after the secret.
static const struct key *findKey(const struct header *d, const u8 *s, u32 n) {
	if (!n || n > 256)
		return 0;
	const u32 *k = AT(u32, d->atHash);
	u32 inner[8], digest[8];
	hash(k, k + 64, s, n, inner);
	hash(k, k + 72, (u8 *)inner, 32, digest);
	u32 from = 0, to = d->keys;
	while (from < to) {
		u32 middle = (from + to) / 2;
		const struct key *key = AT(struct key, d->atKeys) + middle;
		int order = 0;
		for (int i = 0; i < 32 && !order; i++)
			order = ((u8 *)digest)[i] - key->digest[i];
		if (!order)
			return key;
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return 0;
}

// octets reads an IPv4 address, without leading zeros, and says whether it is one.
static int octets(const u8 *s, u32 n, u32 *address) {
	u32 all = 0, value = 0, digits = 0, dots = 0;
	for (; n--; s++) {
		if (*s == '.' && digits && dots < 3) {
			all = all << 8 | value;
			dots++, value = digits = 0;
			continue;
		}
		if ((u8)(*s - '0') > 9 || (digits && !value))
			return 0;
		value = value * 10 + *s - '0';
		if (value > 255)
			return 0;
		digits++;
	}
	*address = all << 8 | value;
	return dots == 3 && digits;
}

// groups reads an IPv6 address; it returns 0 unless it is one.
static int groups(const u8 *s, u32 n, u64 *high, u64 *low) {
	u16 g[8] = {0};
	u32 count = 0, gap = 9, i = 0;
	if (n >= 2 && s[0] == ':' && s[1] == ':')
		gap = 0, i = 2;
	while (i < n) {
		u32 value = 0, digits = 0, start = i;
		if (count == 8)
			return 0;
		for (; i < n && unhex(s[i]) >= 0; i++, digits++)
			value = value << 4 | unhex(s[i]);
		if (i < n && s[i] == '.') {
			u32 v4;
			if (count > 6 || !octets(s + start, n - start, &v4))
				return 0;
			g[count++] = v4 >> 16;
			g[count++] = v4;
			break;
		}
		if (!digits || digits > 4)
			return 0;
		g[count++] = value;
		if (i == n)
			break;
		if (s[i++] != ':' || i == n)
			return 0;
		if (s[i] == ':') {
			if (gap < 9)
				return 0;
			gap = count;
			i++;
		}
	}
	if (gap > 8 ? count != 8 : count > 7)
		return 0;
	*high = *low = 0;
	for (u32 at = 0; at < 8; at++) {
		u32 v = gap > 8 || at < gap ? g[at] : at < gap + 8 - count ? 0 : g[at - (8 - count)];
		*high = *high << 16 | *low >> 48;
		*low = *low << 16 | v;
	}
	return 1;
}

// isName reports whether text is what RFC 7239 section 6.3 has as a name, less its underscore.
static int isName(const u8 *s, u32 n) {
	if (!n)
		return 0;
	for (; n--; s++)
		if (!alphanumeric(*s) && !among("._-", *s))
			return 0;
	return 1;
}

// isPort reports whether text is nothing, or a colon and a port, whatever that is (RFC 7239 section 6.2).
static int isPort(const u8 *s, u32 n) {
	if (!n)
		return 1;
	if (*s != ':' || n == 1)
		return 0;
	if (s[1] == '_')
		return isName(s + 2, n - 2);
	for (u32 i = 1; i < n; i++)
		if ((u8)(s[i] - '0') > 9)
			return 0;
	return n <= 6;
}

// locate reads an address with or without a port, in the forms of X-Forwarded-For, as package identity does.
static int locate(struct caller *c, const u8 *s, u32 n, u32 bits) {
	u32 colons = 0, colon = 0, i;
	while (n && (*s == ' ' || *s == '\t'))
		s++, n--;
	while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
		n--;
	for (i = n; i--;)
		if (s[i] == ':')
			colons++, colon = i;
	c->kind = 0;
	c->high = c->low = 0;
	if (n && *s == '[') {
		for (i = 1; i < n && s[i] != ']'; i++)
			;
		if (i == n || !isPort(s + i + 1, n - i - 1))
			return 0;
		s++, n = i - 1, colons = 2;
	} else if (colons == 1) {
		if (!isPort(s + colon, n - colon))
			return 0;
		n = colon, colons = 0;
	}
	if (!colons) {
		u32 v4;
		if (octets(s, n, &v4))
			c->low = v4;
	} else {
		for (i = 0; i < n && s[i] != '%'; i++)
			;
		if (i < n && !isName(s + i + 1, n - i - 1)) // a zone, which means nothing here
			return 0;
		if (!groups(s, i, &c->high, &c->low) || !(c->high | c->low))
			return 0;
		if (c->high || c->low >> 32 != 0xffff) {
			c->kind = 6;
			if (c->high == 0x64ff9b00000000 && !(c->low >> 32)) { // RFC 6052 section 2.1
				c->kind = 64;
				return 1;
			}
			// Of what stands for an IPv4 address, all that its holder has: identity.Resolver says why.
			if (c->high >> 48 == 0x2002 && bits > 48)
				bits = 48;
			if (c->high >> 32 == 0x20010000 && bits > 32)
				bits = 32;
			if (bits <= 64) {
				c->low = 0;
				c->high &= ~0ULL << (64 - bits);
			} else
				c->low &= ~0ULL << (128 - bits);
			return 1;
		}
		c->low = (u32)c->low;
	}
	c->kind = c->low ? 4 : 0;
	return c->kind;
}

#endif
