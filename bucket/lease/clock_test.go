package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket/lease"
)

// A Store goes by the time since it began, which no setting of the wall clock changes: a lease that
// expired by the wall clock would last an hour longer where that is set back by an hour.
func TestStoreGoesByNoWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, lease.Options{Authority: &authority{}})
		time.Sleep(90 * time.Millisecond)
		if got := s.Clock(); got != int64(90*time.Millisecond) {
			t.Errorf("90 ms after it began a Store's clock shows %v, want 90ms: the wall clock shows %v",
				time.Duration(got), time.Duration(time.Now().UnixNano()))
		}
	})
}
