package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/identity/region"
	"github.com/headgate-io/headgate/server/agents"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/token"
)

// checkSecrets checks the file of secrets under which API keys are hashed, and
// that it has the secret of every key that is good. keys is nil if the database
// could not be read.
func checkSecrets(r *Report, file string, keys []record.APIKey, now time.Time) {
	good := slices.DeleteFunc(slices.Clone(keys), func(k record.APIKey) bool {
		return !k.Revoked.IsZero() || !k.Expires.IsZero() && !k.Expires.After(now)
	})
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && len(keys) > 0 {
		r.add(Finding{Setting: "secret_file", Value: file, Level: Failure, Set: "the file back from its backup",
			Wrong: fmt.Sprintf(
				"does not exist, and without it no API key can be recognised, of %d in the database", len(keys))})
		return
	}
	if !checkSecret(r, "secret_file", file, "it is made at the first start") {
		return
	}
	secrets, err := database.ReadSecrets(file, nil)
	if err != nil {
		r.add(Finding{
			Setting: "secret_file",
			Value:   file,
			Level:   Failure,
			Wrong:   strings.TrimPrefix(err.Error(), "secret file "+file+": "),
		})
		return
	}
	digester, err := secrets.Digester()
	if err != nil {
		r.add(Finding{Setting: "secret_file", Value: file, Level: Failure, Wrong: err.Error()})
		return
	}
	current, previous := digester.SecretIDs()
	under := func(id string) (n int) {
		for _, k := range good {
			if k.Secret == id || k.Secret == "" { // a key without a name can be under either
				n++
			}
		}
		return n
	}
	if lost := len(good) - under(current); previous == "" && lost > 0 || previous != "" && lost > under(previous) {
		r.add(Finding{
			Setting: "secret_file",
			Value:   file,
			Level:   Failure,
			Wrong:   "lacks the secret of some active API keys, which are not recognised",
			Set:     "the file that `headgate secret show` counts no keys under neither for",
		})
	}
	if previous != "" {
		f := Finding{Setting: "secret_file", Value: file, Level: Note,
			Wrong: fmt.Sprintf(
				"holds two secrets, so a rotation is under way: %d active keys are under the previous one",
				under(previous)),
			Set: "`headgate secret rotate --drop-old` once they were used"}
		if under(previous) == 0 {
			f.Set = "`headgate secret rotate --drop-old`"
		}
		r.add(f)
	}
}

// checkTokens checks where the keys of bearer tokens come from. Those of a URL
// are fetched only if fetch is true, once, and for as long as the gateway would
// wait.
func checkTokens(ctx context.Context, r *Report, t config.Tokens, fetch bool) {
	if !t.On() || t.Check() != nil { // Complete has said so
		return
	}
	for _, file := range t.SecretFiles {
		checkSecret(r, "tokens.secret_files", file, "")
	}
	setting, from := "tokens.secret_files", strings.Join(t.SecretFiles, ", ")
	switch {
	case t.JWKSURL != "":
		setting, from = "tokens.jwks_url", withoutQuery(t.JWKSURL)
	case t.JWKSFile != "":
		setting, from = "tokens.jwks_file", t.JWKSFile
	case len(t.KeyFiles) > 0:
		setting, from = "tokens.key_files", strings.Join(t.KeyFiles, ", ")
	}
	if t.JWKSURL != "" && !fetch {
		r.add(Finding{Setting: setting, Value: from + ", not fetched: --fetch does", Level: OK})
	} else {
		_, source, away, err := daemon.NewVerifier(ctx, t, slog.New(slog.DiscardHandler))
		switch {
		case err != nil:
			r.add(Finding{
				Setting: setting,
				Value:   from,
				Level:   Failure,
				Wrong:   strings.TrimPrefix(err.Error(), "tokens: "),
			})
		case away != nil:
			r.add(Finding{
				Setting: setting,
				Value:   from,
				Level:   Failure,
				Wrong:   away.Error() + ": until it can be, tokens are ignored",
				Set:     "a key set that this machine can fetch",
			})
		default:
			keysFound(r, setting, from, source.Status())
		}
	}
	if u, err := url.Parse(t.JWKSURL); err == nil && u.Scheme == "http" && t.JWKSAllowHTTP &&
		token.CheckURL(t.JWKSURL, false) != nil {
		r.add(Finding{
			Setting: "tokens.jwks_allow_http",
			Value:   "true",
			Level:   Note,
			Wrong:   "whoever is on the way to the issuer decides which tokens are good",
			Set:     "https",
		})
	}
	if t.Issuer == token.Any {
		r.add(Finding{
			Setting: "tokens.issuer",
			Value:   t.Issuer,
			Level:   Note,
			Wrong:   "tokens of whoever else signs with these keys are good here",
			Set:     "the iss of your tokens",
		})
	}
	if slices.Contains(t.Audiences, token.Any) {
		r.add(Finding{
			Setting: "tokens.audiences",
			Value:   token.Any,
			Level:   Note,
			Wrong:   "tokens that were made for other services are good here",
			Set:     "the names of this API in aud",
		})
	}
}

// checkAgents checks where the keys of agents come from, as checkTokens does for those of bearer tokens.
func checkAgents(ctx context.Context, r *Report, s config.SignedAgents, fetch bool) {
	if !s.On() {
		return
	}
	sources, err := daemon.NewDirectories(s, slog.New(slog.DiscardHandler))
	if err != nil { // Complete has said so
		return
	}
	for i, source := range sources {
		setting, from := fmt.Sprintf("signed_agents.directories[%d].origin", i), s.Directories[i].Origin
		if !fetch {
			r.add(Finding{Setting: setting, Value: from + ", not fetched: --fetch does", Level: OK})
			continue
		}
		if err := source.Start(ctx); err != nil {
			r.add(Finding{
				Setting: setting,
				Value:   from,
				Level:   Failure,
				Wrong:   err.Error() + ": until it can be, the agent counts as its addresses",
				Set:     "the origin of a directory that this machine can fetch",
			})
			continue
		}
		status := source.Status()
		keysFound(r, setting, from, status)
		if status.Keys == 0 {
			r.add(Finding{Setting: setting, Value: from, Level: Note,
				Wrong: "there are no keys for Ed25519: no signature of the agent counts"})
		}
		if _, there := source.Set().Published(agents.TestKey); there {
			r.add(Finding{Setting: setting, Value: from, Level: Note,
				Wrong: "a key is ignored: it is the test key of RFC 9421, under which anybody can sign"})
		}
	}
	if s.Nonce == "optional" && s.MaxAge > time.Hour {
		r.add(Finding{
			Setting: "signed_agents.max_age",
			Value:   s.MaxAge.String(),
			Level:   Note,
			Wrong:   "whoever sees a signature without a nonce spends its agent's budget for that long",
			Set:     "1h or less, or nonce: required",
		})
	}
}

// checkOrigins tells of origins where proofs and signatures can be read on their way, and be shown first by others.
func checkOrigins(r *Report, c config.Config) {
	if c.Tokens.DPoP == "off" && !c.SignedAgents.On() {
		return
	}
	for _, origin := range c.Origins {
		f := Finding{Setting: "origins", Value: origin, Level: OK}
		if u, err := url.Parse(origin); err == nil && u.Scheme == "http" && token.CheckURL(origin+"/", false) != nil {
			f.Level, f.Set = Note, "https"
			f.Wrong = "whoever is on the way reads tokens, proofs and signatures, and can show them first"
		}
		r.add(f)
	}
}

func keysFound(r *Report, setting, from string, s token.SourceStatus) {
	r.add(Finding{Setting: setting, Value: fmt.Sprintf("%s, %d keys", from, s.Keys), Level: OK})
	for _, why := range s.Ignored {
		r.add(Finding{Setting: setting, Value: from, Level: Note, Wrong: "a key is ignored: " + why})
	}
}

// withoutQuery is a URL as it may be shown: its query may be a secret.
func withoutQuery(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// endsSoon is how long before its end a certificate is worth a word. Those who
// renew by themselves do so well before.
const endsSoon = 14 * 24 * time.Hour

// checkTLS checks the files of TLS that a setting names, and how long they are good.
func checkTLS(r *Report, setting string, t config.TLS, now time.Time) {
	if !t.On() || t.KeyFile == "" {
		return
	}
	checkSecret(r, setting+".key_file", t.KeyFile, "")
	served, err := daemon.ReadTLS(setting, t)
	if err != nil {
		r.add(Finding{Setting: setting, Level: Failure, Wrong: strings.TrimPrefix(err.Error(), setting+": ")})
		return
	}
	var chain []*x509.Certificate
	for _, der := range served.Certificates[0].Certificate {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	checkDates(r, setting+".cert_file", t.CertFile, chain, now)
	if t.Clients() {
		text, err := os.ReadFile(t.ClientCAFile)
		if err != nil { // it could be read a moment ago
			r.add(Finding{Setting: setting + ".client_ca_file", Level: Failure, Wrong: err.Error()})
			return
		}
		checkDates(r, setting+".client_ca_file", t.ClientCAFile, certificates(text), now)
	}
}

func certificates(text []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
}

// checkDates says which of the certificates in a file are not good now, or not
// for long.
func checkDates(r *Report, setting, file string, all []*x509.Certificate, now time.Time) {
	var ends time.Time
	found := false
	for _, c := range all {
		if ends.IsZero() || c.NotAfter.Before(ends) {
			ends = c.NotAfter
		}
		f := Finding{Setting: setting, Value: file, Level: Failure, Set: "a certificate that is good"}
		name := fmt.Sprintf("the certificate with serial number %x ", c.SerialNumber)
		switch {
		case !now.Before(c.NotAfter):
			f.Wrong = name + "ended at " + stamp(c.NotAfter)
		case now.Before(c.NotBefore):
			f.Wrong = name + "begins at " + stamp(c.NotBefore)
		case c.NotAfter.Sub(now) < endsSoon:
			f.Level, f.Wrong, f.Set = Note, fmt.Sprintf("%sends at %s, in less than %d days", name, stamp(c.NotAfter),
				endsSoon/(24*time.Hour)), "its successor; the files are read anew when they change"
		default:
			continue
		}
		found = true
		r.add(f)
	}
	if !found && len(all) > 0 {
		r.add(Finding{Setting: setting, Value: file + ", until " + stamp(ends), Level: OK})
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// checkRegions loads the tables of regions.
func checkRegions(r *Report, files []string) {
	if len(files) == 0 {
		return
	}
	table, err := region.Load(files...)
	if err != nil {
		r.add(Finding{Setting: "region_files", Level: Failure, Wrong: err.Error()})
		return
	}
	r.add(Finding{
		Setting: "region_files",
		Value:   fmt.Sprintf("%d ranges, %d regions", table.Len(), table.Regions()),
		Level:   OK,
	})
	if table.Own() == 0 {
		r.add(Finding{Setting: "region_files", Level: Note,
			Wrong: "no range is of a private network: clients with private addresses are all in the unknown " +
				"region, and share its budget",
			Set: "a line such as 10.0.0.0,10.0.0.255,EU for each of your networks, if clients come from them"})
	}
}

// checkDoors says what about the way to the gateway is to be known.
func checkDoors(r *Report, c config.Config) {
	if c.Credentials == "first" {
		r.add(Finding{
			Setting: "credentials",
			Value:   c.Credentials,
			Level:   Note,
			Wrong:   "a caller with a token and a key chooses, by leaving one out, whose budget is spent",
			Set:     "all, unless the API reads them in the same order",
		})
	}
	if c.Keys.Query != "" {
		r.add(Finding{
			Setting: "api_keys.query",
			Value:   c.Keys.Query,
			Level:   Note,
			Wrong:   "targets, and the keys in them, are kept in logs and histories",
			Set:     "none, if your clients can send a header",
		})
	}
	for _, name := range c.PassOverrideHeaders {
		r.add(Finding{Setting: "pass_override_headers", Value: name, Level: Note,
			Wrong: "whoever sends it chooses what the API serves, if the API reads it, and pays for the method and " +
				"path of the request line",
			Set: "none, or an API that does not read it"})
	}
	if !config.Loopback(c.Listen) && !c.TLS.On() && len(c.TrustedProxies) == 0 && !c.ProxyProtocol.On() {
		r.add(Finding{
			Setting: "tls",
			Value:   "none",
			Level:   Note,
			Wrong:   "clients are served in plain HTTP: whoever is on the way reads their keys and tokens",
			Set:     "tls.cert_file, or a proxy with TLS before the gateway, in trusted_proxies",
		})
	}
}
