package record

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/identity"
)

// APIKey is an API key as the database knows it: everything but the key itself.
type APIKey struct {
	ID      string // "k_" and 20 hexadecimal digits
	Project string // empty: none
	Tier    string // empty: the project's
	Name    string // for people
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: not revoked
	Scopes  identity.Scopes
	Secret  string // name of the secret that the digest is under; empty: from before they had names
}

// State says whether the key counts at a time: active, expired or revoked.
func (k *APIKey) State(now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked"
	case !k.Expires.IsZero() && !k.Expires.After(now):
		return "expired"
	}
	return "active"
}

// NewAPIKey is what to say about a key that is to be made. Every field may be
// empty.
type NewAPIKey struct {
	Project string
	Tier    string
	Name    string
	Expires time.Time
	Scopes  identity.Scopes
	Format  identity.KeyFormat // of a key that is made
}

// maxKeyText bounds what is said about a key, in bytes.
const maxKeyText = 256

// Check names every field at fault.
func (k *NewAPIKey) Check() error {
	var errs []error
	for _, f := range []struct{ field, value string }{{"project", k.Project}, {"tier", k.Tier}, {"name", k.Name}} {
		if !utf8.ValidString(f.value) || len(f.value) > maxKeyText {
			errs = append(errs, fmt.Errorf("%s is %s, want at most %d bytes of UTF-8", f.field,
				Quote(f.value), maxKeyText))
		}
	}
	if !k.Expires.IsZero() && k.Expires.Unix() < 1 {
		errs = append(errs, fmt.Errorf("expires is %v, want a time after 1970", k.Expires))
	}
	return errors.Join(errs...)
}

// MaxGrace is the longest that a key which was replaced goes on counting.
const MaxGrace = 90 * 24 * time.Hour

// Rotation is the replacement of a key by another that is like it.
type Rotation struct {
	ID    string        // of the key that is replaced
	Grace time.Duration // how long it goes on counting beside the new one
}

// Check names what is at fault.
func (r Rotation) Check() error {
	if r.Grace < 0 || r.Grace > MaxGrace {
		return fmt.Errorf("grace is %v, want 0s to %v", r.Grace, MaxGrace)
	}
	return nil
}

// ErrKeyOver is what is returned about a key that is to be replaced and does not count any more.
var ErrKeyOver = errors.New("the key is revoked or expired already")

// KeysOf are those of a project, and all if it is "".
func KeysOf(keys []APIKey, project string) []APIKey {
	if project == "" {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k APIKey) bool { return k.Project != project })
}
