package memory

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// A table of more than the default lies in huge pages, if the kernel has some: it says so of what it was advised of.
func TestLargeTablesLieInHugePages(t *testing.T) {
	s, err := New(Options{MaxBuckets: 2 * defaultBuckets})
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat("/sys/kernel/mm/transparent_hugepage")
	middle := &s.shards[len(s.shards)/2].sets[0]
	if advised := flagged(t, uintptr(unsafe.Pointer(middle)), "hg"); advised != (err == nil) {
		t.Errorf("the table is to lie in huge pages: %v, want %v", advised, err == nil)
	}
}

// flagged reports whether the kernel has a flag for the memory at an address (proc(5), smaps).
func flagged(t *testing.T, at uintptr, flag string) bool {
	t.Helper()
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	within := false
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			within = from <= at && at < to
		} else if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && within {
			return slices.Contains(strings.Fields(flags), flag)
		}
	}
	return false
}
