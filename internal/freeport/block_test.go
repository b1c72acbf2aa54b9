package freeport

import "testing"

// Another process, which begins at the same place, gets none of the ports between this one's.
func TestBlocksAreOfOneProcess(t *testing.T) {
	ours, err := Pick()
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	kept, before, after := mine, given, next
	mine, given, next = nil, 0, (ours-low)/block
	mu.Unlock()
	theirs, err := Pick()
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	for _, l := range mine {
		_ = l.Close()
	}
	mine, given, next = kept, before, after
	mu.Unlock()
	if (ours-low)/block == (theirs-low)/block {
		t.Errorf("another process is given %d, beside %d, which is ours", theirs, ours)
	}
}
