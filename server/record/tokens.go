package record

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/headgate-io/headgate/identity"
)

// Role is something that an admin token lets its bearer do.
type Role string

// The roles. RoleWrite and RoleGrant include RoleRead, and not each other.
const (
	RoleRead  Role = "read"  // sees everything and changes nothing
	RoleWrite Role = "write" // also changes rules and tiers, brings back old ones, makes and ends API keys, and reloads
	RoleGrant Role = "grant" // also resets and tops up buckets, makes rules that expire, and decides requests
)

// Roles are all there are.
var Roles = []Role{RoleRead, RoleWrite, RoleGrant}

// AdminToken is a token of the admin listener as the database knows it:
// everything but the token itself.
type AdminToken struct {
	ID      string // "t_" and 20 hexadecimal digits
	Name    string // no two tokens ever have the same
	Roles   []Role
	Created time.Time
	Expires time.Time // zero: never
	Revoked time.Time // zero: not revoked
}

// May reports whether the token has a role.
func (t AdminToken) May(role Role) bool {
	return slices.Contains(t.Roles, role) || role == RoleRead && len(t.Roles) > 0
}

// Valid reports whether the token counts at a time.
func (t AdminToken) Valid(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// AdminTokenFormat is what admin tokens look like: a prefix that scanners for
// secrets can know, 256 random bits, and a checksum.
var AdminTokenFormat = identity.KeyFormat{Prefix: "hgadm_"}

// AdminTokenDigest is what an admin token is found by. It has no key: nobody
// guesses 256 bits, however many digests they have.
func AdminTokenDigest(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// NewAdminToken is what to say about a token that is to be made. Expires may be
// zero.
type NewAdminToken struct {
	Name    string
	Roles   []Role
	Expires time.Time
}

var adminName = regexp.MustCompile("^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")

// Check names every field at fault.
func (n NewAdminToken) Check(now time.Time) error {
	var errs []error
	if !adminName.MatchString(n.Name) {
		errs = append(errs, fmt.Errorf("name is %s, want 1 to 63 letters, digits, ., _ and -, such as ci",
			Quote(n.Name)))
	}
	if len(n.Roles) == 0 {
		errs = append(errs, errors.New("roles is empty, want read, write or grant, or several of them"))
	}
	for _, r := range n.Roles {
		if !slices.Contains(Roles, r) {
			errs = append(errs, fmt.Errorf("role is %s, want read, write or grant", Quote(string(r))))
		}
	}
	if !n.Expires.IsZero() && !n.Expires.After(now) {
		errs = append(errs, fmt.Errorf("expires is %s, want a time in the future", n.Expires.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}

// ErrTokenName is what is returned about a name that another token has or had.
var ErrTokenName = errors.New("the name is taken")
