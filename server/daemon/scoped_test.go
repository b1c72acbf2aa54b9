package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/daemon"
)

// unreachable is a server that nobody reaches.
type unreachable struct{}

func (unreachable) Eval(context.Context, string, string, []string, []string) (any, error) {
	return nil, errors.New("dial tcp: connection refused")
}

// A limit that no store can keep is no fault of the store, and what the server says or does not say is.
func TestWhatIsAFaultOfTheStore(t *testing.T) {
	store, err := redis.New(redis.Options{Server: unreachable{}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(l rate.Limit) error {
		shape, err := rate.Compile(l)
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.TryConsume(t.Context(), 0, []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1))
		if err == nil {
			t.Fatalf("%+v is counted", l)
		}
		return err
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{ask(rate.Limit{Tokens: 1e9, Per: time.Second, Burst: 46e14}), false},
		{ask(rate.Limit{Tokens: 10, Per: time.Second, Burst: 10}), true},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), true},
		{context.Canceled, false},
		{&redis.Error{Cause: redis.ForeignValue, Err: errors.New("WRONGTYPE")}, false},
		{&redis.Error{Cause: redis.Busy, Err: errors.New("LOADING")}, true},
	} {
		if got := daemon.Faulty(c.err); got != c.want {
			t.Errorf("%v is a fault of the store: %v, want %v", c.err, got, c.want)
		}
	}
}
