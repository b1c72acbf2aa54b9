// Package activity remembers what was decided of late, for people who look: who was denied in the last minute and by
// which rule, how many requests each rule admitted and denied in the last hour, and a sample of those requests that
// other limits can be tried on.
//
//	decision ─┬─▶ Denied   callers that were denied, in a table of fixed size: the last minute
//	          ├─▶ Sample   requests of callers that were drawn by their hash: the last hour
//	counters ─┴─▶ Series   admitted and denied by rule, read once a second: the last hour
//
// All of it is bounded by Options, whatever clients send, and is in the memory of this process alone. A denied request
// costs one look at a set of eight callers more than without, an admitted one a hash.
package activity

import (
	"fmt"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/steady"
)

// Window is how long requests and series are remembered.
const Window = time.Hour

// maxSubject is how many bytes of a caller's name are hashed without an allocation, and maxName how many are kept.
const (
	maxSubject = 256
	maxName    = 128
)

// Options configures a Table.
type Options struct {
	// MaxRequests is how many lines the sample has, 1,024 to 16,777,216: 24 bytes each. A line is what one caller
	// asked of one endpoint within a second. Default 131,072.
	MaxRequests int

	// MaxCallers is how many denied callers are told apart, 64 to 65,536: some 250 bytes each. With more, those that
	// were denied least make room. Default 2,048.
	MaxCallers int

	// Early is told of each denied request whose caller had been refused by the same rule, and came back before it was
	// told to, as far as callers are told apart. Nil: nobody is.
	Early func(*headgate.Decision)

	// Names are what callers are called. Default ones of its own.
	Names *Names

	// Now is the clock. The default does not step.
	Now func() time.Time
}

// Table holds what is remembered. It is safe for concurrent use.
type Table struct {
	names  *Names
	early  func(*headgate.Decision)
	clock  *steady.Clock
	denied denied
	sample sample

	mu     sync.Mutex
	series series // guarded by mu
}

// New returns an empty Table.
func New(o Options) (*Table, error) {
	if o.MaxRequests == 0 {
		o.MaxRequests = 1 << 17
	}
	if o.MaxCallers == 0 {
		o.MaxCallers = 1 << 11
	}
	switch {
	case o.MaxRequests < 1<<10 || o.MaxRequests > 1<<24:
		return nil, fmt.Errorf("MaxRequests is %d, want 1024 to 16777216", o.MaxRequests)
	case o.MaxCallers < 64 || o.MaxCallers > 1<<16:
		return nil, fmt.Errorf("MaxCallers is %d, want 64 to 65536", o.MaxCallers)
	}
	t := &Table{names: o.Names, early: o.Early, clock: steady.New(o.Now)}
	if t.early == nil {
		t.early = func(*headgate.Decision) {}
	}
	if t.names == nil {
		t.names = NewNames()
	}
	start := t.clock.Now()
	t.denied.init(o.MaxCallers, start)
	t.sample.init(o.MaxRequests, start)
	t.series.init(start)
	return t, nil
}

// Observe notes one decision. It fits headgate.Options.Observe.
func (t *Table) Observe(_ *headgate.Request, d *headgate.Decision) {
	switch d.Reason {
	case headgate.WithinLimits, headgate.NoRule, headgate.OverLimit, headgate.CostAboveBurst, headgate.Blocked,
		headgate.InPenalty:
	default:
		return // nobody was counted
	}
	now := t.clock.Now()
	if !d.Allowed {
		who := deniedOf(d)
		if t.denied.note(t.names.name(who), who, now, d) {
			t.early(d)
		}
	}
	k := t.names.name(&d.Principal)
	if d.Reason != headgate.Blocked && t.sample.has(k) {
		t.sample.note(k, now, d)
	}
}

// Caller is who a request was charged to, as people may see it.
type Caller struct {
	// Hash names the caller while the process runs, and says nothing of who it is.
	Hash string `json:"hash"`

	Kind string `json:"kind"` // as in explain: address, api_key, token …

	// ID, Project and Address are for those who may know: the ID of a key, a subject or a user, and an address or
	// network.
	ID      string `json:"id,omitempty"`
	Project string `json:"project,omitempty"`
	Address string `json:"address,omitempty"`
}

// shown is how a principal is shown, with its name if it may be revealed.
func shown(hash string, who *identity.Principal, reveal bool) Caller {
	c := Caller{Hash: hash, Kind: who.Kind.String()}
	if !reveal {
		return c
	}
	c.ID, c.Project = who.ID, who.Project
	if who.Kind == identity.Address && who.Prefix.IsValid() {
		c.Address = who.Prefix.String()
		if who.Prefix.IsSingleIP() {
			c.Address = who.Prefix.Addr().String()
		}
	}
	return c
}

// kept is what is remembered of a principal: no more of a name than maxName bytes, and nothing that keeps a header
// alive.
func kept(who *identity.Principal) identity.Principal {
	clip := func(s string) string { return string([]byte(s[:min(len(s), maxName)])) }
	return identity.Principal{
		Kind:    who.Kind,
		ID:      clip(who.ID),
		Project: clip(who.Project),
		Client:  who.Client,
		Prefix:  who.Prefix,
	}
}
