package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/group"
	"github.com/headgate-io/headgate/server/metrics"
)

// gossiping is this gateway among others that tell each other what they admitted.
type gossiping struct {
	group *group.Group
	names *key.Namer
	ran   bool
}

// newGossiping begins to listen, nil if nothing is told. Now is the clock that decisions are made by.
func newGossiping(c config.Config, now func() int64, log *slog.Logger) (*gossiping, error) {
	if !c.Gossip.On() {
		return nil, nil
	}
	secret, err := gossipSecret(c)
	if err != nil {
		return nil, err
	}
	names, err := key.NewNamer(secret)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	g, err := group.New(group.Options{
		Listen: c.Gossip.Listen, Advertise: c.Gossip.Advertise, Join: c.Gossip.Join, Secret: secret,
		Forget: c.Gossip.Forget,
		Gossip: gossip.Options{Interval: c.Gossip.Interval, Most: c.Gossip.MostPercent, Now: now}, Log: logger(log),
	})
	if err != nil {
		return nil, err
	}
	return &gossiping{group: g, names: names}, nil
}

// gossipSecret is what gateways share that tell each other what they admitted.
func gossipSecret(c config.Config) (database.Secret, error) {
	if c.Gossip.SecretFile != "" {
		return oneSecret("gossip.secret_file", c.Gossip.SecretFile)
	}
	return StoreSecret(c)
}

// over is where rules find their buckets: in this process, which tells others of them, or hears of
// theirs. It is for gateways without a store.
func (g *gossiping) over(local *memory.Store, now func() int64) (bucket.Store, error) {
	if g == nil {
		return local, nil
	}
	told := g.group.Store()
	return scoped.New(scoped.Options{Local: local, Gossip: told, Replicas: told.Replicas, Began: now()})
}

// store decides over buckets of scope gossip; nil if there are none.
func (g *gossiping) store() *gossip.Store {
	if g == nil {
		return nil
	}
	return g.group.Store()
}

// naming names buckets for all gateways, nil if this one is alone.
func (g *gossiping) naming() *key.Namer {
	if g == nil {
		return nil
	}
	return g.names
}

func (g *gossiping) run(ctx context.Context) {
	if g != nil {
		g.ran = true
		g.group.Run(ctx)
	}
}

func (g *gossiping) close() {
	if g != nil && !g.ran {
		g.group.Close()
	}
}

// status tells the metrics of the group, if there is one.
func (g *gossiping) status() func() metrics.GossipStatus {
	if g == nil {
		return nil
	}
	return func() metrics.GossipStatus {
		s := g.group.Store().Status()
		return metrics.GossipStatus{
			Replicas: s.Replicas, Silent: s.Silent, Unheard: s.Unheard, Joining: s.Joining, Buckets: s.Accounts,
			Waiting:  s.Waiting,
			Admitted: s.Admitted, Denied: s.Denied, Crowded: s.Crowded, Sent: s.Messages, Bytes: s.Bytes,
			Received: s.Received, Refused: s.Malformed + s.Strange,
		}
	}
}
