package bucket_test

import (
	"testing"
	"unsafe"

	"github.com/headgate-io/headgate/bucket"
)

// A Take is written for every rule of every request, so what is only for stores outside the process
// has to fit in what was padding, beside what is for all (Kept).
func TestTakeStaysSmall(t *testing.T) {
	if got := unsafe.Sizeof(bucket.Take{}); unsafe.Sizeof(uintptr(0)) == 8 && got != 112 {
		t.Errorf("a Take has %d bytes, want 112", got)
	}
}
