package doctor

import (
	"fmt"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/record"
)

// checkAdmin says who may use the admin listener, where that is not what the tokens in the database suggest.
func checkAdmin(r *Report, c config.Config, tokens []record.AdminToken, now time.Time) {
	valid := 0
	for _, t := range tokens {
		if t.Valid(now) {
			valid++
		}
	}
	needed := c.NeedsAdminToken()
	f := Finding{Setting: "admin_auth", Value: c.AdminAccess.Auth, Level: Note}
	switch {
	case !needed && valid > 0:
		f.Wrong = fmt.Sprintf(
			"whoever is on this machine can do everything without a token, and there are some in the database "+
				"(%d)", valid)
		f.Set = "admin_auth: always"
		r.add(f)
	case needed && c.AdminTokenFile == "" && valid == 0:
		f.Wrong,
			f.Set =
			"the admin listener wants a token and there is none: nobody can use it, metrics are not read either",
			"one, by `headgate admin token create`"
		r.add(f)
	}
	if !config.Loopback(c.Admin) {
		r.add(Finding{
			Setting: "admin",
			Value:   c.Admin,
			Level:   Note,
			Wrong:   "answers other machines in plain HTTP: whoever is on the way reads admin tokens",
			Set:     "a loopback address with a proxy that has TLS, or a network where nobody else is",
		})
	}
}
