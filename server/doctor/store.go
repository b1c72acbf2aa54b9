package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/redis"
)

// storePatience is how long the server of a store may take to answer.
const storePatience = 5 * time.Second

// checkStore checks the server that gateways share buckets on, as a start
// does, and the files that it takes to reach it.
func checkStore(ctx context.Context, r *Report, c config.Config) {
	s := c.Store
	if !s.On() || s.Check() != nil { // Complete has said so
		return
	}
	for _, f := range []struct{ setting, file string }{
		{"store.password_file", s.PasswordFile}, {"store.tls.key_file", s.TLS.KeyFile},
		{"store.secret_file", s.SecretFile},
	} {
		if f.file != "" {
			checkSecret(r, f.setting, f.file, "")
		}
	}
	checkStoreSecret(r, c)
	if s.PasswordFile != "" && !s.TLS.Enabled && !local(s.Redis) {
		r.add(Finding{
			Setting: "store.tls.enabled",
			Value:   "false",
			Level:   Note,
			Wrong:   "whoever is on the way to the server reads its password",
			Set:     "true, if the server speaks TLS",
		})
	}
	shown := strings.Join(s.Redis, ", ")
	whole, state, fault := reach(ctx, s)
	checkState(r, s, state)
	if len(whole) > 0 {
		r.add(Finding{
			Setting: "store.cluster", Value: "true", Level: Note,
			Set: "CONFIG SET cluster-require-full-coverage no, there",
			Wrong: strings.Join(whole, ", ") + " will answer nothing while any member is dead and has no replica: " +
				"all limits would be lost, not only those that it has",
		})
	}
	switch {
	case fault == nil:
		r.add(Finding{Setting: "store.redis", Value: shown, Level: OK})
	case redis.Away(fault):
		r.add(Finding{
			Setting: "store.redis",
			Value:   shown,
			Level:   Failure,
			Wrong:   fault.Error() + "; the gateway would start, and each rule do as its on_store_loss says",
		})
	default:
		r.add(Finding{Setting: "store.redis", Value: shown, Level: Failure, Wrong: fault.Error()})
	}
}

// checkState reports what the servers tell of themselves.
func checkState(r *Report, s config.Store, state redis.State) {
	for _, risk := range state.Risks {
		r.add(Finding{
			Setting: "store.redis",
			Value:   strings.Join(s.Redis, ", "),
			Level:   Note,
			Wrong:   risk,
			Set:     "min-replicas-to-write and min-replicas-max-lag, on the servers",
		})
	}
	if 4*state.Trip > s.Deadline {
		r.add(Finding{
			Setting: "store.deadline", Value: s.Deadline.String(), Level: Note,
			Set: (4 * state.Trip).Round(time.Millisecond).String() + " or more",
			Wrong: fmt.Sprintf(
				"the server takes %v to answer at best: requests that it answers later than the deadline are "+
					"denied", state.Trip.Round(10*time.Microsecond)),
		})
	}
	if state.Offset.Abs() > time.Second+state.Within {
		r.add(Finding{
			Setting: "store.redis", Value: strings.Join(s.Redis, ", "), Level: Note, Set: "the clocks of both by NTP",
			Wrong: fmt.Sprintf("the clock of this machine differs from the server's by %v: limits hold all the "+
				"same, and times in logs cannot be compared", state.Offset.Round(time.Millisecond)),
		})
	}
}

// checkStoreSecret checks the secret under which buckets are named.
func checkStoreSecret(r *Report, c config.Config) {
	if c.Store.SecretFile == "" {
		r.add(Finding{
			Setting: "store.secret_file", Value: "none", Level: Note,
			Set: "a file of its own, the same for all gateways",
			Wrong: fmt.Sprintf("buckets are named under %s: when API keys get a new secret, every bucket is full "+
				"again, and a gateway with another one counts alone", c.SecretFile),
		})
		return
	}
	if _, err := daemon.StoreSecret(c); err != nil {
		r.add(Finding{Setting: "store.secret_file", Value: c.Store.SecretFile, Level: Failure, Wrong: err.Error()})
	}
}

// reach connects to the server and checks it. Whole are members of a cluster
// that stop with any other one.
func reach(ctx context.Context, s config.Store) (whole []string, state redis.State, err error) {
	o, err := daemon.StoreOptions(s)
	if err != nil {
		return nil, state, err
	}
	link, err := redis.NewLink(o)
	if err != nil {
		return nil, state, err
	}
	defer link.Close()
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	if err := link.Connect(ctx); err != nil {
		return nil, state, err
	}
	state, err = link.State(ctx)
	return link.Whole(ctx), state, err
}

// local reports whether no server is beyond this machine.
func local(addresses []string) bool {
	for _, a := range addresses {
		if !strings.HasPrefix(a, "/") && !config.Loopback(a) {
			return false
		}
	}
	return true
}
