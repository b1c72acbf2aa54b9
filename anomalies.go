package headgate

import (
	"context"
	"net/http"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/charge"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
)

// score finds out by the rules of which tiers the principals of a plan pay as well, because of their scores, and
// returns the score of the first.
func (l *Limiter) score(p *charge.Plan) (first anomaly.Score, who anomaly.Caller) {
	p.Also = p.Also[:0]
	settings := l.scores.Settings()
	if settings == nil {
		return first, who
	}
	for n := range 1 + len(p.Others) {
		caller := l.scores.Caller(p.Of(n))
		score := l.scores.Score(p.Now, caller)
		if n == 0 {
			first, who = score, caller
		}
		tier, _ := settings.TierOf(score, p.Of(n).Kind != identity.Address)
		p.Also = append(p.Also, tier.Name)
	}
	return first, who
}

// callerOf is the first principal of a decision as scores know it.
func (l *Limiter) callerOf(d *Decision, who *identity.Principal) anomaly.Caller {
	if d.caller != (anomaly.Caller{}) {
		return d.caller
	}
	return l.scores.Caller(who) // its rules were not looked for
}

// noteAsked counts a request for the scores of its callers. Those of one that was refused before anybody was identified
// are found out now: what there is not is what a scanner asks for.
func (l *Limiter) noteAsked(ctx context.Context, t *trip) {
	r, d, p := &t.request, &t.decision, &t.plan
	asked := anomaly.Request{Parts: r.Parts, Disguised: endpoint.Disguised(r.Target)}
	switch d.Endpoint.Status {
	case endpoint.Known:
		asked.Endpoint = d.endpoints.Number(d.Endpoint.ID)
	case endpoint.Invalid:
		asked.Disguised = true
	case endpoint.UnknownPath:
		asked.Unknown = true
	case endpoint.UnknownMethod: // browsers ask by OPTIONS before they ask
		asked.Unknown = r.Method != http.MethodOptions
	}
	switch d.Reason {
	case NoPolicies, RulesStale, InvalidCost, TooManyCredentials:
		return // nobody knows, or the door is wrong
	case UnknownEndpoint, UnknownMethod, InvalidTarget:
		if r.Message && !endpoint.OfBodies(r.Method) || r.UnderWay {
			return
		}
		p.Now, p.Who = l.clock.Now(), &t.refused
		t.refused, p.Others = t.terms.identities.ResolveAll(ctx, t.evidence(), p.Others)
	default:
		asked.Denied = !d.Allowed
	}
	if p.UnderWay { // it is no request, but a message of one
		return
	}
	for n := range 1 + len(p.Others) {
		who := p.Of(n)
		caller := l.callerOf(d, who)
		if n > 0 {
			caller = l.scores.Caller(who)
		}
		l.scores.Asked(p.Now, caller, asked)
		if l.scored == nil {
			continue
		}
		if score := l.scores.Score(p.Now, caller); score.Known {
			l.scored(who, score)
		}
	}
}

// Answered counts, for the scores of its callers, what the API answered to a request that was allowed, with a status
// of HTTP (Options.Scores). What did not come from the API is not counted: answers of who decides, such as a 429, say
// nothing of the caller.
func (l *Limiter) Answered(d *Decision, status int) {
	if l.scores.Settings() == nil || !d.Allowed || d.Endpoint.Status != endpoint.Known || status < 200 {
		return
	}
	now := l.clock.Now()
	l.scores.Answered(now, l.callerOf(d, &d.Principal), status)
	for i := range d.Others {
		l.scores.Answered(now, l.scores.Caller(&d.Others[i]), status)
	}
}

// CountsScores reports whether callers are scored, so that Answered does something.
func (l *Limiter) CountsScores() bool { return l.scores.Settings() != nil }

// Account is what the score of a caller is made of at this moment, and the tier by whose rules it pays because of that,
// if any. It is false if nothing is known of the caller, or nobody is scored.
func (l *Limiter) Account(who *identity.Principal) (a anomaly.Account, because anomaly.Tier, known bool) {
	settings := l.scores.Settings()
	if settings == nil {
		return a, because, false
	}
	a, known = l.scores.Account(l.clock.Now(), l.scores.Caller(who))
	because, _ = settings.TierOf(a.Score, who.Kind != identity.Address)
	return a, because, known
}

// Scores reports how many callers are scored, and how; false if none is. It takes milliseconds.
func (l *Limiter) Scores() (stats anomaly.Stats, on bool) {
	if l.scores.Settings() == nil {
		return stats, false
	}
	return l.scores.Stats(l.clock.Now()), true
}
