package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/identity"
)

// Key is an API key as the database knows it: everything but the key itself.
type Key struct {
	ID      string // "k_" and 20 hexadecimal digits
	Project string // empty: none
	Tier    string // empty: the project's
	Name    string // for people
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: not revoked
}

// NewKey is what to say about a key that is to be made. Every field may be
// empty.
type NewKey struct {
	Project string
	Tier    string
	Name    string
	Expires time.Time
}

// CreateKey makes an API key and reports its text, which is shown this once:
// the database keeps nothing that it could be told from.
func (s *Store) CreateKey(ctx context.Context, d *identity.Digester, k NewKey) (Key, string, error) {
	if err := k.check(); err != nil {
		return Key{}, "", err
	}
	text, err := identity.NewKey()
	if err != nil {
		return Key{}, "", err
	}
	key := Key{ID: newID("k_"), Project: k.Project, Tier: k.Tier, Name: k.Name, Created: time.Now().Truncate(time.Second)}
	var expires any
	if !k.Expires.IsZero() {
		key.Expires = k.Expires.Truncate(time.Second)
		expires = key.Expires.Unix()
	}
	digest := d.Digest(text)
	err = s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO api_keys (id, project_id, name, tier, digest, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`,
			key.ID, orNull(key.Project), orNull(key.Name), orNull(key.Tier), digest[:], key.Created.Unix(), expires)
		return err
	})
	if err != nil {
		return Key{}, "", err
	}
	return key, text, nil
}

// maxKeyText bounds what is said about a key, in bytes.
const maxKeyText = 256

func (k NewKey) check() error {
	var errs []error
	for _, f := range []struct{ field, value string }{{"project", k.Project}, {"tier", k.Tier}, {"name", k.Name}} {
		if !utf8.ValidString(f.value) || len(f.value) > maxKeyText {
			errs = append(errs, fmt.Errorf("%s is %s, want at most %d bytes of UTF-8", f.field, shown(f.value), maxKeyText))
		}
	}
	if !k.Expires.IsZero() && k.Expires.Unix() < 1 {
		errs = append(errs, fmt.Errorf("expires is %v, want a time after 1970", k.Expires))
	}
	return errors.Join(errs...)
}

// ListKeys reports all keys, revoked and expired ones too, oldest first.
func (s *Store) ListKeys(ctx context.Context) ([]Key, error) {
	var keys []Key
	err := s.read(ctx, func(tx *sql.Tx) error {
		return s.queryKeys(ctx, tx, func(k Key, _ identity.Digest) { keys = append(keys, k) })
	})
	return keys, err
}

// keyID names a key in an error.
type keyID string

func (id keyID) String() string { return fmt.Sprintf("API key %q", string(id)) }

// RevokeKey ends a key, or reports ErrNotFound. A key that is revoked already
// stays as it is.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", time.Now().Unix(), id)
		if err != nil {
			return err
		}
		return affected(done, keyID(id))
	})
}

// Keys is the source of the API keys, for a value that is kept fresh.
func (s *Store) Keys() KeySource { return KeySource{s} }

// KeySource reads API keys the way a Store reads policies.
type KeySource struct{ store *Store }

// Version is the Store's: it differs after every change of the file.
func (k KeySource) Version(ctx context.Context) (string, error) { return k.store.Version(ctx) }

// Load reads all keys, revoked and expired ones too, as an identity.Keyring
// takes them, and a version that is not newer.
func (k KeySource) Load(ctx context.Context) (records []identity.KeyRecord, version string, err error) {
	err = k.store.use(ctx, func(f *file) (err error) {
		if version, err = f.version(ctx); err != nil { // first, as in Store.Load
			return err
		}
		return f.read(ctx, func(tx *sql.Tx) error {
			return k.store.queryKeys(ctx, tx, func(key Key, d identity.Digest) {
				records = append(records, identity.KeyRecord{Digest: d, Key: identity.Key{
					ID: key.ID, Project: key.Project, Tier: key.Tier, Name: key.Name, Expires: key.Expires, Revoked: !key.Revoked.IsZero(),
				}})
			})
		})
	})
	if err != nil {
		return nil, versionAtFault(version, err), err
	}
	return records, version, nil
}

func (s *Store) queryKeys(ctx context.Context, tx *sql.Tx, each func(Key, identity.Digest)) error {
	rows, err := tx.QueryContext(ctx, `SELECT rowid, id, project_id, name, tier, digest, created_at, expires_at, revoked_at
		FROM api_keys ORDER BY rowid`)
	if err != nil {
		return err
	}
	defer rows.Close()
	r := newRow(s.path, "api_keys")
	for rows.Next() {
		if err := rows.Scan(r.cells[:9]...); err != nil {
			return err
		}
		r.begin(r.values[0])
		k := Key{
			ID:      r.text(1, "id"),
			Project: r.text(2, "project_id"),
			Name:    r.text(3, "name"),
			Tier:    r.text(4, "tier"),
			Created: r.time(6, "created_at"),
			Expires: r.time(7, "expires_at"),
			Revoked: r.time(8, "revoked_at"),
		}
		if k.ID == "" {
			r.wrong(1, "id", "a text that is not empty")
		}
		digest, ok := r.values[5].([]byte)
		if !ok || len(digest) != len(identity.Digest{}) {
			r.wrong(5, "digest", fmt.Sprintf("a blob of %d bytes", len(identity.Digest{})))
			continue
		}
		each(k, identity.Digest(digest))
	}
	return errors.Join(rows.Err(), r.err())
}

// time reports a moment given in Unix seconds, zero for NULL.
func (r *row) time(i int, field string) time.Time {
	if at := r.wholeOrNull(i, field, math.MaxInt64); at != 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}
