package key

import "testing"

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
