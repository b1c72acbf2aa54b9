package daemon

import (
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// Rehearsal returns a Limiter that decides by a document as `headgate serve` would under c, on a clock of the
// caller's, with rates lowered as lowered has it; nil is not at all. It knows no credentials: requests are told apart
// by address, or by the user that they name. Buckets are its own.
func Rehearsal(c config.Config, doc policy.Document, clock func() time.Time,
	lowered *adaptive.Table) (*headgate.Limiter, error) {
	l, err := load(c)
	if err != nil {
		return nil, err
	}
	return l.rehearse(doc, clock, lowered)
}

// rehearse returns a Limiter that decides by a document.
func (l *loaded) rehearse(doc policy.Document, clock func() time.Time,
	lowered *adaptive.Table) (*headgate.Limiter, error) {
	c, compile := l.conf, l.compile
	compile.Shared, compile.Keeps = false, nil // one process alone
	compile.Now = clock()
	set, problems := policy.Compile(doc, compile)
	if set == nil {
		return nil, problems.Err()
	}
	address, err := addressOptions(c)
	if err != nil {
		return nil, err
	}
	who, err := identity.New(address)
	if err != nil {
		return nil, err
	}
	o := l.limiterOptions()
	o.Adaptive = lowered
	o.Identities, o.RefuseBadCredentials = who, false
	o.Endpoints, o.Policies, o.Now = l.registry.Table, headgate.Fixed(set), clock
	if o.Buckets, err = newBuckets(c); err != nil {
		return nil, err
	}
	return headgate.New(o)
}
