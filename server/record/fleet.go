package record

import (
	"errors"
	"time"
)

// Replica is a running gateway as it last told of itself.
type Replica struct {
	Name    string // one process has it at a time
	Process string // random for every start
	Program string // version of the program
	Started time.Time

	Rules  string // version of the rules in force, as Version reports it
	Number int64  // of that version; 0 is unknown
	Loaded time.Time
	Stale  time.Duration // since they were last known to be current, when it told so
	Error  string        // why newer ones are not in force; empty if they are

	// Ahead is by how much its clock is ahead of that of the store of shared
	// buckets; nil if it has none, or does not know.
	Ahead *time.Duration

	Every time.Duration // how often it means to tell
	Seen  time.Time     // when it last reported, by the database's clock

	// Fleet finds out how many versions a replica lacks, and when the first of
	// them was made; 0 and zero if it has all, or nobody knows.
	Behind  int64
	Lacking time.Time
}

// Fleet is all replicas of a database that told of themselves within a day.
type Fleet struct {
	At       time.Time // now, by the database's clock
	Rules    string    // the version of the rules in the database
	Number   int64     // of that version; 0 is unknown
	Replicas []Replica // by name
}

// ErrNameTaken means that another process tells of itself under the name.
var ErrNameTaken = errors.New("another replica has the name")

// ErrNoFleet means that replicas do not tell of themselves here: the database
// is somebody else's, or only read.
var ErrNoFleet = errors.New("no replica tells of itself in a table that is only read (db_table)")
