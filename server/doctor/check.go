package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/store"
)

// Configuration checks what the gateway would need to start, and changes nothing: the settings, the endpoints, the
// database and its rules, the files with secrets, and which proxies are believed.
func Configuration(ctx context.Context, c config.Config) Report {
	var r Report
	if err := c.Complete(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.add(Finding{Setting: "configuration", Level: Failure, Wrong: line})
		}
	} else {
		r.add(Finding{Setting: "configuration", Level: OK, Value: "every setting is in its range"})
	}
	registry := checkEndpoints(&r, c)
	checkRules(ctx, &r, c, registry)
	checkSecret(&r, "secret_file", c.SecretFile, "it is made at the first start")
	if c.AdminTokenFile != "" {
		checkSecret(&r, "admin_token_file", c.AdminTokenFile, "")
		if _, err := daemon.ReadToken(c.AdminTokenFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.add(Finding{Setting: "admin_token_file", Value: c.AdminTokenFile, Level: Failure, Wrong: err.Error()})
		}
	}
	checkProxies(&r, c)
	return r
}

func checkEndpoints(r *Report, c config.Config) *daemon.Registry {
	registry, err := daemon.Endpoints(c)
	switch {
	case err != nil:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.add(Finding{Setting: "endpoints", Level: Failure, Wrong: line})
		}
		return nil
	case registry.Table.Len() == 0:
		r.add(Finding{Setting: "endpoints", Value: "none", Level: Note, Wrong: "every request is unknown", Set: "openapi or routes"})
	default:
		r.add(Finding{Setting: "endpoints", Value: fmt.Sprintf("%d templates", registry.Table.Len()), Level: OK})
	}
	return registry
}

func checkRules(ctx context.Context, r *Report, c config.Config, registry *daemon.Registry) {
	if _, err := os.Stat(strings.TrimPrefix(c.DB, "sqlite:")); errors.Is(err, fs.ErrNotExist) {
		r.add(Finding{Setting: "db", Value: c.DB, Level: Failure, Wrong: "there is no database yet, so no request has a limit", Set: "rules, by `headgate policy set`"})
		return
	}
	db, err := store.OpenReadOnly(ctx, c.DB)
	if err != nil {
		r.add(Finding{Setting: "db", Value: c.DB, Level: Failure, Wrong: err.Error()})
		return
	}
	doc, _, err := db.Load(ctx)
	if err := errors.Join(err, db.Close()); err != nil {
		r.add(Finding{Setting: "db", Value: c.DB, Level: Failure, Wrong: err.Error()})
		return
	}
	r.add(Finding{Setting: "db", Value: fmt.Sprintf("%s, %d rules", c.DB, len(doc.Rules)), Level: OK})
	o := policy.CompileOptions{BurstPercent: c.BurstPercent, Unseen: daemon.Unseen(c)}
	if registry != nil && registry.Table.Len() > 0 {
		o.Endpoints, o.Costs = registry.Table, registry.Costs
	}
	problems := policy.Lint(doc, o)
	for _, p := range problems.Errors() {
		r.add(Finding{Setting: "rules", Level: Failure, Wrong: p.Error()})
	}
	if n := len(problems.Warnings()); n > 0 {
		r.add(Finding{Setting: "rules", Level: Note, Wrong: fmt.Sprintf("%d warnings", n), Set: "see `headgate policy lint`"})
	}
}

// checkSecret checks a file that only the gateway may read.
func checkSecret(r *Report, setting, file, absent string) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && absent != "":
		r.add(Finding{Setting: setting, Value: file, Level: Note, Wrong: "does not exist: " + absent})
	case err != nil:
		r.add(Finding{Setting: setting, Value: file, Level: Failure, Wrong: err.Error()})
	case !info.Mode().IsRegular():
		r.add(Finding{Setting: setting, Value: file, Level: Failure, Wrong: "is no regular file", Set: "a file"})
	case info.Mode().Perm()&0o022 != 0:
		r.add(Finding{Setting: setting, Value: file, Level: Failure, Wrong: fmt.Sprintf("has mode %04o: others may write it", info.Mode().Perm()), Set: "mode 0600"})
	case info.Mode().Perm()&0o044 != 0:
		r.add(Finding{Setting: setting, Value: file, Level: Failure, Wrong: fmt.Sprintf("has mode %04o: others may read it", info.Mode().Perm()), Set: "mode 0600"})
	default:
		r.add(Finding{Setting: setting, Value: file, Level: OK})
	}
}

// checkProxies says whom the gateway believes about a client's address.
func checkProxies(r *Report, c config.Config) {
	checkNetworks(r, "trusted_proxies", c.TrustedProxies)
	checkNetworks(r, "proxy_protocol.from", c.ProxyProtocol.From)
	if how := c.ClientAddress.Strategy; how == "trusted_count" || how == "single_header" {
		f := Finding{Setting: "client_address.strategy", Value: how, Level: OK}
		if !config.Loopback(c.Listen) && len(c.TrustedProxies) == 0 {
			f.Level, f.Wrong, f.Set = Note, "whoever reaches the gateway past the proxies names its own address", "trusted_proxies as well, or a listen address that only they reach"
		}
		r.add(f)
		return
	}
	if len(c.TrustedProxies) > 0 || c.ProxyProtocol.On() {
		return
	}
	f := Finding{Setting: "trusted_proxies", Value: "none", Level: OK}
	if config.Loopback(c.Listen) {
		f.Level, f.Wrong, f.Set = Note, "the gateway listens on loopback alone, so a proxy stands before it: all clients are that proxy's address", "trusted_proxies"
	}
	r.add(f)
}

// checkNetworks checks that networks whose word is taken are not half of the internet.
func checkNetworks(r *Report, setting string, values []string) {
	for _, value := range values {
		prefix, err := config.ParsePrefix(value)
		switch {
		case err != nil:
			continue // Complete has said so
		case prefix.Addr().Is4() && prefix.Bits() < 8 || prefix.Addr().Is6() && prefix.Bits() < 16:
			r.add(Finding{Setting: setting, Value: value, Level: Failure, Wrong: "takes in strangers: whoever is trusted chooses its own address", Set: "the networks of your proxies"})
		default:
			r.add(Finding{Setting: setting, Value: value, Level: OK})
		}
	}
}
