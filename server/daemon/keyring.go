package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
)

// keySource reads the API keys of a database.
type keySource struct{ *database }

func (k keySource) Version(ctx context.Context) (string, error) {
	s, err := k.get(ctx)
	if err != nil {
		return "", err
	}
	return s.Keys().Version(ctx)
}

func (k keySource) Load(ctx context.Context) ([]identity.KeyRecord, string, error) {
	s, err := k.get(ctx)
	if err != nil {
		return nil, "", err
	}
	return s.Keys().Load(ctx)
}

// keyring is the API keys in force, kept fresh like the rules.
type keyring struct {
	value    *live.Value[[]identity.KeyRecord, identity.Keyring]
	maxStale time.Duration // 0: keys are believed however old
	tiers    atomic.Bool   // a key has a tier of its own, or had one
}

var _ identity.KeyFinder = (*keyring)(nil)

func newKeyring(from *database, c config.Config, log *slog.Logger) (k *keyring, err error) {
	k = &keyring{maxStale: c.Keys.MaxStale}
	k.value, err = live.New(live.Options[[]identity.KeyRecord, identity.Keyring]{
		Name: "API keys", Source: keySource{from}, Interval: c.Refresh, Log: log,
		Spread: true, Wake: from.wake[1],
		LastGood: besideCopy(c.LastGood, ".keys.json"), Encode: encodeKeys, Decode: decodeKeys,
		Build: func(records []identity.KeyRecord, _ *identity.Keyring) (*identity.Keyring, error) {
			ring := &identity.Keyring{}
			err := ring.Replace(records)
			if ring.NamesTiers() {
				k.tiers.Store(true)
			}
			return ring, err
		},
	})
	return k, err
}

func encodeKeys(records []identity.KeyRecord) ([]byte, error) { return json.Marshal(records) }

func decodeKeys(data []byte) (records []identity.KeyRecord, err error) {
	err = json.Unmarshal(data, &records)
	return records, err
}

func (k *keyring) Start(ctx context.Context) error { return k.value.Start(ctx) }
func (k *keyring) Run(ctx context.Context)         { k.value.Run(ctx) }

func (k *keyring) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rehashTimeout)
	defer cancel()
	return k.value.Reload(ctx)
}

func (k *keyring) len() int {
	if ring := k.value.Get(); ring != nil {
		return ring.Len()
	}
	return 0
}

// errKeysStale is why no key is found while the database has been away for too
// long.
var errKeysStale = errors.New("the API keys were confirmed too long ago: see api_keys.max_stale")

// Find finds a key among those in force.
func (k *keyring) Find(ctx context.Context, d identity.Digest) (identity.Key, error) {
	ring := k.value.Get()
	switch {
	case ring == nil:
		return identity.Key{}, errors.New("no API keys were loaded yet")
	case k.maxStale > 0 && k.value.Status().Stale > k.maxStale:
		return identity.Key{}, errKeysStale
	}
	return ring.Find(ctx, d)
}

func (k *keyring) status() metrics.KeyStatus {
	s := k.value.Status()
	return metrics.KeyStatus{Keys: k.len(), Failures: s.Failures, Stale: s.Stale}
}
