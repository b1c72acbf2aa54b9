package record

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/policy"
)

// Conflict is the error about an edit of rules that somebody else has changed
// meanwhile.
type Conflict struct {
	Base    int64
	Current Version
	Since   []Version // newest first, at most mostSince
}

func (c *Conflict) Error() string {
	if c.Base > c.Current.ID {
		return fmt.Sprintf("the edit is of version %d, which there is not: the newest is %d", c.Base, c.Current.ID)
	}
	return fmt.Sprintf("the edit is of version %d, and the rules are at %d: %s changed them (%s)", c.Base, c.Current.ID,
		c.Current.Actor, c.Current.Action)
}

// Actions of versions. Others may be named as callers like.
const (
	ActionStart    = "start" // what was there when the history began
	ActionSet      = "set"
	ActionDelete   = "delete"
	ActionClear    = "clear" // the last rule was deleted, by its name
	ActionTier     = "tier"
	ActionImport   = "import"
	ActionApply    = "apply"
	ActionRollback = "rollback"
	ActionRevert   = "revert" // auto_revert took a change back
	ActionSQL      = "sql"    // somebody's shell
)

// Author is who changes rules, and why. Actor is required.
type Author struct {
	Actor   string // as far as proven: an admin token's name, "local:alice" of the command
	Claimed string // who they say they are; may be empty
	Why     string // may be empty; at most MaxWhy bytes
}

// MaxWhy is the longest Author.Why, in bytes.
const MaxWhy = 500

// Check reports what could not be written into the history.
func (a Author) Check() error {
	var faults []error
	wrong := func(field, value, want string) {
		faults = append(faults, policy.Problem{Code: "author", Rule: -1, Where: "author", Field: field,
			Value: value, Want: want})
	}
	if a.Actor == "" {
		wrong("actor", "empty", "who changes the rules")
	}
	for _, t := range []struct {
		field, text string
		most        int
	}{{"actor", a.Actor, MaxText}, {"claimed", a.Claimed, MaxText}, {"why", a.Why, MaxWhy}} {
		switch {
		case len(t.text) > t.most:
			wrong(t.field, fmt.Sprintf("%d bytes long", len(t.text)), fmt.Sprintf("at most %d", t.most))
		case !utf8.ValidString(t.text), strings.ContainsFunc(t.text, Unprintable):
			wrong(t.field, Quote(t.text), "one line of printable text")
		}
	}
	return errors.Join(faults...)
}

// Version is one change of the rules and tiers, of whatever number of them.
type Version struct {
	ID int64 // 1, 2, 3 …; 0 of changes that have no number yet
	At time.Time
	Author
	Action                  string
	Of                      int64 // of a rollback: the version whose rules it brought back; 0 otherwise
	Added, Changed, Removed int

	Through int64 // the last row of policy_changes that belongs to it
}

// Change is what one version, or the way from one to another, does to one rule
// or to one project's tier.
type Change struct {
	Before, After *policy.Rule // nil: not there; both nil for a tier

	Project               string // whose tier it is; empty for a rule
	TierBefore, TierAfter string // empty: in none

	// FaultBefore and FaultAfter say what stood in the row that no rule or tier has,
	// put there past the checks of the table. Before or After then holds what of it
	// can be read, and nothing in place of the rest.
	FaultBefore, FaultAfter string

	Lost bool // of a row that is in no rule's place: a fault is in what it is found by
}
