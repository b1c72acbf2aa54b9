package doctor

import (
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
)

// checkDecisions checks what proxies and programs need that ask.
func checkDecisions(r *Report, c config.Decisions) {
	if len(c.RateLimit) > 0 {
		read := descriptor.Read
		if c.RateLimitMerge {
			read = descriptor.ReadMerged
		}
		limits, err := read(c.RateLimit...)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				r.add(Finding{Setting: "decisions.ratelimit", Level: Failure, Wrong: line})
			}
		} else {
			r.add(Finding{
				Setting: "decisions.ratelimit",
				Value:   fmt.Sprintf("limits: %d", len(limits.All())),
				Level:   OK,
			})
			r.add(Finding{
				Setting: "decisions.quota_ttl",
				Value: fmt.Sprintf("%v: Envoys that decide by themselves may admit what drains in %v beyond a limit",
					c.QuotaTTL, c.QuotaTTL+quota.Grace), Level: OK,
			})
		}
	}
	if len(c.RateLimitOverrides) > 0 {
		r.add(Finding{
			Setting: "decisions.ratelimit_overrides", Value: strings.Join(c.RateLimitOverrides, ", "), Level: Note,
			Wrong: "whoever asks from there has any limit for anybody",
			Set:   "the addresses of Envoys whose limits come from their routes, and nothing else",
		})
	}
	if c.RESPPasswordFile != "" {
		checkSecret(r, "decisions.resp_password_file", c.RESPPasswordFile, "")
	}
	for _, l := range c.Listeners() {
		if !config.Loopback(l.Address) {
			r.add(Finding{
				Setting: l.Setting,
				Value:   l.Address,
				Level:   Note,
				Wrong:   "questions come in the clear: whoever is on the way reads the credentials in them",
				Set:     "loopback, or a network that carries nothing else",
			})
		}
	}
}
