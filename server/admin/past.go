package admin

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// pastKept is how long the rules of an old version are kept after somebody has
// read a page of them: to make them again for each page of a million rules
// would take minutes.
const pastKept = time.Minute

// past is the version that was read last, and no other.
type past struct {
	mu   sync.Mutex
	from Rules           // guarded by mu
	doc  policy.Document // guarded by mu; of version doc.Number
	read time.Time       // guarded by mu
}

// at reports the rules of a version.
func (p *past) at(ctx context.Context, db Rules, id int64, now time.Time) (policy.Document, error) {
	p.mu.Lock()
	defer p.mu.Unlock() // whoever wants another one waits: two at once would take twice the memory
	if p.from != db || p.doc.Number != id {
		doc, err := db.At(ctx, id)
		if err != nil {
			return policy.Document{}, err
		}
		p.from, p.doc = db, doc
	}
	p.read = now
	return p.doc, nil
}

// forget drops a version that nobody has read for a while.
func (p *past) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.read) >= pastKept {
		p.from, p.doc = nil, policy.Document{}
	}
}
