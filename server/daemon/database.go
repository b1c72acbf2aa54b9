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
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/fleet"
	"github.com/headgate-io/headgate/server/kube"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/revert"
	"github.com/headgate-io/headgate/server/rules"
)

// database opens the policy database when it is first needed and as soon as
// it can be, so that the process can start, on the last good rules, before
// the database does.
type policyDatabase struct {
	conf config.Config
	open func(context.Context, config.Config) (*database.Store, error)
	wake [2]chan struct{} // for the rules and the API keys; see watch

	mu    sync.Mutex
	store *database.Store // guarded by mu; nil until it could be opened
}

var (
	_ policy.Streamer = (*policyDatabase)(nil)
	_ policy.Numberer = (*policyDatabase)(nil)
	_ rules.Store     = (*policyDatabase)(nil)
)

// What others ask of a database.
var (
	_ admin.Rules         = (*database.Store)(nil)
	_ admin.Auditor       = (*database.Store)(nil)
	_ admin.CallStore     = (*database.Store)(nil)
	_ admin.Requests      = (*database.Store)(nil)
	_ admin.TokenStore    = (*database.Store)(nil)
	_ developers.Requests = (*database.Store)(nil)
	_ fleet.Registry      = (*database.Store)(nil)
	_ revert.History      = (*database.Store)(nil)
	_ rules.Approver      = (*database.Store)(nil)
)

func (d *policyDatabase) get(ctx context.Context) (*database.Store, error) {
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

// rules is get for the admin API.
func (d *policyDatabase) rules(ctx context.Context) (admin.Rules, error) {
	s, err := d.get(ctx)
	if err != nil {
		return nil, err // not a nil *database.Store in an interface
	}
	return s, nil
}

// OpenDatabase opens the database of a configuration for writing, and makes it
// where there never was one. A database that vanished is not replaced by an
// empty one: where last good rules are kept, there was a database.
func OpenDatabase(ctx context.Context, c config.Config) (*database.Store, error) {
	o, err := databaseOptions(c)
	if err != nil {
		return nil, err
	}
	_, errKept := os.Stat(c.LastGood)
	kept := errKept == nil && c.LastGood != ""
	if path, ok := strings.CutPrefix(c.DB, "sqlite:"); ok && kept && !c.RulesElsewhere() {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil,
				fmt.Errorf("database %s is gone while the last good rules are kept in %s: put it back, or remove "+
					"that copy to begin with an empty one", path, c.LastGood)
		}
	}
	o.Existing = kept
	opened, err := database.New(ctx, o)
	if err != nil && kept && strings.Contains(err.Error(), "has no tables of headgate") {
		err = fmt.Errorf("%w; or the last good rules in %s removed, to begin with none", err, c.LastGood)
	}
	return opened, err
}

// OpenDatabaseReadOnly opens the database of a configuration, which exists, and
// changes nothing in it.
func OpenDatabaseReadOnly(ctx context.Context, c config.Config) (*database.Store, error) {
	o, err := databaseOptions(c)
	if err != nil {
		return nil, err
	}
	o.ReadOnly = true
	return database.New(ctx, o)
}

func databaseOptions(c config.Config) (database.Options, error) {
	d := c.Database
	o := database.Options{
		DSN: c.DB, PasswordFile: d.PasswordFile, NoNotify: !d.Notify,
		Table: database.Table{Name: d.Table, Columns: d.Columns, VersionQuery: d.VersionQuery}, Local: d.Keys,
	}
	if strings.HasPrefix(c.DB, "kubernetes:") {
		in, err := kube.ParseDSN(c.DB)
		if err != nil {
			return o, err
		}
		if o.Elsewhere, err = kube.New(in); err != nil {
			return o, err
		}
	}
	return o, nil
}

func newDatabase(c config.Config, open func(context.Context, config.Config) (*database.Store, error)) *policyDatabase {
	d := &policyDatabase{conf: c, open: open}
	for i := range d.wake {
		d.wake[i] = make(chan struct{}, 1)
	}
	return d
}

// watch makes rules and keys look for changes as soon as the database tells of
// some.
func (d *policyDatabase) watch(ctx context.Context) {
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
func (d *policyDatabase) opened() *database.Store {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store
}

func (d *policyDatabase) Version(ctx context.Context) (string, error) {
	s, err := d.get(ctx)
	if err != nil {
		return "", err
	}
	return s.Version(ctx)
}

func (d *policyDatabase) Load(ctx context.Context) (policy.Document, string, error) {
	s, err := d.get(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	return s.Load(ctx)
}

func (d *policyDatabase) LoadInto(ctx context.Context, draft *policy.Draft) (policy.Document, string, error) {
	s, err := d.get(ctx)
	if err != nil {
		return policy.Document{}, "", err
	}
	return s.LoadInto(ctx, draft)
}

// NumberOf asks nobody who could not be opened: the rules are of no version then.
func (d *policyDatabase) NumberOf(ctx context.Context, version string) (int64, error) {
	s := d.opened()
	if s == nil {
		return 0, nil
	}
	return s.NumberOf(ctx, version)
}

func (d *policyDatabase) Apply(ctx context.Context, a record.Author, e record.Edit) (record.Version, error) {
	s, err := d.get(ctx)
	if err != nil {
		return record.Version{}, err
	}
	return s.Apply(ctx, a, e)
}

// Append writes down a change of a bucket.
func (d *policyDatabase) Append(ctx context.Context, a record.Audit) (int64, error) {
	s, err := d.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Append(ctx, a)
}

// findKey reports whose an API key is. Revoked ones too: their buckets may
// still be in debt.
func (d *policyDatabase) findKey(ctx context.Context, id string) (project, tier string, err error) {
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
	return "", "", record.ErrNotFound
}

func (d *policyDatabase) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store != nil {
		_ = d.store.Close() // nothing is under way any more
	}
}
