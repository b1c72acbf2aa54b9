package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
)

// The slot of a tag is that of the names of its buckets, as servers reckon it.
func TestSlot(t *testing.T) {
	t.Parallel()
	server := redistest.StartOnPort(t, "--cluster-enabled", "yes")
	for _, tag := range []uint16{0, 1, 77, 255, 256, 0x1234, 0xFFFF} {
		client := &names{}
		s, err := shared.New(shared.Options{Server: client})
		if err != nil {
			t.Fatal(err)
		}
		of := ten
		of.Tag = tag
		_, _ = try(s, time.Second, of)
		if want := server.Do("CLUSTER", "KEYSLOT", client.key); int64(shared.Slot(tag)) != want {
			t.Errorf("Slot(%d) = %d, and of %q the server says %v", tag, shared.Slot(tag), client.key, want)
		}
	}
}

// names is told the name of a bucket.
type names struct{ key string }

func (n *names) Eval(_ context.Context, _, _ string, keys, _ []string) (any, error) {
	n.key = keys[0]
	return nil, errors.New("that is all")
}
