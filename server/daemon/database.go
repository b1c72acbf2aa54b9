package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/store"
)

// database opens the policy database when it is first needed and as soon as
// it can be, so that the process can start, on the last good rules, before
// the database does.
type database struct {
	conf config.Config
	open func(context.Context, config.Config) (*store.Store, error)
	wake [2]chan struct{} // for the rules and the API keys; see watch

	mu    sync.Mutex
	store *store.Store // guarded by mu; nil until it could be opened
}

var (
	_ policy.Streamer = (*database)(nil)
	_ policy.Numberer = (*database)(nil)
	_ rules.Store     = (*database)(nil)
)

func (d *database) get(ctx context.Context) (*store.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store != nil {
		return d.store, nil
	}
	opened, err := d.open(ctx, d.conf)
	if err != nil {
		return nil, err
	}
	d.store = opened
	return opened, nil
}

// OpenStore opens the database of a configuration for writing, and makes it
// where there never was one. A database that vanished is not replaced by an
// empty one: where last good rules are kept, there was a database.
func OpenStore(ctx context.Context, c config.Config) (*store.Store, error) {
	o := storeOptions(c)
	_, errKept := os.Stat(c.LastGood)
	kept := errKept == nil && c.LastGood != ""
	if path, ok := strings.CutPrefix(c.DB, "sqlite:"); ok && kept && c.Database.Table == "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("database %s is gone while the last good rules are kept in %s: put it back, or remove that copy to begin with an empty one", path, c.LastGood)
		}
	}
	o.Existing = kept
	opened, err := store.New(ctx, o)
	if err != nil && kept && strings.Contains(err.Error(), "has no tables of headgate") {
		err = fmt.Errorf("%w; or the last good rules in %s removed, to begin with none", err, c.LastGood)
	}
	return opened, err
}

// OpenStoreReadOnly opens the database of a configuration, which exists, and
// changes nothing in it.
func OpenStoreReadOnly(ctx context.Context, c config.Config) (*store.Store, error) {
	o := storeOptions(c)
	o.ReadOnly = true
	return store.New(ctx, o)
}

func storeOptions(c config.Config) store.Options {
	d := c.Database
	return store.Options{
		DSN: c.DB, PasswordFile: d.PasswordFile, NoNotify: !d.Notify,
		Table: store.Table{Name: d.Table, Columns: d.Columns, VersionQuery: d.VersionQuery}, Local: d.Keys,
	}
}

func newDatabase(c config.Config, open func(context.Context, config.Config) (*store.Store, error)) *database {
	d := &database{conf: c, open: open}
	for i := range d.wake {
		d.wake[i] = make(chan struct{}, 1)
	}
	return d
}

// watch makes rules and keys look for changes as soon as the database tells of
// some.
func (d *database) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if s := d.opened(); s != nil {
			s.Watch(ctx, func() {
				for _, c := range d.wake {
					select {
					case c <- struct{}{}:
					default: // the look that is due sees this change too
					}
				}
			})
			return
		}
		select { // the rules' looks open it, when it is back
		case <-ctx.Done():
		case <-time.After(d.conf.Refresh):
		}
	}
}

// opened is the database if it could be opened yet, or nil.
func (d *database) opened() *store.Store {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store
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

func (d *database) LoadInto(ctx context.Context, draft *policy.Draft) (policy.Document, string, error) {
	s, err := d.get(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	return s.LoadInto(ctx, draft)
}

// NumberOf asks nobody who could not be opened: the rules are of no version then.
func (d *database) NumberOf(ctx context.Context, version string) (int64, error) {
	s := d.opened()
	if s == nil {
		return 0, nil
	}
	return s.NumberOf(ctx, version)
}

func (d *database) Apply(ctx context.Context, a store.Author, e store.Edit) (store.Version, error) {
	s, err := d.get(ctx)
	if err != nil {
		return store.Version{}, err
	}
	return s.Apply(ctx, a, e)
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
