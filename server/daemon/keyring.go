package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
)

// keySource reads the API keys of a database.
type keySource struct{ *policyDatabase }

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
	copy     string // file of the last good keys, "" none
	log      *slog.Logger
	maxStale time.Duration // 0: keys are believed however old
	tiers    atomic.Bool   // a key has a tier of its own, or had one
}

var _ identity.KeyFinder = (*keyring)(nil)

func newKeyring(from *policyDatabase, c config.Config, log *slog.Logger) (k *keyring, err error) {
	if log == nil {
		log = slog.Default()
	}
	k = &keyring{copy: keysCopy(c), log: log, maxStale: c.Keys.MaxStale}
	k.value, err = live.New(live.Options[[]identity.KeyRecord, identity.Keyring]{
		Name: "API keys", Source: keySource{from}, Interval: c.Refresh, Log: log,
		Spread: true, Wake: from.wake[1],
		LastGood: k.copy,
		Encode:   live.EncodeEach[identity.KeyRecord], Decode: live.DecodeEach[identity.KeyRecord],
		Empty: func(records []identity.KeyRecord) bool { return len(records) == 0 },
		Emptied: func(_ []identity.KeyRecord, current *identity.Keyring) error {
			return k.emptied(current, time.Now())
		},
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

// keysCopy is the file of the last good keys, "" if they are not kept.
func keysCopy(c config.Config) string { return besideCopy(c.LastGood, ".keys.json") }

// believed is the most active keys that may be gone at once. That one key is
// deleted is how some people revoke it. That all of several are, no command of
// headgate does: it revokes keys, and they stay in the table.
const believed = 1

// TakesForAccident reports whether a table that has no API keys is not believed,
// where there were so many active ones before.
func TakesForAccident(active int) bool { return active > believed }

// emptied says why a table without keys does not replace those there are.
func (k *keyring) emptied(current *identity.Keyring, now time.Time) error {
	if active := current.Active(now); !TakesForAccident(active) {
		k.log.Warn("API keys: the table has none any more, and is believed", "active before", active)
		return nil
	}
	way := "a new start"
	if k.copy != "" {
		way = k.copy + " removed and a new start"
	}
	return fmt.Errorf("the table api_keys is empty now, which is taken for an accident: want the keys back, or, if "+
		"they should be gone, any new key, which ends them at once, or %s", way)
}

// LastGoodKeys reports the file of the last good API keys, and how many of them
// are active at a time. There may be none: the error is fs.ErrNotExist then.
func LastGoodKeys(c config.Config, now time.Time) (path string, active int, err error) {
	path = keysCopy(c)
	if path == "" {
		return "", 0, fs.ErrNotExist
	}
	records, err := live.ReadCopy(path, live.DecodeEach[identity.KeyRecord])
	ring := &identity.Keyring{}
	if err == nil {
		err = ring.Replace(records)
	}
	return path, ring.Active(now), err
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
	return metrics.KeyStatus{Keys: k.len(), Failures: s.Failures, Stale: s.Stale, Emptied: s.Emptied}
}
