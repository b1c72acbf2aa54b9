package daemon

import (
	"context"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/kube"
)

// How long passes between two looks at whether there is something to say, until rules that are not in force are told to
// be late, and until all is looked at again although nothing changed here.
const (
	reportInterval = time.Second
	reportPending  = 5 * time.Second
	reportAnyway   = 5 * time.Minute
	reportAgain    = 30 * time.Second // after a failure
)

// reportRules tells the objects of Kubernetes that the rules come from, if they do, what became of them. Several
// gateways say the same; one that is a moment behind another says nothing until it has caught up.
func (p *parts) reportRules(ctx context.Context) {
	if !strings.HasPrefix(p.loaded.Load().conf.DB, "kubernetes:") {
		return
	}
	warn := seldom(p.log, "what became of the rules could not be reported to Kubernetes")
	type known struct{ version, inForce, failed string }
	var said known
	var since, saidAt, pause time.Time
	every(ctx, reportInterval, func() {
		store := p.database.opened()
		if store == nil || time.Now().Before(pause) {
			return
		}
		source, ok := store.Elsewhere().(*kube.Source)
		if !ok {
			return
		}
		version, err := source.Version(ctx)
		if err != nil {
			return // the cache says so
		}
		s := p.rules.Status()
		now := known{version, s.Version, s.LastError}
		switch at := time.Now(); {
		case now == said && at.Sub(saidAt) < reportAnyway:
			since = time.Time{}
			return
		case version != s.Version && s.LastError == "":
			if since.IsZero() {
				since = at
			}
			if at.Sub(since) < reportPending {
				return
			}
		default:
			since = time.Time{}
		}
		err = source.Report(ctx, func(d policy.Document) policy.Problems {
			_, problems := policy.Compile(d, p.compileOptions())
			return problems
		}, kube.InForce{Version: s.Version, Error: s.LastError})
		said, saidAt = now, time.Now()
		if err != nil && ctx.Err() == nil {
			said, pause = known{}, saidAt.Add(reportAgain)
			warn(err)
		}
	})
}
