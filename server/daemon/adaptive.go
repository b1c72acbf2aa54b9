package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// adapts are the endpoints whose rates may be lowered, by their templates.
func adapts(c config.Config, table *endpoint.Table) (map[string]adaptive.Settings, error) {
	all := map[string]adaptive.Settings{}
	var faults []error
	for n := range c.Adaptive {
		a := &c.Adaptive[n]
		for _, text := range a.Endpoints {
			id, err := lookup(table, fmt.Sprintf("adaptive[%d].endpoints", n), text)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			all[table.Template(id).String()] = a.Settings()
		}
	}
	return all, errors.Join(faults...)
}

// followed are the same endpoints, for advice on the rules that apply there.
func followed(r *Registry) (all []policy.Followed) {
	for template, s := range r.Adaptive {
		if id, err := lookup(r.Table, "adaptive", template); err == nil {
			all = append(all, policy.Followed{Endpoint: id, Floor: s.Floor, Judged: s.Judged()})
		}
	}
	slices.SortFunc(all, func(a, b policy.Followed) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return all
}

// adapted says in the log that the rates of an endpoint begin to be lowered, and that they are what the rules say
// again.
func (p *parts) adapted(e adaptive.Event) {
	if !e.Begun {
		p.log.Info("adaptive: rates are what the rules say again", "endpoint", e.Endpoint)
		return
	}
	part := func(of int) string { return fmt.Sprintf("%.2f", float64(of)/adaptive.Whole) }
	told := []any{"endpoint", e.Endpoint, "to", part(e.Status.Multiplier)}
	if e.Status.Settings.AtOnce {
		told = append(told, "at_once_to", part(e.Status.AtOnce))
	}
	what := "adaptive: rates are lowered"
	if e.Status.Multiplier == adaptive.Whole {
		what = "adaptive: fewer requests may be under way"
	}
	p.log.Warn(what, append(told, "because", e.Status.Words())...)
}

// lowered hears of each change of what the rates of an endpoint are lowered to.
func (p *parts) lowered(c adaptive.Change) {
	if log := p.decisions.get(); log != nil {
		log.Changed(c)
	}
}

// adaptiveStats tell the metrics how the endpoints stand.
func (p *parts) adaptiveStats() []adaptive.Status { return p.adaptive.Statuses(p.rules.Now()) }
