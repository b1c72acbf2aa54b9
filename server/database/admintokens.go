package database

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// maxAdminTokens bounds the table, since every gateway reads it whole. Revoked
// tokens count: their names stand in the history.
const maxAdminTokens = 1000

// CreateAdminToken makes a token and reports its text, which is shown this
// once: the database keeps nothing that it could be told from.
func (s *Store) CreateAdminToken(ctx context.Context, n record.NewAdminToken) (record.AdminToken, string, error) {
	now := time.Now()
	if err := n.Check(now); err != nil {
		return record.AdminToken{}, "", err
	}
	text, err := record.AdminTokenFormat.New()
	if err != nil {
		return record.AdminToken{}, "", err
	}
	t := record.AdminToken{
		ID:      newID("t_"),
		Name:    n.Name,
		Created: now.UTC().Truncate(time.Second),
		Expires: n.Expires.UTC().Truncate(time.Second),
	}
	var expires any
	if !n.Expires.IsZero() {
		expires = t.Expires.Unix()
	}
	for _, r := range record.Roles { // in one order, and none twice
		if slices.Contains(n.Roles, r) {
			t.Roles = append(t.Roles, r)
		}
	}
	digest := record.AdminTokenDigest(text)
	err = s.write(ctx, func(tx *tx) error {
		var all, same int
		if err := tx.QueryRowContext(ctx,
			"SELECT count(*), coalesce(sum(CASE WHEN name = ? THEN 1 ELSE 0 END), 0) FROM admin_tokens",
			t.Name).Scan(&all, &same); err != nil {
			return err
		}
		switch {
		case same > 0:
			return fmt.Errorf("name is %q, want another: %w, if only by a token that was revoked", t.Name,
				record.ErrTokenName)
		case all >= maxAdminTokens:
			return fmt.Errorf(
				"there are %d admin tokens, want fewer than %d: delete revoked ones from the table admin_tokens", all,
				maxAdminTokens)
		}
		_, err := tx.ExecContext(ctx,
			"INSERT INTO admin_tokens (id, name, roles, digest, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
			t.ID, t.Name, joinRoles(t.Roles), digest[:], t.Created.Unix(), expires)
		return err
	})
	if err != nil {
		return record.AdminToken{}, "", err
	}
	return t, text, nil
}

func joinRoles(roles []record.Role) string {
	texts := make([]string, len(roles))
	for i, r := range roles {
		texts[i] = string(r)
	}
	return strings.Join(texts, ",")
}

// ListAdminTokens reports all tokens, revoked and expired ones too, oldest
// first.
func (s *Store) ListAdminTokens(ctx context.Context) (list []record.AdminToken, err error) {
	records, err := s.adminTokens(ctx)
	for _, r := range records {
		list = append(list, r.AdminToken)
	}
	return list, err
}

// adminTokenName names a token in an error.
type adminTokenName string

func (n adminTokenName) String() string { return fmt.Sprintf("admin token %q", string(n)) }

// RevokeAdminToken ends the token with a name, or reports ErrNotFound. One that
// is revoked already stays as it is.
func (s *Store) RevokeAdminToken(ctx context.Context, name string) error {
	return s.write(ctx, func(tx *tx) error {
		done, err := tx.ExecContext(ctx, "UPDATE admin_tokens SET revoked_at = coalesce(revoked_at, ?) WHERE name = ?",
			time.Now().Unix(), name)
		if err != nil {
			return err
		}
		return affected(done, adminTokenName(name))
	})
}

// AdminTokenRecord is a token and what it is found by.
type AdminTokenRecord struct {
	Digest [sha256.Size]byte
	record.AdminToken
}

// AdminTokens is the source of the admin tokens, for a value that is kept fresh.
func (s *Store) AdminTokens() AdminTokenSource { return AdminTokenSource{s} }

// AdminTokenSource reads admin tokens the way a Store reads policies.
type AdminTokenSource struct{ store *Store }

// Version reports a text that differs after every change of the tokens. It reads
// them all: they are few, and nobody has to tell of a change.
func (a AdminTokenSource) Version(ctx context.Context) (string, error) {
	_, version, err := a.Load(ctx)
	return version, err
}

// Load reads all tokens, revoked and expired ones too, and their version.
func (a AdminTokenSource) Load(ctx context.Context) ([]AdminTokenRecord, string, error) {
	records, err := a.store.adminTokens(ctx)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	for _, r := range records {
		fmt.Fprintf(sum, "%s %s %s %x %d %d\n", r.ID, r.Name, joinRoles(r.Roles), r.Digest, r.Expires.Unix(),
			r.Revoked.Unix())
	}
	return records, hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

func (s *Store) adminTokens(ctx context.Context) (records []AdminTokenRecord, err error) {
	err = s.read(ctx, func(tx *tx) (err error) {
		records, err = s.queryAdminTokens(ctx, tx)
		return err
	})
	return records, err
}

func (s *Store) queryAdminTokens(ctx context.Context, tx *tx) ([]AdminTokenRecord, error) {
	rows, err := tx.QueryContext(ctx,
		"SELECT id, name, roles, digest, created_at, expires_at, revoked_at FROM admin_tokens ORDER BY rowid LIMIT "+
			"?", maxAdminTokens)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var records []AdminTokenRecord
	r := newRow(s.db.name(), "admin_tokens", tx)
	for rows.Next() {
		if err := rows.Scan(r.cells[:7]...); err != nil {
			return nil, err
		}
		r.begin(r.show(r.values[0]))
		t := record.AdminToken{
			ID: r.text(0, "id"), Name: r.text(1, "name"), Roles: r.roles(2),
			Created: r.time(4, "created_at"), Expires: r.time(5, "expires_at"), Revoked: r.time(6, "revoked_at"),
		}
		digest, ok := r.values[3].([]byte)
		if !ok || len(digest) != sha256.Size {
			r.wrong(3, "digest", "32 bytes")
			continue
		}
		records = append(records, AdminTokenRecord{[sha256.Size]byte(digest), t})
	}
	return records, errors.Join(rows.Err(), r.err())
}

func (r *row) roles(i int) (roles []record.Role) {
	for text := range strings.SplitSeq(r.text(i, "roles"), ",") {
		if !slices.Contains(record.Roles, record.Role(text)) {
			r.wrong(i, "roles", "read, write or grant, with commas between them")
			return nil
		}
		roles = append(roles, record.Role(text))
	}
	return roles
}
