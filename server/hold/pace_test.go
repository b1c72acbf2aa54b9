package hold_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/hold"
)

// TestPace tells what becomes of clients of every kind: those who keep to the
// rate are never cut off, whatever else they do; those who do not are, soon.
func TestPace(t *testing.T) {
	pace := hold.Pace{Patience: 20 * time.Second, MinRate: 500}
	for _, c := range []struct {
		name   string
		waited time.Duration // each time
		bytes  int64         // that came then
		cut    time.Duration // when the client is cut off; 0: never
	}{
		{"1 GB at 1 MB/s", time.Second, 1e6, 0},
		{"1 GB at 1 MB/s, in pieces", time.Millisecond, 1e3, 0},
		{"just fast enough", time.Second, 500, 0},
		{"bursts that pause", 19 * time.Second, 9500, 0},
		{"a little too slow", time.Second, 450, 200 * time.Second},
		{"half as fast", time.Second, 250, 40 * time.Second},
		{"a byte each 10 s", 10 * time.Second, 1, 20 * time.Second},
		{"nothing", time.Second, 0, 20 * time.Second},
		{"all at once", time.Second, math.MaxInt64, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, at := pace.Patience, time.Duration(0)
			for left > 0 && at < time.Hour {
				left = pace.Spend(left, c.waited, c.bytes)
				at += c.waited
				if left > pace.Patience {
					t.Fatalf("left is %v, more than Patience", left)
				}
			}
			if left > 0 {
				at = 0
			}
			if slack := 2 * c.waited; at < c.cut || at > c.cut+slack {
				t.Errorf("cut off at %v, want %v", at, c.cut)
			}
		})
	}
}

// Nobody saves up time by having been quick.
func TestPaceForgetsHaste(t *testing.T) {
	pace := hold.Pace{Patience: 20 * time.Second, MinRate: 500}
	left := pace.Spend(pace.Patience, time.Second, 1e9)
	if left = pace.Spend(left, 20*time.Second, 0); left > 0 {
		t.Errorf("after 1 GB at once and 20 s of nothing %v are left, want none", left)
	}
}
