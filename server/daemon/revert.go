package daemon

import (
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/revert"
)

// newReverter takes back changes that turn callers away, or returns nil if they
// are not to be.
func (p *parts) newReverter(c config.Config, o Options) *revert.Watcher {
	a := c.AutoRevert
	if !a.On() || o.readOnly {
		return nil
	}
	w := revert.Options{
		Settings: revert.Settings{
			Share: int64(a.Share), For: a.For, MinRequests: a.MinRequests, MinCallers: a.MinCallers, Watch: a.Watch,
		},
		Endpoints: p.loaded.Load().registry.Table, Reload: p.rules.Reload, History: p.database.history,
		Name: p.name, Log: o.Log,
		Policies: func() (*policy.Set, int64) {
			set := p.rules.Set()
			if set == nil {
				return nil, 0
			}
			return set, set.Number()
		},
		Check: func(_, after policy.Document) error {
			set, problems := policy.Compile(after, p.compileOptions())
			if set == nil {
				return problems.Err()
			}
			return nil
		},
	}
	return revert.New(w)
}

// history is where versions are kept, nil while the database could never be
// opened.
func (d *policyDatabase) history() revert.History {
	if s := d.opened(); s != nil {
		return s
	}
	return nil // not a nil *database.Store in an interface
}

// reverted reports that the rules in force are those from before a change that
// was taken back, or nil.
func (p *parts) reverted() *revert.Reverted {
	if p.reverter == nil {
		return nil
	}
	return p.reverter.Reverted()
}

// reverts is what the metrics say of changes that were taken back, nil if none
// are to be.
func (p *parts) reverts() func() metrics.RevertStatus {
	if p.reverter == nil {
		return nil
	}
	return func() metrics.RevertStatus {
		return metrics.RevertStatus{Stats: p.reverter.Stats(), InForce: p.reverter.Reverted() != nil}
	}
}
