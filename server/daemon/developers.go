package daemon

import (
	"net/http"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/reservation"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/usage"
)

// developers puts the developers' door before the gateway, if there is one.
func (d *Daemon) developers(l *loaded, gate http.Handler) (_ http.Handler, err error) {
	path := l.conf.Developers.Path
	if path == "" {
		return gate, nil
	}
	o := developers.Options{
		Path: path, Reporter: d.parts.reporter(), Identities: l.who, Profile: l.conf.Endpoint.Profile(),
		Log: d.log, KeyQuery: l.conf.Keys.Query, KeyHeader: l.conf.Keys.Header,
	}
	if !d.conf.RulesElsewhere() { // else no approval could change the rules
		o.Requests, o.MaxRequests = d.parts.requests, l.conf.Developers.MaxRequests
	}
	if before := d.parts.loaded.Load().door; before != nil {
		l.door, err = before.Reloaded(o)
	} else {
		l.door, err = developers.New(o)
	}
	if err != nil {
		return nil, err
	}
	return l.door.Before(gate), nil
}

// developersApart says which endpoints of the API stand where the door does.
func developersApart(path string, table *endpoint.Table) error {
	if path == "" {
		return nil
	}
	return developers.CheckEndpoints(path, table)
}

// newUsage returns what counts the last hour, or nil.
func newUsage(c config.Usage) (*usage.Table, error) {
	if c.MaxCallers == 0 {
		return nil, nil
	}
	return usage.New(usage.Options{MaxCallers: c.MaxCallers})
}

// observe hears of every decision. One about a request that is under way, and takes more, is about no other request: it
// is written down for those who decide it again.
func (p *parts) observe(r *headgate.Request, d *headgate.Decision) {
	if r.UnderWay {
		if p.usage != nil {
			p.days.Observe(r, d)
		}
		if log := p.decisions.get(); log != nil {
			log.Observe(r, d)
		}
		if t := p.traces.get(); t != nil {
			t.Observe(r, d)
		}
		return
	}
	p.meter.Observe(r, d)
	if p.usage != nil {
		p.usage.Observe(r, d)
		p.days.Observe(r, d)
	}
	if p.activity != nil {
		p.activity.Observe(r, d)
	}
	if log := p.decisions.get(); log != nil {
		log.Observe(r, d)
	}
	p.watch.Observe(r, d)
	if p.reverter != nil {
		p.reverter.Observe(r, d)
	}
	if t := p.traces.get(); t != nil {
		t.Observe(r, d)
	}
}

// abandoned hears of callers that leave while their requests wait, of which observe has heard.
func (p *parts) abandoned(r *headgate.Request, d *headgate.Decision, at int64) {
	if p.usage != nil {
		p.days.Abandoned(r, d, at)
	}
	if log := p.decisions.get(); log != nil {
		log.Abandoned(r, d, at)
	}
	if r.UnderWay {
		return
	}
	p.meter.Abandoned(r, d, at)
	if p.usage != nil {
		p.usage.Abandoned(r, d, at)
	}
}

// settled hears of every reservation that is settled.
func (p *parts) settled(id reservation.ID, at int64, a headgate.Answer) {
	if log := p.decisions.get(); log != nil {
		log.Settled(id, at, a)
	}
}

// noteScore notes the score of a caller that asked for something.
func (p *parts) noteScore(who *identity.Principal, score anomaly.Score) {
	p.meter.Scored(score)
	p.scored.Note(who, score)
}

func (p *parts) reporter() developers.Reporter {
	return developers.Reporter{Limiter: p.limiter, Policies: p.rules, Usage: p.usage}
}
