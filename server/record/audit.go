package record

import (
	"time"
	"unicode"
)

// Actions of the audit.
const (
	ActionReset  = "reset"
	ActionGrant  = "grant"
	ActionFailed = "failed" // the change recorded before it was not made
)

// Audit is one change that an operator made to a bucket. It holds no secret.
type Audit struct {
	ID       int64 // in order; nothing is ever left out
	At       time.Time
	Actor    string // who it was, as far as proven: an admin token's name, or a local connection
	Claimed  string // who they say they are; empty if they do not
	Action   string
	Rule     string // its title
	Endpoint string
	Subject  string
	Whose    string    // in words
	Amount   int64     // tokens; 0 for a reset
	Expires  time.Time // zero: given once
}

// MaxText bounds each text of an Audit, in bytes. Longer ones are cut, and
// what is not printable is replaced: what was done must not be hidden by making
// it such that it cannot be written down, or not be read on a terminal.
const MaxText = 512

// Call is one call of the admin listener. It holds no body, no query and no
// secret.
type Call struct {
	ID        int64 // in order
	At        time.Time
	Actor     string // who it was, as far as proven; see Audit
	Token     string // ID of the admin token; empty: none of the database's
	Peer      string // address the call came from
	Operation string // its operationId
	Changes   bool   // written down before it was made, because it may change something
	About     string // what it was about: a rule, a bucket, a version; may be empty
	Status    int    // 0: not ended, or the process ended first
	Took      time.Duration
}

// Unprintable reports whether r is a control character, or one that changes how
// those beside it look, such as the ones that turn the direction of writing.
func Unprintable(r rune) bool { return !unicode.IsPrint(r) }
