package memory_test

import (
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
)

var _ bucket.Store = (*memory.Store)(nil)

func TestContract(t *testing.T) {
	buckettest.Run(t, func(t testing.TB) bucket.Store { return open(t, memory.Options{MaxBuckets: 1 << 14}) })
}

func open(t testing.TB, o memory.Options) *memory.Store {
	t.Helper()
	store, err := memory.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}
