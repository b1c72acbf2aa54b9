package daemon

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/headgate-io/headgate/serve/forwardauth"
	"github.com/headgate-io/headgate/server/config"
)

// decisions is what stands behind the listener for proxies that ask.
func (d *Daemon) decisions() (http.Handler, error) {
	from, err := config.ParsePrefixes(d.conf.Decisions.From)
	if err != nil {
		return nil, err // Complete has checked it
	}
	warn := seldom(d.log, "a question for a decision was refused")
	return forwardauth.New(forwardauth.Options{
		Limiter: d.parts.limiter, Limit: d.answers(), PassOverrides: d.conf.PassOverrideHeaders,
		Trusted: func(a netip.Addr) bool {
			a = a.Unmap().WithZone("")
			return slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Contains(a) })
		},
		Failed: func(f forwardauth.Fault, err error) {
			d.parts.meter.QuestionRefused(f.String())
			warn(err)
		},
	})
}
