package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/advisories"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/dsn"
	"github.com/headgate-io/headgate/server/hold"
	"github.com/headgate-io/headgate/server/lint"
	"github.com/headgate-io/headgate/server/record"
)

// Options are what a look at a configuration may do and know besides.
type Options struct {
	From  *config.Source // the file of the configuration, if there is one
	Fetch bool           // fetch the keys of tokens.jwks_url
	Now   time.Time      // zero: the present

	Runtime string // the release of Go; empty: the one this program is built with
}

// Configuration checks what the gateway would need to start, and changes nothing: the settings, the
// endpoints, the database and its rules, the files with secrets and certificates, the store that
// gateways share, where the keys of tokens come from, and whom the gateway believes about a
// client's address.
func Configuration(ctx context.Context, c config.Config, o Options) Report {
	var r Report
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if err := o.From.Complete(&c); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.add(Finding{Setting: "configuration", Level: Failure, Wrong: line})
		}
	} else {
		r.add(Finding{Setting: "configuration", Level: OK, Value: "every setting is in its range"})
	}
	checkRuntime(&r, cmp.Or(o.Runtime, runtime.Version()))
	if !c.CountsAlone() { // else no rule applies to anything
		registry := checkEndpoints(&r, c)
		keys := checkDatabase(ctx, &r, c, registry, o.Now)
		checkSecrets(&r, c.SecretFile, keys, o.Now)
	}
	checkDecisions(&r, c.Decisions)
	if c.AdminTokenFile != "" {
		checkSecret(&r, "admin_token_file", c.AdminTokenFile, "")
		if _, err := daemon.ReadToken(c.AdminTokenFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.add(Finding{Setting: "admin_token_file", Value: c.AdminTokenFile, Level: Failure, Wrong: err.Error()})
		}
	}
	checkTokens(ctx, &r, c.Tokens, o.Fetch)
	checkAgents(ctx, &r, c.SignedAgents, o.Fetch)
	checkOrigins(&r, c)
	checkStore(ctx, &r, c)
	checkTLS(&r, "tls", c.TLS, o.Now)
	checkTLS(&r, "decisions.tls", c.Decisions.TLS.Files(), o.Now)
	checkServers(ctx, &r, c)
	checkDoors(&r, c)
	checkEngine(&r, c)
	checkClients(&r, c, hold.Divide(hold.Descriptors()))
	checkProxies(&r, c)
	checkRegions(&r, c.RegionFiles)
	return r
}

// checkRuntime looks whether the release of Go that the program is built with has known vulnerabilities.
func checkRuntime(r *Report, release string) {
	list := advisories.Known()
	if words := list.Words(release); words != "" {
		r.add(Finding{
			Setting: "runtime",
			Value:   release,
			Level:   Failure,
			Wrong:   words,
			Set:     "a build with a release in which they are fixed; the list is of " + list.Taken,
		})
	}
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
		r.add(Finding{
			Setting: "endpoints",
			Value:   "none",
			Level:   Note,
			Wrong:   "every request is unknown",
			Set:     "openapi or routes",
		})
	default:
		r.add(Finding{Setting: "endpoints", Value: lint.Counted(registry.Table.Len(), "template", "templates"),
			Level: OK})
		checkMethods(r, registry.Table, c.Unknown == "limit")
	}
	left, merged := 0, 0
	for _, w := range registry.Warnings {
		if w.LeftOut {
			left++
		} else {
			merged++
		}
	}
	if left > 0 {
		r.add(Finding{
			Setting: "openapi",
			Level:   Note,
			Wrong: lint.Counted(left, "operation", "operations") +
				" left out, for faults: requests there match no endpoint, or another one",
			Set: "what `headgate routes` says of them",
		})
	}
	if merged > 0 {
		r.add(Finding{
			Setting: "openapi",
			Level:   Note,
			Wrong: lint.Counted(merged, "operation", "operations") +
				" counted as one with another, since requests to them cannot be told apart",
			Set: "what `headgate routes` says of them",
		})
	}
	return registry
}

// checkDatabase checks the rules, and returns the API keys.
func checkDatabase(ctx context.Context, r *Report, c config.Config, registry *daemon.Registry,
	now time.Time) []record.APIKey {
	if c.Database.PasswordFile != "" {
		checkSecret(r, "db_password_file", c.Database.PasswordFile, "")
	}
	name := dsn.Redact(c.DB)
	path, embedded := strings.CutPrefix(c.DB, "sqlite:")
	if _, err := os.Stat(path); embedded && errors.Is(err, fs.ErrNotExist) {
		r.add(Finding{
			Setting: "db",
			Value:   name,
			Level:   Failure,
			Wrong:   "there is no database yet: " + withoutRules(c.Staleness),
			Set:     "rules, by `headgate policy set`",
		})
		return nil
	}
	db, err := daemon.OpenDatabaseReadOnly(ctx, c)
	if err != nil {
		r.add(Finding{Setting: "db", Value: name, Level: Failure, Wrong: err.Error()})
		return nil
	}
	doc, _, err1 := db.Load(ctx)
	keys, err2 := db.ListKeys(ctx)
	tokens, err3 := db.ListAdminTokens(ctx)
	if err := errors.Join(err1, err2, err3, db.Close()); err != nil {
		r.add(Finding{Setting: "db", Value: name, Level: Failure, Wrong: err.Error()})
		return nil
	}
	r.add(Finding{
		Setting: "db",
		Value: name + ", " + lint.Counted(len(doc.Rules), "rule", "rules") + ", " +
			lint.Counted(len(keys), "API key", "API keys"),
		Level: OK,
	})
	checkEmptied(r, c, doc)
	checkStaleness(r, c.Staleness)
	checkKeysEmptied(r, c, keys, now)
	checkAdmin(r, c, tokens, now)
	if registry != nil && registry.Table.Len() == 0 {
		registry = nil // there is no document, which was told
	}
	o := daemon.CompileOptions(c, registry)
	o.Now = now
	problems := lint.Document(doc, lint.Options{Compile: o}).Problems
	told := slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Setting == "configuration" && f.Level == Failure
	})
	for _, p := range problems.Errors() {
		if told && strings.HasPrefix(p.Error(), "configuration: ") {
			continue // in the words of its file
		}
		r.add(Finding{Setting: "rules", Level: Failure, Wrong: p.Error()})
	}
	others := 0
	for _, p := range problems.Warnings() {
		if slices.Contains(weak, p.Code) {
			r.add(Finding{Setting: "rules", Level: Note, Wrong: p.Error()})
		} else {
			others++
		}
	}
	if others > 0 {
		r.add(Finding{
			Setting: "rules",
			Level:   Note,
			Wrong:   lint.Counted(others, "warning", "warnings"),
			Set:     "what `headgate policy lint` asks for, by the same configuration",
		})
	}
	return keys
}

// checkEmptied compares a database without rules with the last good copy: what a gateway would begin with.
func checkEmptied(r *Report, c config.Config, doc policy.Document) {
	c.FillPaths()
	if len(doc.Rules) > 0 || c.LastGood == "" {
		return
	}
	last, err := policy.LastGood(c.LastGood)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && (len(last.Rules) == 0 || doc.Cleared > last.Number):
		r.add(Finding{
			Setting: "rules",
			Level:   Note,
			Wrong:   "there are none: " + withoutRules(c.Staleness),
			Set:     "rules, by `headgate policy set`",
		})
	case err != nil:
		r.add(Finding{
			Setting: "last_good",
			Value:   c.LastGood,
			Level:   Failure,
			Wrong:   fmt.Sprintf("the database has no rules, and whether it had any is unknown: %v", err),
			Set:     "that file readable, or removed to begin with no rules",
		})
	default:
		r.add(Finding{Setting: "rules", Level: Failure,
			Wrong: fmt.Sprintf("the database has none, and the last good copy %s has %d: a gateway takes that for "+
				"an accident and goes on with those", c.LastGood, len(last.Rules)),
			Set: "the rules back in the database; or, if there should be none, that file removed and a new start"})
	}
}

// withoutRules says what happens to requests while there is no rule.
func withoutRules(s config.Staleness) string {
	switch s.OnEmpty {
	case "deny":
		return "every request is refused, by policy_empty"
	case "allow":
		return "nothing is limited, by policy_empty"
	}
	return "nothing is limited but by policy_fallback"
}

// checkStaleness says what the settings mean for rules that nobody confirms.
func checkStaleness(r *Report, s config.Staleness) {
	if s.MaxStale == 0 {
		r.add(Finding{
			Setting: "policy_max_stale",
			Value:   "0s",
			Level:   Note,
			Wrong:   "rules that the database does not confirm stay in force for ever, without a warning",
			Set:     "a duration",
		})
	}
	if s.OnStale == "deny" {
		r.add(Finding{Setting: "policy_stale", Value: "deny", Level: Note, Set: "keep or limit",
			Wrong: "every request is refused once the database has not confirmed the rules for policy_max_stale, " +
				"also if all it has is a rule that does not compile"})
	}
	if s.OnEmpty == "allow" {
		r.add(Finding{
			Setting: "policy_empty",
			Value:   "allow",
			Level:   Note,
			Wrong:   "nothing is limited while the database has no rule",
			Set:     "limit or deny",
		})
	}
}

// checkKeysEmptied does the same for the API keys. To have none is usual.
func checkKeysEmptied(r *Report, c config.Config, keys []record.APIKey, now time.Time) {
	c.FillPaths()
	if len(keys) > 0 {
		return
	}
	path, active, err := daemon.LastGoodKeys(c, now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		r.add(Finding{
			Setting: "last_good",
			Value:   path,
			Level:   Failure,
			Wrong:   fmt.Sprintf("the database has no API keys, and whether it had any is unknown: %v", err),
			Set:     "that file readable, or removed to begin with no keys",
		})
	case daemon.TakesForAccident(active):
		r.add(Finding{Setting: "api_keys", Level: Failure,
			Wrong: fmt.Sprintf("the database has none, and the last good copy %s has %d: a gateway takes that for "+
				"an accident and goes on with those", path, active),
			Set: "the keys back in the database; or, if they should be gone, any new key, or that file removed and " +
				"a new start"})
	}
}

// weak are the warnings about rules that do not guard what they seem to, one by one.
var weak = []string{"unseen", "lockout", "unused_identifier", "not_kept"}

// checkSecret checks a file that only the gateway may read, and reports whether it can.
func checkSecret(r *Report, setting, file, absent string) (ok bool) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && absent != "":
		r.add(Finding{Setting: setting, Value: file, Level: Note, Wrong: "does not exist: " + absent})
	case err != nil:
		r.add(Finding{Setting: setting, Value: file, Level: Failure, Wrong: err.Error()})
	case !info.Mode().IsRegular():
		r.add(Finding{Setting: setting, Value: file, Level: Failure, Wrong: "is no regular file", Set: "a file"})
	case info.Mode().Perm()&0o022 != 0:
		r.add(Finding{
			Setting: setting,
			Value:   file,
			Level:   Failure,
			Wrong:   fmt.Sprintf("has mode %04o: others may write it", info.Mode().Perm()),
			Set:     "mode 0600",
		})
	case info.Mode().Perm()&0o044 != 0:
		r.add(Finding{
			Setting: setting,
			Value:   file,
			Level:   Failure,
			Wrong:   fmt.Sprintf("has mode %04o: others may read it", info.Mode().Perm()),
			Set:     "mode 0600",
		})
	default:
		r.add(Finding{Setting: setting, Value: file, Level: OK})
		return true
	}
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o022 == 0
}

// checkProxies says whom the gateway believes about a client's address.
func checkProxies(r *Report, c config.Config) {
	warnings := c.Warnings()
	checkNetworks(r, c, "trusted_proxies", c.TrustedProxies, warnings)
	checkNetworks(r, c, "proxy_protocol.from", c.ProxyProtocol.From, warnings)
	if c.Decisions.On() {
		lists := c.Decisions.Lists()
		for _, setting := range slices.Sorted(maps.Keys(lists)) {
			checkNetworks(r, c, setting, lists[setting], warnings)
		}
	}
	for _, w := range warnings {
		if !w.Strangers {
			r.add(Finding{Setting: w.Field, Value: w.Value, Level: Note, Wrong: w.Wrong})
		}
	}
	if how := c.ClientAddress.Strategy; how != "trusted_ranges" || len(c.TrustedProxies) > 0 || c.ProxyProtocol.On() {
		return // networks are believed, or how else clients are found was judged above
	}
	f := Finding{Setting: "trusted_proxies", Value: "none", Level: OK}
	if config.Loopback(c.Listen) && c.Gateway() {
		f.Level, f.Wrong, f.Set = Note,
			"the gateway listens on loopback alone, so a proxy stands before it: all clients are that proxy's "+
				"address", "trusted_proxies"
	}
	r.add(f)
}

// private are the networks whose addresses anybody may use at home (RFC 1918, 6598, 4193).
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

// checkNetworks checks that networks whose word is taken hold proxies and not strangers.
func checkNetworks(r *Report, c config.Config, setting string, values []string, warnings []config.Warning) {
	for _, value := range values {
		prefix, err := config.ParsePrefix(value)
		if err != nil {
			continue // Complete has said so
		}
		within := slices.ContainsFunc(private, func(p netip.Prefix) bool {
			return p.Contains(prefix.Addr()) &&
				prefix.Bits() >= p.Bits()
		})
		i := slices.IndexFunc(warnings, func(w config.Warning) bool {
			return w.Strangers && w.Field == setting && w.Value == prefix.String()
		})
		f := Finding{Setting: setting, Value: value, Level: OK}
		switch {
		case i >= 0:
			f.Level, f.Wrong, f.Set = Failure, warnings[i].Wrong, "the networks of your proxies"
		case !within && !prefix.Addr().IsLoopback() && (prefix.Addr().Is4() && prefix.Bits() < 20 ||
			prefix.Addr().Is6() && prefix.Bits() < 48):
			f.Level, f.Wrong, f.Set = Note, "as large as the networks from which clouds let machines: whoever gets "+
				"an address there chooses whose budget it spends",
				"the addresses of your proxies alone; for those of a CDN, a port that nothing but the CDN reaches"
		case within && !config.Loopback(c.Listen) &&
			slices.ContainsFunc(private, func(p netip.Prefix) bool { return prefix == p }):
			f.Level, f.Wrong, f.Set = Note, "a whole private network: every machine of it, and whoever gets into "+
				"one, chooses whose budget it spends", "the addresses of your proxies alone"
		}
		r.add(f)
	}
}
