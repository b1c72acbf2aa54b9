package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
)

// apiKeys is what happens around API keys while the gateway runs: the secret
// file is watched, and keys that turn up under a previous secret are moved to
// the current one.
type apiKeys struct {
	file     string
	log      *slog.Logger
	digester *identity.Digester // nil if no key can be recognised
	secrets  database.Secrets   // those in force; only watch uses them
	said     string             // the last complaint; only watch uses it
	keys     *keyring
	rehash   *rehasher
}

// newAPIKeys reads the secret that keys are under.
func newAPIKeys(c config.Config, db *policyDatabase, keys *keyring, log *slog.Logger) (*apiKeys, error) {
	if log == nil {
		log = slog.Default()
	}
	secrets, err := loadSecrets(c.SecretFile, keys.len(), log)
	if err != nil && keys.value.Status().Emptied {
		err = fmt.Errorf("%w; from there they are gone already, so remove their last good copy %s too", err, keys.copy)
	}
	if err != nil {
		return nil, err
	}
	digester, err := secrets.Digester()
	if err != nil {
		return nil, err
	}
	return &apiKeys{
		file: c.SecretFile, log: log, digester: digester, secrets: secrets, keys: keys,
		rehash: &rehasher{db: db, log: log, pending: map[identity.Digest]identity.Rotation{}},
	}, nil
}

// Digester returns what API keys are hashed with. keys is how many there are
// already: a secret that is missing then must be found again, since a new one
// would make every one of them invalid.
func Digester(path string, keys int, log *slog.Logger) (*identity.Digester, error) {
	secrets, err := loadSecrets(path, keys, log)
	if err != nil {
		return nil, err
	}
	return secrets.Digester()
}

func loadSecrets(path string, keys int, log *slog.Logger) (database.Secrets, error) {
	if _, err := os.Stat(path); keys > 0 && errors.Is(err, fs.ErrNotExist) {
		return database.Secrets{},
			fmt.Errorf("secret file %s is missing, and without it no API key can be recognised, of %d in "+
				"the database: put it back, name it with --secret-file, or revoke the keys by deleting them from the "+
				"table api_keys", path, keys)
	}
	return database.LoadSecrets(path, log)
}

// run watches the secret file and moves keys until ctx is done.
func (k *apiKeys) run(ctx context.Context, interval time.Duration) {
	if k == nil {
		return
	}
	look, move := time.NewTicker(interval), time.NewTicker(rehashLook)
	defer look.Stop()
	defer move.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			k.watch(ctx)
		case <-move.C:
			k.rehash.flush(ctx)
		}
	}
}

// watch puts a changed secret file in force. One that cannot be read, or has no
// secret in common with those in force, changes nothing: every key would be
// unknown from then on.
//
// Before a secret goes, the keys are read: those that were moved to another one
// a moment ago are known under it then, and are not unknown for a while.
func (k *apiKeys) watch(ctx context.Context) {
	next, err := database.ReadSecrets(k.file, nil)
	switch {
	case err != nil:
		k.complain(err.Error())
		return
	case next.Equal(k.secrets):
		k.said = ""
		return
	case !next.Follow(k.secrets):
		k.complain(
			fmt.Sprintf("secret file %s: has no secret in common with those in force, so every API key would be "+
				"unknown; to use it nevertheless, restart", k.file))
		return
	}
	if next.Drops(k.secrets) {
		if err := k.keys.reload(ctx); err != nil {
			k.complain(
				fmt.Sprintf("secret file %s: a secret is gone from it, and the keys that are under the others "+
					"cannot be read: %v", k.file, err))
			return
		}
	}
	if err := k.digester.Replace(next.Current, next.Previous); err != nil {
		k.complain(err.Error())
		return
	}
	k.secrets, k.said = next, ""
	k.rehash.rest()
	current, previous := k.digester.SecretIDs()
	k.log.Info("the secret file changed and is in force", "file", k.file, "current", current, "previous", previous)
}

// complain says once what is wrong with the secret file.
func (k *apiKeys) complain(text string) {
	if k.said != text {
		k.said = text
		k.log.Error("the secret file is not used; those secrets that were read last stay in force", "error", text)
	}
}

const (
	rehashLook = time.Second // between two looks whether keys are to be moved

	// rehashRest is the time between two moves, since each makes every process
	// load the keys again. After a new secret was read, it is what the other
	// processes have to read it too, before the first key is moved to it.
	rehashRest    = 5 * time.Second
	rehashTimeout = 10 * time.Second

	maxPending  = 4096 // keys that wait to be moved; others come again
	rehashBatch = 256  // keys moved in one transaction
)

// rehasher moves keys that turn up under a previous secret to the current one.
type rehasher struct {
	db   *policyDatabase
	log  *slog.Logger
	said string // the last complaint; only flush uses it

	notBefore time.Time // when keys may be moved again; only the one goroutine of run uses it

	mu      sync.Mutex
	pending map[identity.Digest]identity.Rotation // guarded by mu
}

// note remembers a key that is to be moved. It is called by requests.
func (r *rehasher) note(m identity.Rotation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) < maxPending {
		r.pending[m.Old] = m
	}
}

// rest keeps keys where they are for a while.
func (r *rehasher) rest() { r.notBefore = time.Now().Add(rehashRest) }

// flush moves what was noted. What fails is noted again by the next request
// with the key, so a database that cannot be written to costs a log line.
func (r *rehasher) flush(ctx context.Context) {
	if time.Now().Before(r.notBefore) {
		return
	}
	r.mu.Lock()
	pending := r.pending
	if len(pending) > 0 {
		r.pending = map[identity.Digest]identity.Rotation{}
		r.rest()
	}
	r.mu.Unlock()
	var batch []identity.Rotation
	for _, m := range pending {
		if batch = append(batch, m); len(batch) == rehashBatch {
			if !r.move(ctx, batch) {
				return
			}
			batch = batch[:0]
		}
	}
	if len(batch) > 0 {
		r.move(ctx, batch)
	}
}

func (r *rehasher) move(ctx context.Context, batch []identity.Rotation) bool {
	ctx, cancel := context.WithTimeout(ctx, rehashTimeout)
	defer cancel()
	moved, err := r.db.rehash(ctx, batch)
	if err != nil {
		if text := err.Error(); text != r.said {
			r.said = text
			r.log.Warn("API keys stay under the previous secret, where they are accepted until the rotation ends",
				"keys", len(batch), "error", text)
		}
		return false
	}
	r.said = ""
	if moved > 0 {
		r.log.Info("moved API keys to the current secret", "keys", moved)
	}
	return true
}

func (d *policyDatabase) rehash(ctx context.Context, moves []identity.Rotation) (int64, error) {
	s, err := d.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.Rehash(ctx, moves)
}

// outgoing is what is done to a request before the API sees it, or nil.
func outgoing(who *identity.Resolver, c config.Keys) func(*http.Request) {
	if !c.Strip {
		return nil
	}
	return func(r *http.Request) {
		if c.Header != "" {
			r.Header.Del(c.Header)
		}
		if slices.ContainsFunc(r.Header.Values("Authorization"), who.BearerIsKey) {
			r.Header.Del("Authorization")
		}
		if c.Query != "" {
			_, r.URL.RawQuery, _ = strings.Cut(who.StripTarget("?"+r.URL.RawQuery), "?")
		}
	}
}
