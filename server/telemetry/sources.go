package telemetry

import (
	"context"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// sources bounds what each address sends: each has a bucket in a table of fixed size. A /64 of IPv6 is one address.
type sources struct {
	shape   rate.Shape
	names   *key.Hasher
	buckets *memory.Store
}

func newSources(perSecond int) (*sources, error) {
	shape, err := rate.Compile(rate.Limit{Tokens: int64(perSecond), Per: time.Second, Burst: 2 * int64(perSecond)})
	if err != nil {
		return nil, err
	}
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 14})
	return &sources{shape: shape, names: key.NewHasher(), buckets: buckets}, err
}

func (s *sources) allow(now time.Time, from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		from = netip.PrefixFrom(from, 64).Masked().Addr()
	}
	who := from.As16()
	takes := [1]bucket.Take{{Key: s.names.Key(0, 0, who[:]), Shape: s.shape, Cost: 1}}
	var outs [1]bucket.Outcome
	ok, err := s.buckets.TryConsume(context.Background(), now.UnixNano(), takes[:], outs[:])
	return ok && err == nil // the table is in memory: there is no error to find
}
