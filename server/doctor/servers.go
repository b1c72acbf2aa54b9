package doctor

import (
	"context"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// checkServers tries whether the API takes connections, and sends it no request. One that may only be down is worth
// knowing; one that answers in a way that no request can work with is a failure.
func checkServers(ctx context.Context, r *Report, c config.Config) {
	tried, err := daemon.TryUpstream(ctx, &c)
	if err != nil {
		r.add(Finding{Setting: "upstream_tls", Level: Failure, Wrong: err.Error()})
	}
	several := len(c.Upstreams.Servers) > 0
	for _, t := range tried {
		f := Finding{Setting: "upstream", Value: c.Upstream, Level: OK, Wrong: t.Wrong, Set: t.Want}
		follows := "the gateway would start, and answer requests with 502 until that changes"
		if several {
			f.Setting, f.Value, follows = "upstream_servers", t.Server, "it would get no requests until that changes"
		}
		switch {
		case t.Refused:
			f.Level = Failure
			f.Wrong += "; the gateway would start, and no request would reach the API there until that changes"
		case t.Wrong != "":
			f.Level = Note
			f.Wrong += "; " + follows
		}
		r.add(f)
	}
}
