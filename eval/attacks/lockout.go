package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"

	"github.com/headgate-io/headgate/server/attack"
)

// lockout is what A1 does with an attacker of so many addresses.
type lockout struct {
	steps []step
}

// step is an attack on one account from some addresses.
type step struct {
	addresses int
	victim    float64 // the share of the victim's logins that got through
	guesses   float64 // passwords tried at the account, a second
	tried     float64 // requests a second that the attacker made
	address   int64   // guesses beyond what one address may try, of the address that got most
	account   int64   // guesses beyond what may be tried at an account
}

// needed is how many addresses it takes to shut the victim out more often than not; 0 if all that were tried did not.
func (l lockout) needed() int {
	for _, s := range l.steps {
		if s.victim < 0.5 {
			return s.addresses
		}
	}
	return 0
}

// The limits of a login: what one address may try, and what may be tried at one account.
var (
	perAddress = limit{rate: 2, burst: 4}
	perAccount = limit{rate: 8, burst: 16}
)

// loginPace is how many passwords a second are tried: many times what an account may have, so that
// no token is left to the victim by luck.
const loginPace = 200

// armies are the numbers of addresses that are tried.
var armies = []int{1, 2, 4, 8, 16}

const login = "/v1/login"

func try(password string) attack.Request {
	return attack.Request{Method: "POST", Target: login,
		Header: []attack.Field{{Name: "Content-Type", Value: "application/json"}},
		Body:   fmt.Sprintf(`{"username":"victim","password":%q}`, password)}
}

// byUsername is the README's “Rate limit by request payload”, with the proxy in place of the login's own code.
var byUsername = setup{"httprate", "the user name as the key", "README, “Rate limit by request payload”",
	func(l *lab, _ limit) (string, error) {
		n, per := perAccount.window()
		limiter := httprate.NewRateLimiter(n, per)
		next := goProxy(l)
		r := chi.NewRouter()
		r.Post(login, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var payload struct {
				Username string `json:"username"`
				Password string `json:"password"`
			}
			if err != nil || json.Unmarshal(body, &payload) != nil || payload.Username == "" || payload.Password == "" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if limiter.RespondOnLimit(w, r, payload.Username) {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
		return l.serve(r)
	}}

// loginSettings says where the login's name stands, and that only failures count.
const loginSettings = `
identifiers:
  - endpoint: POST /v1/login
    field: username
    count: failures
    failure_statuses: [401]
`

// loginSetup is Headgate with rules for logins, each with its subject.
func loginSetup(name string, rules ...[]string) setup {
	return setup{"Headgate", name, "[logins](../login.md)", func(l *lab, _ limit) (string, error) {
		return gateWith(l, loginSettings, routes, rules)
	}}
}

var (
	ruleAddress = perAddress.rule("POST "+login, "--subject", "ip")
	ruleOne     = limit{rate: 1, burst: 2}.rule("POST "+login, "--subject", "identifier_ip")
	ruleAccount = perAccount.rule("POST "+login, "--subject", "identifier")

	headgateAddress = loginSetup("by address", ruleAddress)
	headgateAccount = loginSetup("by account", ruleAccount)
	headgateBoth    = loginSetup("by address and by account", ruleAddress, ruleAccount)
	headgateThree   = loginSetup("by address, by account, and by both (docs/login.md)", ruleAddress,
		ruleOne, ruleAccount)
)

func loginSetups() []setup {
	return []setup{headgateThree, headgateBoth, headgateAccount, headgateAddress, byUsername, httprateIP,
		tollboothAddr, nginxAddr}
}

// lockouts tries A1 on every setup, with one address and with more.
func (l *lab) lockouts(span time.Duration, progress io.Writer) ([]outcome, error) {
	c := kase{name: "A1 targeted lockout", limit: perAddress, setups: loginSetups(), run: lock}
	found, err := l.runCase(c, span)
	for _, o := range found {
		if o.lockout == nil {
			continue
		}
		for _, s := range o.lockout.steps {
			fmt.Fprintf(progress, "%-44s %-46s %2d addresses: %3.0f %% of the victim's logins, %.1f guesses of %.0f a "+
				"second\n", o.attack, o.setup, s.addresses, 100*s.victim, s.guesses, s.tried)
		}
	}
	return found, err
}

// lock has an attacker with more and more addresses try passwords at the victim's account, while
// the victim logs in now and then, well within every limit, from an address of its own.
func lock(l *lab, url string, _ setup, _ limit, span time.Duration) (outcome, error) {
	o := outcome{lockout: &lockout{}}
	for _, k := range armies {
		var attacked, own record
		var wg sync.WaitGroup
		// The victim's first login is not for what the account has saved up since the attack before this one.
		underWay, guesses := make(chan struct{}), int(span.Seconds()*loginPace)
		wg.Go(func() {
			attacked = l.fire(barrage{url, guesses, loginPace, func(i int) shot {
				if i == min(2*workers, guesses-1) {
					close(underWay)
				}
				return shot{Request: try(fmt.Sprint("guess ", i)), from: accomplice(i % k)}
			}})
		})
		wg.Go(func() {
			select {
			case <-underWay:
			case <-l.ctx.Done():
			}
			own = l.fire(barrage{url, max(1, int(span.Seconds()*float64(perAddress.rate)*0.75)),
				float64(perAddress.rate) * 0.75, func(int) shot {
					return shot{Request: try(goodPassword), from: victim}
				}})
		})
		wg.Wait()
		one := step{
			addresses: k,
			victim:    float64(len(own.reached)) / float64(own.sent),
			guesses:   float64(len(attacked.reached)) / attacked.took.Seconds(),
			tried:     float64(attacked.sent) / attacked.took.Seconds(),
			account:   judge(attacked, perAccount, always).beyond,
		}
		for who := range k {
			one.address = max(one.address, judge(attacked, perAddress,
				func(s seen) bool { return s.i%k == who }).beyond)
		}
		o.lockout.steps = append(o.lockout.steps, one)
	}
	return o, nil
}
