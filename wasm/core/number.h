// Numbers of 64 and 128 bits without a run-time library. Everything here is freestanding C for wasm32:
// no library, no import, no floating point but where Go has it too.
#ifndef NUMBER_H
#define NUMBER_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define LATEST 0x7fffffffffffffffLL

// multiply returns the upper half of a 128-bit product, and the lower one by low.
static __attribute__((noinline)) u64 multiply(u64 a, u64 b, u64 *low) {
	u64 al = (u32)a, ah = a >> 32, bl = (u32)b, bh = b >> 32;
	u64 ll = al * bl, m1 = ah * bl + (ll >> 32), m2 = al * bh + (u32)m1;
	*low = m2 << 32 | (u32)ll;
	return ah * bh + (m1 >> 32) + (m2 >> 32);
}

// scale is (a*b + add) / by, at most LATEST.
static __attribute__((noinline)) i64 scale(u64 a, u64 b, u64 add, u64 by) {
	u64 low, high = multiply(a, b, &low), quotient = 0;
	low += add;
	high += low < add;
	if (high >= by)
		return LATEST;
	if (!high)
		quotient = low / by;
	else
		for (int bit = 63; bit >= 0; bit--) { // long division; high stays below by
			u64 carry = high >> 63;
			high = high << 1 | (low >> bit & 1);
			if (carry || high >= by) {
				high -= by;
				quotient |= 1ULL << bit;
			}
		}
	return quotient > LATEST ? LATEST : (i64)quotient;
}

#endif
