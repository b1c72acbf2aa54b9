package key

import "testing"

// TestSipHash holds the hash against the vectors that its authors publish (SipHash-2-4, key 00 to
// 0f, text 00, 00 01, …).
func TestSipHash(t *testing.T) {
	k := sipKey{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	text := make([]byte, 64)
	for i := range text {
		text[i] = byte(i)
	}
	for length, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462,
		15: 0xa129ca6149be45e5,
		63: 0x958a324ceb064572,
	} {
		if got := k.sum(text[:length]); got != want {
			t.Errorf("of %d bytes: %#x, want %#x", length, got, want)
		}
	}
}

// TestLastingNames are the same under one seed, others under another, and one word says all of each.
func TestLastingNames(t *testing.T) {
	seed := [SeedSize]byte{1, 2, 3}
	h, again, other := NewLasting(seed), NewLasting(seed), NewLasting([SeedSize]byte{1, 2, 4})
	k := h.Key(1, 2, []byte("someone"))
	if got := again.Key(1, 2, []byte("someone")); got != k {
		t.Errorf("another process names it %v, want %v", got, k)
	}
	if got := Lasting(k.Lo); got != k {
		t.Errorf("Lasting(%#x) = %v, want %v", k.Lo, got, k)
	}
	for part, differs := range map[string]Key{
		"rule": h.Key(2, 2, []byte("someone")), "endpoint": h.Key(1, 1, []byte("someone")),
		"subject": h.Key(1, 2, []byte("someonf")), "seed": other.Key(1, 2, []byte("someone")),
	} {
		if differs.Lo == k.Lo || differs.Hi == k.Hi {
			t.Errorf("a different %s gives %v, and %v before", part, differs, k)
		}
	}
	if n := testing.AllocsPerRun(100, func() { h.Key(1, 2, []byte("someone")) }); n > 0 {
		t.Errorf("Key allocates %v times, want 0", n)
	}
}
