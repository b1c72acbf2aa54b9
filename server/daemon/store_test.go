package daemon_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// A request may wait for the store as long as store.deadline says, so its
// connection is not given up before.
func TestConnectionsLastAsLongAsTheDeadline(t *testing.T) {
	t.Parallel()
	for deadline, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond: time.Second, 3 * time.Second: 3 * time.Second,
	} {
		o, err := daemon.StoreOptions(config.Store{Redis: []string{"127.0.0.1:6379"}, Deadline: deadline})
		if err != nil || o.ConnectTimeout != want {
			t.Errorf("deadline %v: connections may be silent for %v, %v; want %v", deadline,
				o.ConnectTimeout, err, want)
		}
	}
}
