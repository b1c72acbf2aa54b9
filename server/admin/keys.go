package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// KeyStore is where API keys are kept. What it did is in force here when it returns.
type KeyStore interface {
	CreateKey(ctx context.Context, k record.NewAPIKey) (record.APIKey, string, error)
	RotateKey(ctx context.Context, r record.Rotation) (record.APIKey, string, error)
	ListKeys(ctx context.Context) ([]record.APIKey, error)
	RevokeKey(ctx context.Context, id string) error
}

// KeyEntry is an API key as the API tells of it: everything but itself.
type KeyEntry struct {
	ID      string    `json:"id"`
	Project string    `json:"project"`
	Name    string    `json:"name"`
	Tier    string    `json:"tier,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
	Scopes  []string  `json:"scopes,omitempty"`
	Secret  string    `json:"secret,omitempty"`
}

// EntryOfKey tells of a key.
func EntryOfKey(k record.APIKey) KeyEntry {
	return KeyEntry{k.ID, k.Project, k.Name, k.Tier, k.Created, k.Expires, k.Revoked, k.Scopes.List(), k.Secret}
}

// APIKey is the key that e tells of.
func (e KeyEntry) APIKey() (record.APIKey, error) {
	scopes, err := identity.ParseScopes(e.Scopes)
	return record.APIKey{
		ID:      e.ID,
		Project: e.Project,
		Name:    e.Name,
		Tier:    e.Tier,
		Created: e.Created,
		Expires: e.Expires,
		Revoked: e.Revoked,
		Scopes:  scopes,
		Secret:  e.Secret,
	}, err
}

// Keys is the answer to GET /v1/keys, oldest first.
type Keys struct {
	Keys []KeyEntry `json:"keys"`
	Next string     `json:"next,omitempty"` // cursor of the following page
}

// NewKey is the body of POST /v1/keys.
type NewKey struct {
	Project string    `json:"project"`
	Name    string    `json:"name"`
	Tier    string    `json:"tier,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Scopes  []string  `json:"scopes,omitempty"`
}

// RotatedKey is the body of POST /v1/keys/{id}/rotate.
type RotatedKey struct {
	Grace string `json:"grace,omitempty"` // such as 24h; 0s if empty
}

// MadeKey is the answer to both, the only place where a key is ever shown.
type MadeKey struct {
	KeyEntry
	Key string `json:"key"`
}

// listKeys shows a page of keys.
func (d *Door) listKeys(w http.ResponseWriter, r *http.Request) {
	list, err := d.KeyStore.ListKeys(r.Context())
	if err != nil {
		refuse(w, r, unavailable, fmt.Errorf("The API keys could not be read: %w.", err))
		return
	}
	list = record.KeysOf(list, r.URL.Query().Get("project"))
	list, next, err := pageOf(r, list, "API key", func(k record.APIKey) string { return k.ID })
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	page := Keys{Keys: []KeyEntry{}, Next: next}
	for _, k := range list {
		page.Keys = append(page.Keys, EntryOfKey(k))
	}
	answer(w, http.StatusOK, page)
}

func (d *Door) createKey(w http.ResponseWriter, r *http.Request) {
	var body NewKey
	if err := decode(w, r, &body); err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	wanted := record.NewAPIKey{Project: body.Project, Name: body.Name, Tier: body.Tier, Expires: body.Expires}
	var err error
	wanted.Scopes, err = identity.ParseScopes(body.Scopes)
	if err = errors.Join(err, wanted.Check()); err == nil && (body.Project == "" || body.Name == "") {
		err = errors.New("project or name is empty, want both, so that the key can be told apart from others")
	}
	if err == nil && !wanted.Expires.IsZero() && !wanted.Expires.After(d.Now()) {
		err = fmt.Errorf("expires is %s, want a time in the future", wanted.Expires.Format(time.RFC3339))
	}
	if err != nil {
		refuse(w, r, unacceptable, err)
		return
	}
	about(r, "API key of project "+asSent(body.Project))
	made, text, err := d.KeyStore.CreateKey(context.WithoutCancel(r.Context()), wanted)
	d.answerKey(w, r, "made", made, text, err)
}

func (d *Door) rotateKey(w http.ResponseWriter, r *http.Request) {
	var body RotatedKey
	if err := decode(w, r, &body); err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	wanted := record.Rotation{ID: r.PathValue("id")}
	var err error
	if body.Grace != "" {
		if wanted.Grace, err = policy.ParseDuration(body.Grace); err != nil {
			err = fmt.Errorf("grace is %s, want a time such as 24h", asSent(body.Grace))
		}
	}
	if err = errors.Join(err, wanted.Check()); err != nil {
		refuse(w, r, unacceptable, err)
		return
	}
	about(r, "API key "+asSent(wanted.ID))
	made, text, err := d.KeyStore.RotateKey(context.WithoutCancel(r.Context()), wanted)
	d.answerKey(w, r, "rotated", made, text, err)
}

// answerKey shows a key that was made, this once.
func (d *Door) answerKey(w http.ResponseWriter, r *http.Request, done string, made record.APIKey,
	text string, err error) {
	switch {
	case errors.Is(err, record.ErrNotFound):
		refuse(w, r, notFound, errors.New("There is no such API key; GET /v1/keys lists them."))
	case errors.Is(err, record.ErrKeyOver):
		refuse(w, r, unacceptable,
			errors.New("The key is revoked or expired already: make a new one by POST /v1/keys."))
	case err != nil:
		refuse(w, r, unavailable, fmt.Errorf("The API key could not be %s: %w.", done, err))
	default:
		d.Log.Info("API key "+done, "id", made.ID, "project", made.Project, "by", callerOf(r).actor)
		answer(w, http.StatusCreated, MadeKey{EntryOfKey(made), text})
	}
}

func (d *Door) revokeKey(w http.ResponseWriter, r *http.Request) {
	d.revoke(w, r, "API key", "/v1/keys", "id", d.KeyStore.RevokeKey)
}
