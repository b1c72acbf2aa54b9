package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/server/record"
)

// TokenStore is where admin tokens are kept. What it did is in force when it
// returns.
type TokenStore interface {
	CreateAdminToken(ctx context.Context, n record.NewAdminToken) (record.AdminToken, string, error)
	ListAdminTokens(ctx context.Context) ([]record.AdminToken, error)
	RevokeAdminToken(ctx context.Context, name string) error
}

// TokenEntry is an admin token as the API tells of it: everything but itself.
type TokenEntry struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Roles   []record.Role `json:"roles"`
	Created time.Time     `json:"created"`
	Expires time.Time     `json:"expires,omitzero"`
	Revoked time.Time     `json:"revoked,omitzero"`
}

func entryOf(t record.AdminToken) TokenEntry {
	utc := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.UTC()
	}
	return TokenEntry{t.ID, t.Name, t.Roles, t.Created.UTC(), utc(t.Expires), utc(t.Revoked)}
}

// AdminToken is the token that e tells of.
func (e TokenEntry) AdminToken() record.AdminToken {
	return record.AdminToken{
		ID:      e.ID,
		Name:    e.Name,
		Roles:   e.Roles,
		Created: e.Created,
		Expires: e.Expires,
		Revoked: e.Revoked,
	}
}

// Tokens is the answer to GET /v1/tokens, oldest first.
type Tokens struct {
	Tokens []TokenEntry `json:"tokens"`
	Next   string       `json:"next,omitempty"` // cursor of the following page
}

// NewToken is the body of POST /v1/tokens.
type NewToken struct {
	Name    string        `json:"name"`
	Roles   []record.Role `json:"roles"`
	Expires time.Time     `json:"expires,omitzero"`
}

// MadeToken is its answer, the only place where a token is ever shown.
type MadeToken struct {
	TokenEntry
	Token string `json:"token"`
}

// listTokens shows a page of tokens.
func (d *Door) listTokens(w http.ResponseWriter, r *http.Request) {
	list, err := d.TokenStore.ListAdminTokens(r.Context())
	if err != nil {
		refuse(w, r, unavailable, fmt.Errorf("The admin tokens could not be read: %w.", err))
		return
	}
	list, next, err := pageOf(r, list, "admin token", func(t record.AdminToken) string { return t.ID })
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	page := Tokens{Tokens: []TokenEntry{}, Next: next}
	for _, t := range list {
		page.Tokens = append(page.Tokens, entryOf(t))
	}
	answer(w, http.StatusOK, page)
}

func (d *Door) createToken(w http.ResponseWriter, r *http.Request) {
	var body NewToken
	if err := decode(w, r, &body); err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	wanted := record.NewAdminToken{Name: body.Name, Roles: body.Roles, Expires: body.Expires}
	if err := wanted.Check(d.Now()); err != nil {
		refuse(w, r, unacceptable, err)
		return
	}
	about(r, "admin token "+body.Name)
	made, text, err := d.TokenStore.CreateAdminToken(context.WithoutCancel(r.Context()), wanted)
	switch {
	case errors.Is(err, record.ErrTokenName):
		refuse(w, r, nameTaken, err)
	case err != nil:
		refuse(w, r, unavailable, fmt.Errorf("The admin token could not be made: %w.", err))
	default:
		d.Log.Info("admin token made", "name", made.Name, "roles", made.Roles, "by", callerOf(r).actor)
		answer(w, http.StatusCreated, MadeToken{entryOf(made), text})
	}
}

func (d *Door) revokeToken(w http.ResponseWriter, r *http.Request) {
	d.revoke(w, r, "admin token", "/v1/tokens", "name", d.TokenStore.RevokeAdminToken)
}
