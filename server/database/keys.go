package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/record"
)

// CreateKey makes an API key and reports its text, which is shown
// this once: the database keeps nothing that it could be told from.
func (s *Store) CreateKey(ctx context.Context, d *identity.Digester, k record.NewAPIKey) (record.APIKey,
	string, error) {
	if err := k.Check(); err != nil {
		return record.APIKey{}, "", err
	}
	text, err := k.Format.New()
	if err != nil {
		return record.APIKey{}, "", err
	}
	key, err := s.insertKey(ctx, d, text, k)
	if err != nil {
		return record.APIKey{}, "", err
	}
	return key, text, nil
}

// ImportKey adds an API key that was made elsewhere. Its text is not kept. A
// key that is there already is an error that names it.
func (s *Store) ImportKey(ctx context.Context, d *identity.Digester, text string,
	k record.NewAPIKey) (record.APIKey, error) {
	if err := k.Check(); err != nil {
		return record.APIKey{}, err
	}
	if text == "" || len(text) > identity.MaxKeyLength {
		return record.APIKey{}, fmt.Errorf("the key has %d bytes, want 1 to %d", len(text), identity.MaxKeyLength)
	}
	return s.insertKey(ctx, d, text, k)
}

func (s *Store) insertKey(ctx context.Context, d *identity.Digester, text string,
	k record.NewAPIKey) (key record.APIKey, err error) {
	err = s.write(ctx, func(tx *tx) error {
		key, err = addKey(ctx, tx, d, text, k)
		return err
	})
	if err != nil {
		return record.APIKey{}, err
	}
	return key, nil
}

func addKey(ctx context.Context, tx *tx, d *identity.Digester, text string, k record.NewAPIKey) (record.APIKey, error) {
	key := record.APIKey{
		ID:      newID("k_"),
		Project: k.Project,
		Tier:    k.Tier,
		Name:    k.Name,
		Scopes:  k.Scopes,
		Created: time.Now().UTC().Truncate(time.Second),
	}
	key.Secret, _ = d.SecretIDs()
	var expires, scopes any
	if !k.Expires.IsZero() {
		key.Expires = k.Expires.UTC().Truncate(time.Second)
		expires = key.Expires.Unix()
	}
	if k.Scopes != "" {
		list, err := json.Marshal(k.Scopes)
		if err != nil {
			return record.APIKey{}, err
		}
		scopes = string(list)
	}
	digest, previous := d.Digest(text), d.PreviousDigest(text)
	var taken string
	switch err := tx.QueryRowContext(ctx, "SELECT id FROM api_keys WHERE digest IN (?, ?)", digest[:],
		previous[:]).Scan(&taken); {
	case err == nil:
		return record.APIKey{}, fmt.Errorf("the key is there already, as %s", taken)
	case !errors.Is(err, sql.ErrNoRows):
		return record.APIKey{}, err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO api_keys (id, project_id, name, tier, digest, created_at, expires_at, scopes, secret)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		key.ID, orNull(key.Project), orNull(key.Name), orNull(key.Tier), digest[:], key.Created.Unix(), expires,
		scopes, key.Secret)
	return key, err
}

// RotateKey makes a key that is like another, and reports its text. The other one goes on counting for r.Grace, if it
// does not end sooner. It reports ErrNotFound, or ErrKeyOver for one that does not count any more.
func (s *Store) RotateKey(ctx context.Context, d *identity.Digester, r record.Rotation,
	format identity.KeyFormat) (made record.APIKey, text string, err error) {
	if err := r.Check(); err != nil {
		return made, "", err
	}
	if text, err = format.New(); err != nil {
		return made, "", err
	}
	err = s.write(ctx, func(tx *tx) error {
		var old record.APIKey
		err := s.queryKeys(ctx, tx, func(k record.APIKey, _ identity.Digest) {
			if k.ID == r.ID {
				old = k
			}
		})
		now := time.Now()
		switch {
		case err != nil:
			return err
		case old.ID == "":
			return fmt.Errorf("%v: %w", keyID(r.ID), record.ErrNotFound)
		case old.State(now) != "active":
			return fmt.Errorf("%v: %w", keyID(r.ID), record.ErrKeyOver)
		}
		like := record.NewAPIKey{
			Project: old.Project,
			Tier:    old.Tier,
			Name:    old.Name,
			Scopes:  old.Scopes,
			Expires: old.Expires,
		}
		if made, err = addKey(ctx, tx, d, text, like); err != nil {
			return err
		}
		if ends := now.Add(r.Grace); old.Expires.IsZero() || ends.Before(old.Expires) {
			_, err = tx.ExecContext(ctx, "UPDATE api_keys SET expires_at = ? WHERE id = ?", ends.Unix(), r.ID)
		}
		return err
	})
	if err != nil {
		return record.APIKey{}, "", err
	}
	return made, text, nil
}

// ListKeys reports all keys, revoked and expired ones too, oldest first.
func (s *Store) ListKeys(ctx context.Context) ([]record.APIKey, error) {
	var keys []record.APIKey
	err := s.read(ctx, func(tx *tx) error {
		return s.queryKeys(ctx, tx, func(k record.APIKey, _ identity.Digest) { keys = append(keys, k) })
	})
	return keys, err
}

// keyID names a key in an error.
type keyID string

func (id keyID) String() string { return fmt.Sprintf("API key %q", string(id)) }

// RevokeKey ends a key, or reports ErrNotFound. A key that is revoked already
// stays as it is.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	return s.write(ctx, func(tx *tx) error {
		done, err := tx.ExecContext(ctx, "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?",
			time.Now().Unix(), id)
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

// Version reports a text that differs after every change of the database.
func (k KeySource) Version(ctx context.Context) (string, error) { return k.store.version(ctx) }

// Load reads all keys, revoked and expired ones too, as an identity.Keyring
// takes them, and a version that is not newer.
func (k KeySource) Load(ctx context.Context) (records []identity.KeyRecord, version string, err error) {
	version, err = k.store.db.load(ctx, func(tx *tx) error {
		return k.store.queryKeys(ctx, tx, func(key record.APIKey, d identity.Digest) {
			records = append(records, identity.KeyRecord{Digest: d, Key: identity.Key{
				ID: key.ID, Project: key.Project, Tier: key.Tier, Name: key.Name, Expires: key.Expires,
				Revoked: !key.Revoked.IsZero(), Scopes: key.Scopes,
			}})
		})
	})
	if err != nil {
		return nil, versionAtFault(version, err), explain(ctx, k.store.db, err)
	}
	return records, version, nil
}

func (s *Store) queryKeys(ctx context.Context, tx *tx, each func(record.APIKey, identity.Digest)) error {
	rows, err := tx.QueryContext(ctx,
		`SELECT rowid, id, project_id, name, tier, digest, created_at, expires_at, revoked_at, scopes, secret
		FROM api_keys ORDER BY rowid`)
	if err != nil {
		return err
	}
	defer rows.Close()
	r := newRow(s.db.name(), "api_keys", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:11]...); err != nil {
			return err
		}
		r.begin(r.values[0])
		k := record.APIKey{
			ID:      r.text(1, "id"),
			Project: r.text(2, "project_id"),
			Name:    r.text(3, "name"),
			Tier:    r.text(4, "tier"),
			Created: r.time(6, "created_at"),
			Expires: r.time(7, "expires_at"),
			Revoked: r.time(8, "revoked_at"),
			Scopes:  r.scopes(9, "scopes"),
			Secret:  r.text(10, "secret"),
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
		return time.Unix(at, 0).UTC()
	}
	return time.Time{}
}

// scopes reports where a key counts. A list that cannot be read is a fault, not
// a key without scopes: that would count everywhere.
func (r *row) scopes(i int, field string) (s identity.Scopes) {
	text := r.text(i, field)
	if text == "" {
		return ""
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || s == "" {
		r.wrong(i, field, `a JSON list of scopes, such as ["GET /v1/items/{id}"], or NULL`)
	}
	return s
}

// Rehash moves API keys to another secret: to their digests under it, by those
// that they have. Keys that are gone are left out. It reports how many it
// moved.
func (s *Store) Rehash(ctx context.Context, moves []identity.Rotation) (moved int64, err error) {
	err = s.write(ctx, func(tx *tx) error {
		moved = 0
		for _, m := range moves {
			done, err := tx.ExecContext(ctx, "UPDATE api_keys SET digest = ?, secret = ? WHERE digest = ?", m.New[:],
				m.SecretID, m.Old[:])
			if err != nil {
				return err
			}
			n, err := done.RowsAffected()
			if err != nil {
				return err
			}
			moved += n
		}
		return nil
	})
	return moved, err
}

// NameSecret writes down the name of the secret that keys are under which were
// made before secrets had names. While there was one secret, it was theirs.
func (s *Store) NameSecret(ctx context.Context, id string) error {
	return s.write(ctx, func(tx *tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE api_keys SET secret = ? WHERE secret IS NULL", id)
		return err
	})
}
