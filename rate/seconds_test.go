package rate_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rate"
)

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, time.Hour: 3600, -time.Second: -1,
		math.MaxInt64: 9223372037,
	} {
		if got := rate.Seconds(d); got != want {
			t.Errorf("Seconds(%v) = %d, want %d", d, got, want)
		}
	}
}
