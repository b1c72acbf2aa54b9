package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/store"
)

// database opens the policy database when it is first needed and as soon as
// it can be, so that the process can start, on the last good rules, before
// the database does.
type database struct {
	dsn      string
	lastGood string

	open func(ctx context.Context, dsn, lastGood string) (*store.Store, error)

	mu    sync.Mutex
	store *store.Store // guarded by mu; nil until it could be opened
}

var (
	_ policy.Source = (*database)(nil)
	_ rules.Store   = (*database)(nil)
	_ admin.Auditor = (*database)(nil)
)

func (d *database) get(ctx context.Context) (*store.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store != nil {
		return d.store, nil
	}
	opened, err := d.open(ctx, d.dsn, d.lastGood)
	if err != nil {
		return nil, err
	}
	d.store = opened
	return opened, nil
}

// OpenStore opens a database for writing, and makes it where there never was
// one. A database that vanished is not replaced by an empty one: where last
// good rules are kept, there was a database.
func OpenStore(ctx context.Context, dsn, lastGood string) (*store.Store, error) {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		_, lost := os.Stat(path)
		_, kept := os.Stat(lastGood)
		if errors.Is(lost, fs.ErrNotExist) && kept == nil {
			return nil, fmt.Errorf("database %s is gone while the last good rules are kept in %s: put it back, or remove that copy to begin with an empty one", path, lastGood)
		}
	}
	return store.Open(ctx, dsn)
}

func (d *database) Version(ctx context.Context) (string, error) {
	s, err := d.get(ctx)
	if err != nil {
		return "", err
	}
	return s.Version(ctx)
}

func (d *database) Load(ctx context.Context) (policy.Document, string, error) {
	s, err := d.get(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	return s.Load(ctx)
}

func (d *database) Set(ctx context.Context, rule policy.Rule) error {
	s, err := d.get(ctx)
	if err != nil {
		return err
	}
	return s.Set(ctx, rule)
}

func (d *database) Delete(ctx context.Context, which store.RuleKey) error {
	s, err := d.get(ctx)
	if err != nil {
		return err
	}
	return s.Delete(ctx, which)
}

// Append writes down a change of a bucket.
func (d *database) Append(ctx context.Context, a store.Audit) (int64, error) {
	s, err := d.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Append(ctx, a)
}

// findKey reports whose an API key is. Revoked ones too: their buckets may
// still be in debt.
func (d *database) findKey(ctx context.Context, id string) (project, tier string, err error) {
	s, err := d.get(ctx)
	if err != nil {
		return "", "", err
	}
	keys, err := s.ListKeys(ctx)
	if err != nil {
		return "", "", err
	}
	for _, key := range keys {
		if key.ID == id {
			return key.Project, key.Tier, nil
		}
	}
	return "", "", store.ErrNotFound
}

func (d *database) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store != nil {
		_ = d.store.Close() // nothing is under way any more
	}
}

// keySource reads the API keys of a database.
type keySource struct{ *database }

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
}

var _ identity.KeyFinder = (*keyring)(nil)

func newKeyring(from *database, c config.Config, log *slog.Logger) (*keyring, error) {
	value, err := live.New(live.Options[[]identity.KeyRecord, identity.Keyring]{
		Name: "API keys", Source: keySource{from}, Interval: c.Refresh, Log: log,
		LastGood: keysCopy(c.LastGood), Encode: encodeKeys, Decode: decodeKeys,
		Build: func(records []identity.KeyRecord, _ *identity.Keyring) (*identity.Keyring, error) {
			ring := &identity.Keyring{}
			return ring, ring.Replace(records)
		},
	})
	return &keyring{value, c.Keys.MaxStale}, err
}

// keysCopy is where the last good keys are kept, beside the rules; nowhere if
// those are not.
func keysCopy(lastGood string) string {
	if lastGood == "" {
		return ""
	}
	return strings.TrimSuffix(lastGood, ".json") + ".keys.json"
}

func encodeKeys(records []identity.KeyRecord) ([]byte, error) { return json.Marshal(records) }

func decodeKeys(data []byte) (records []identity.KeyRecord, err error) {
	err = json.Unmarshal(data, &records)
	return records, err
}

func (k *keyring) Start(ctx context.Context) error { return k.value.Start(ctx) }
func (k *keyring) Run(ctx context.Context)         { k.value.Run(ctx) }

func (k *keyring) len() int {
	if ring := k.value.Get(); ring != nil {
		return ring.Len()
	}
	return 0
}
