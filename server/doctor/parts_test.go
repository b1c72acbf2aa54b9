package doctor_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/sqlitetest"
	"github.com/headgate-io/headgate/server/doctor"
	"github.com/headgate-io/headgate/server/record"
)

// now is when doctor looks.
var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// site is a folder with a configuration that is in order, but for what a test
// changes.
type site struct {
	t    *testing.T
	dir  string
	conf config.Config
}

func newSite(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir(), conf: config.Default()}
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	s.conf.Upstream, s.conf.Listen = api.URL, "0.0.0.0:8080"
	s.conf.TrustedProxies = []string{"10.1.2.3"}
	s.conf.DB = sqlitetest.New(t, filepath.Join(s.dir, "headgate.db"))
	s.conf.Routes = []string{s.write("routes.txt", "POST /v1/login\nPOST /v1/orders\n")}
	s.conf.SecretFile = s.write("secret", strings.Repeat("0f", 32)+"\n")
	s.store(func(*database.Store) {})
	return s
}

func (s *site) write(name, text string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *site) store(change func(*database.Store)) {
	s.t.Helper()
	db, err := database.Open(s.t.Context(), s.conf.DB)
	if err != nil {
		s.t.Fatal(err)
	}
	change(db)
	if err := db.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) rules(rules ...policy.Rule) {
	s.t.Helper()
	s.store(func(db *database.Store) {
		if err := db.Import(s.t.Context(), record.Author{Actor: "test"}, policy.Document{Rules: rules},
			true); err != nil {
			s.t.Fatal(err)
		}
	})
}

// want looks, and expects a finding of a level with some words.
func (s *site) want(o doctor.Options, setting string, level doctor.Level, words string) {
	s.t.Helper()
	if o.Now.IsZero() {
		o.Now = now
	}
	r := doctor.Configuration(s.t.Context(), s.conf, o)
	found := find(r, setting)
	for _, f := range found {
		if f.Level == level && strings.Contains(f.Value+" "+f.Wrong+" "+f.Set, words) {
			return
		}
	}
	s.t.Errorf("%s: %+v\nwant a %s with %q; all: %+v", setting, found, level, words, r.Findings)
}

// lacks expects that nothing but praise is said of a setting.
func (s *site) lacks(setting string) {
	s.t.Helper()
	for _, f := range find(doctor.Configuration(s.t.Context(), s.conf, doctor.Options{Now: now}), setting) {
		if f.Level != doctor.OK {
			s.t.Errorf("%s: %+v, want it in order", setting, f)
		}
	}
}

func TestSiteIsHealthy(t *testing.T) {
	s := newSite(t)
	s.rules(policy.Rule{Endpoint: policy.Default, Limit: 1}, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1})
	for _, f := range doctor.Configuration(t.Context(), s.conf, doctor.Options{Now: now}).Findings {
		if f.Level != doctor.OK {
			t.Errorf("%+v, want all in order: the tests below need it", f)
		}
	}
}

// What is wrong with a setting that rules go by is told once.
func TestAFaultOfASettingIsNoneOfTheRules(t *testing.T) {
	s := newSite(t)
	s.rules(policy.Rule{Endpoint: policy.Default, Limit: 1}, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1})
	s.conf.Priority.Endpoints = map[string]string{"POST /v1/login": "urgent"}
	s.want(doctor.Options{}, "configuration", doctor.Failure, `priority.endpoints[POST /v1/login] is "urgent"`)
	s.lacks("rules")
}

// Whether the API takes connections is tried, and one that does not keeps nobody from starting.
func TestServersOfTheAPI(t *testing.T) {
	s := newSite(t)
	up := s.conf.Upstream
	s.want(doctor.Options{}, "upstream", doctor.OK, up)
	s.conf.Upstreams.Servers = []config.UpstreamServer{
		{Address: strings.TrimPrefix(up, "http://"), Weight: 1}, {Address: "unix:" + s.dir + "/api.sock", Weight: 1},
	}
	s.want(doctor.Options{}, "upstream_servers", doctor.OK, strings.TrimPrefix(up, "http://"))
	s.want(doctor.Options{}, "upstream_servers", doctor.Note,
		s.dir+"/api.sock there is no such socket; it would get no requests until that changes the API started")
	s.conf.Upstreams.Servers = nil
	s.conf.Upstream = strings.Replace(up, "http:", "https:", 1)
	s.want(doctor.Options{}, "upstream", doctor.Failure,
		"it does not speak TLS; the gateway would start, and no request")
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	s.conf.Upstream = strings.Replace(secure.URL, "https:", "http:", 1)
	s.want(doctor.Options{}, "upstream", doctor.Failure, "it speaks TLS, and no plain HTTP; the gateway would start")
	s.conf.Upstream = strings.Replace(up, "http:", "https:", 1)
	s.conf.Upstreams.TLS.CAFile = filepath.Join(s.dir, "nothing.pem")
	s.want(doctor.Options{}, "upstream_tls", doctor.Failure, "nothing.pem: no such file")
	s.conf.Listen, s.conf.Upstreams.TLS.CAFile = config.NoGateway, ""
	s.lacks("upstream") // nothing is passed on
}

// A database that has lost its rules is told from one that never had any, by the
// last good copy that a gateway would start with.
func TestEmptiedDatabase(t *testing.T) {
	s := newSite(t)
	s.store(func(db *database.Store) {
		for _, r := range s.inDatabase(db) {
			if err := db.Delete(t.Context(), record.Author{Actor: "test"}, record.KeyOf(r)); err != nil {
				t.Fatal(err)
			}
		}
	})
	s.want(doctor.Options{Now: now}, "rules", doctor.Note, "there are none: nothing is limited but by policy_fallback")
	s.conf.FillPaths()
	lastGood := func(number int64) {
		cache, err := policy.NewCache(policy.CacheOptions{Source: kept{number}, LastGood: s.conf.LastGood})
		if err == nil {
			err = cache.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lastGood(1 << 40)
	s.want(doctor.Options{Now: now}, "rules", doctor.Failure,
		"has 1: a gateway takes that for an accident and goes on with those")
	s.write("headgate.db.last-good.json", "torn")
	s.want(doctor.Options{Now: now}, "last_good", doctor.Failure, "whether it had any is unknown")
}

// The same for keys, where a site that never had any is in order.
func TestEmptiedKeys(t *testing.T) {
	s := newSite(t)
	s.rules(policy.Rule{Endpoint: policy.Default, Limit: 1}, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1})
	kept := func(active int) {
		var records []identity.KeyRecord
		for i := range active {
			records = append(records, identity.KeyRecord{Digest: identity.Digest{byte(i)}, Key: identity.Key{ID: "k"}})
		}
		text, err := json.Marshal(records)
		if err != nil {
			t.Fatal(err)
		}
		s.write("headgate.db.last-good.keys.json",
			fmt.Sprintf("headgate last good copy, crc32 %08x\n%s", crc32.ChecksumIEEE(text), text))
	}
	s.lacks("api_keys")
	kept(1)
	s.lacks("api_keys")
	kept(2)
	s.want(doctor.Options{Now: now}, "api_keys", doctor.Failure,
		"has 2: a gateway takes that for an accident and goes on with those")
	s.write("headgate.db.last-good.keys.json", "torn")
	s.want(doctor.Options{Now: now}, "last_good", doctor.Failure, "whether it had any is unknown")
}

// inDatabase is the rules of the site; it has one at least.
func (s *site) inDatabase(db *database.Store) []policy.Rule {
	s.t.Helper()
	if err := db.Set(s.t.Context(), record.Author{Actor: "test"},
		policy.Rule{Endpoint: policy.Default, Limit: 5}); err != nil {
		s.t.Fatal(err)
	}
	list, err := db.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// kept is one rule of a version.
type kept struct{ number int64 }

func (k kept) Version(context.Context) (string, error) { return "", nil }
func (k kept) Load(context.Context) (policy.Document, string, error) {
	return policy.Document{Number: k.number, Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1}}}, "", nil
}

func TestSecretFiles(t *testing.T) {
	s := newSite(t)
	key := func(secret string) {
		d, err := identity.NewDigester([]byte(strings.Repeat(secret, 32)))
		if err != nil {
			t.Fatal(err)
		}
		s.store(func(db *database.Store) {
			if _, _, err := db.CreateKey(t.Context(), d,
				record.NewAPIKey{Project: "acme", Name: "ci", Format: identity.KeyFormat{Prefix: "hg_"}}); err != nil {
				t.Fatal(err)
			}
		})
	}
	key("\x0f")
	s.lacks("secret_file")
	previous := "previous " + strings.Repeat("0f", 32) + "\n"
	s.write("secret", strings.Repeat("1e", 32)+"\n"+previous)
	s.want(doctor.Options{}, "secret_file", doctor.Note,
		"a rotation is under way: 1 active keys are under the previous one")
	s.write("secret", strings.Repeat("1e", 32)+"\n")
	s.want(doctor.Options{}, "secret_file", doctor.Failure, "lacks the secret of some active API keys")
	s.write("secret", strings.Repeat("2d", 32)+"\nprevious "+strings.Repeat("1e", 32)+"\n")
	s.want(doctor.Options{}, "secret_file", doctor.Failure, "lacks the secret of some active API keys")
	s.write("secret", "geheim\n")
	s.want(doctor.Options{}, "secret_file", doctor.Failure, "is not an even number of hexadecimal digits")
	if err := os.Remove(s.conf.SecretFile); err != nil {
		t.Fatal(err)
	}
	s.want(doctor.Options{}, "secret_file", doctor.Failure, "no API key can be recognised, of 1 in the database")
}

func TestTokenKeys(t *testing.T) {
	s := newSite(t)
	s.conf.Tokens.Algorithms, s.conf.Tokens.Issuer, s.conf.Tokens.Audiences = []string{"ES256"},
		"https://issuer.example", []string{"api"}
	good := newAuthority(t)
	s.conf.Tokens.KeyFiles = []string{s.write("issuer.pem", pemOf(t, "CERTIFICATE", good.cert.Raw))}
	s.want(doctor.Options{}, "tokens.key_files", doctor.OK, "issuer.pem, 1 keys")
	s.conf.Tokens.Issuer, s.conf.Tokens.Audiences = "*", []string{"api", "*"}
	s.want(doctor.Options{}, "tokens.issuer", doctor.Note, "whoever else signs")
	s.want(doctor.Options{}, "tokens.audiences", doctor.Note, "made for other services")
	s.conf.Tokens.DPoP, s.conf.Origins = "bound", []string{"https://api.example"}
	s.want(doctor.Options{}, "origins", doctor.OK, "https://api.example")
	s.conf.Origins = []string{"http://api.example"}
	s.want(doctor.Options{}, "origins", doctor.Note, "whoever is on the way")
	s.conf.Tokens.DPoP = "off"
	s.write("issuer.pem", "nonsense")
	s.want(doctor.Options{}, "tokens.key_files", doctor.Failure, "issuer.pem")
	s.conf.Tokens.KeyFiles = []string{filepath.Join(s.dir, "absent.pem")}
	s.want(doctor.Options{}, "tokens.key_files", doctor.Failure, "absent.pem")

	s.conf.Tokens.KeyFiles, s.conf.Tokens.Algorithms = nil, []string{"HS256"}
	s.conf.Tokens.SecretFiles = []string{s.write("hmac", strings.Repeat("s", 32))}
	s.want(doctor.Options{}, "tokens.secret_files", doctor.OK, "hmac, 1 keys")
	if err := os.Chmod(s.conf.Tokens.SecretFiles[0], 0o644); err != nil {
		t.Fatal(err)
	}
	s.want(doctor.Options{}, "tokens.secret_files", doctor.Failure, "others may read it")
}

// TestTokenKeysOfAnIssuer: nothing is fetched unless that is asked for, and
// what the issuer's URL has in its query is not shown.
func TestTokenKeysOfAnIssuer(t *testing.T) {
	asked := 0
	answer := `{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, answer)
	}))
	defer issuer.Close()
	s := newSite(t)
	s.conf.Tokens.Algorithms, s.conf.Tokens.Issuer, s.conf.Tokens.Audiences = []string{"ES256"},
		"https://issuer.example", []string{"api"}
	s.conf.Tokens.JWKSURL = issuer.URL + "/keys?token=geheim"
	s.want(doctor.Options{}, "tokens.jwks_url", doctor.OK, "/keys, not fetched: --fetch does")
	if asked != 0 {
		t.Errorf("the issuer was asked %d times, want it left alone", asked)
	}
	s.want(doctor.Options{Fetch: true}, "tokens.jwks_url", doctor.OK, "/keys, 1 keys")
	answer = "{}"
	s.want(doctor.Options{Fetch: true}, "tokens.jwks_url", doctor.Failure, "until it can be, tokens are ignored")
	issuer.Close()
	s.want(doctor.Options{Fetch: true}, "tokens.jwks_url", doctor.Failure, "until it can be, tokens are ignored")
	for _, f := range doctor.Configuration(t.Context(), s.conf, doctor.Options{Fetch: true, Now: now}).Findings {
		if strings.Contains(f.Value+f.Wrong+f.Set, "geheim") {
			t.Errorf("%+v shows the query of the URL", f)
		}
	}
	s.conf.Tokens.JWKSURL, s.conf.Tokens.JWKSAllowHTTP = "http://issuer.example/keys", true
	s.want(doctor.Options{}, "tokens.jwks_allow_http", doctor.Note, "whoever is on the way")
}

// TestAgentKeys: likewise of the directories of agents.
func TestAgentKeys(t *testing.T) {
	answer := `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},{"kty":"RSA"}]}`
	asked := 0
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, answer)
	}))
	defer agent.Close()
	s := newSite(t)
	s.conf.Origins, s.conf.SignedAgents.Private = []string{"http://api.example"}, true
	s.conf.SignedAgents.Directories = []config.AgentDirectory{{Origin: agent.URL}}
	const setting = "signed_agents.directories[0].origin"
	s.want(doctor.Options{}, setting, doctor.OK, "not fetched: --fetch does")
	if asked != 0 {
		t.Errorf("the agent was asked %d times, want it left alone", asked)
	}
	s.want(doctor.Options{}, "origins", doctor.Note, "whoever is on the way")
	s.want(doctor.Options{Fetch: true}, setting, doctor.OK, ", 1 keys")
	s.want(doctor.Options{Fetch: true}, setting, doctor.Note, "a key is ignored: keys[1]")
	answer = `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}]}`
	s.want(doctor.Options{Fetch: true}, setting, doctor.Note, "test key of RFC 9421")
	answer = `{"keys":[]}`
	s.want(doctor.Options{Fetch: true}, setting, doctor.Note, "no signature of the agent counts")
	answer = "<html>"
	s.want(doctor.Options{Fetch: true}, setting, doctor.Failure, "until it can be, the agent counts as its addresses")
	s.conf.SignedAgents.MaxAge = 24 * time.Hour
	s.want(doctor.Options{}, "signed_agents.max_age", doctor.Note, "spends its agent's budget")
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	a.cert, a.key = a.sign(t, now.Add(-time.Hour), now.Add(365*24*time.Hour))
	return a
}

func (a *authority) sign(t *testing.T, begins, ends time.Time) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(0xabc),
		Subject:               pkix.Name{CommonName: "a"},
		NotBefore:             begins,
		NotAfter:              ends,
		IsCA:                  a.cert == nil,
		BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func pemOf(t *testing.T, kind string, der []byte) string {
	t.Helper()
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestTLSFiles(t *testing.T) {
	s := newSite(t)
	signer := newAuthority(t)
	serve := func(begins, ends time.Time) {
		cert, key := signer.sign(t, begins, ends)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		s.conf.TLS.CertFile = s.write("cert.pem",
			pemOf(t, "CERTIFICATE", cert.Raw)+pemOf(t, "CERTIFICATE", signer.cert.Raw))
		s.conf.TLS.KeyFile = s.write("key.pem", pemOf(t, "PRIVATE KEY", der))
	}
	const day = 24 * time.Hour
	serve(now.Add(-day), now.Add(90*day))
	s.want(doctor.Options{}, "tls.cert_file", doctor.OK, "cert.pem, until 2026-07-30T12:00:00Z")
	serve(now.Add(-day), now.Add(14*day))
	s.lacks("tls.cert_file")
	serve(now.Add(-day), now.Add(14*day-time.Second))
	s.want(doctor.Options{}, "tls.cert_file", doctor.Note,
		"serial number abc ends at 2026-05-15T11:59:59Z, in less than 14 days")
	serve(now.Add(-day), now)
	s.want(doctor.Options{}, "tls.cert_file", doctor.Failure, "ended at 2026-05-01T12:00:00Z")
	serve(now.Add(time.Second), now.Add(90*day))
	s.want(doctor.Options{}, "tls.cert_file", doctor.Failure, "begins at 2026-05-01T12:00:01Z")
	serve(now.Add(-day), now.Add(90*day))
	if err := os.Chmod(s.conf.TLS.KeyFile, 0o640); err != nil {
		t.Fatal(err)
	}
	s.want(doctor.Options{}, "tls.key_file", doctor.Failure, "others may read it")

	s.conf.TLS.ClientAuth, s.conf.TLS.ClientCAFile = "require",
		s.write("ca.pem", pemOf(t, "CERTIFICATE", signer.cert.Raw))
	s.want(doctor.Options{}, "tls.client_ca_file", doctor.OK, "ca.pem, until 2027-05-01T12:00:00Z")
	s.want(doctor.Options{Now: now.Add(366 * day)}, "tls.client_ca_file", doctor.Failure,
		"ended at 2027-05-01T12:00:00Z")
	s.write("ca.pem", "nobody")
	s.want(doctor.Options{}, "tls", doctor.Failure, "holds no certificate in PEM")
	s.write("cert.pem", "nonsense")
	s.want(doctor.Options{}, "tls", doctor.Failure, "cert.pem")
}

func TestRegionFiles(t *testing.T) {
	s := newSite(t)
	s.conf.RegionFiles = []string{s.write("regions.csv", "192.0.2.0,192.0.2.255,NL\n198.51.100.0,198.51.100.255,DE\n")}
	s.want(doctor.Options{}, "region_files", doctor.OK, "2 ranges, 2 regions")
	s.write("regions.csv", "192.0.2.0,192.0.2.255,NL\n198.51.100.0,198.51")
	s.want(doctor.Options{}, "region_files", doctor.Failure, "regions.csv")
}

func TestWhoIsBelieved(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*config.Config)
		setting string
		level   doctor.Level
		words   string
	}{
		{"the proxies", func(c *config.Config) { c.TrustedProxies = []string{"10.1.2.0/28", "203.0.113.7"} },
			"trusted_proxies", doctor.OK, "10.1.2.0/28"},
		{"half a private network", func(c *config.Config) { c.TrustedProxies = []string{"10.0.0.0/9"} },
			"trusted_proxies", doctor.OK, "10.0.0.0/9"},
		{"a private network", func(c *config.Config) { c.TrustedProxies = []string{"10.0.0.0/8"} }, "trusted_proxies",
			doctor.Note, "a whole private network"},
		{"on loopback", func(c *config.Config) { c.TrustedProxies, c.Listen = []string{"10.0.0.0/8"}, "127.0.0.1:80" },
			"trusted_proxies", doctor.OK, "10.0.0.0/8"},
		{"a cloud", func(c *config.Config) { c.TrustedProxies = []string{"34.64.0.0/11"} }, "trusted_proxies",
			doctor.Note, "from which clouds let machines"},
		{"a cloud in IPv6", func(c *config.Config) { c.TrustedProxies = []string{"2600:1f00::/24"} }, "trusted_proxies",
			doctor.Note, "from which clouds let machines"},
		{"strangers", func(c *config.Config) { c.TrustedProxies = []string{"8.0.0.0/5"} }, "trusted_proxies",
			doctor.Failure, "more than any network of proxies"},
		{"strangers as balancers", func(c *config.Config) { c.ProxyProtocol.From = []string{"::/1"} },
			"proxy_protocol.from", doctor.Failure, "more than any network of proxies"},
		{"balancers that are proxies", func(c *config.Config) { c.ProxyProtocol.From = []string{"10.1.2.3"} },
			"proxy_protocol.from", doctor.Note, "believed as the balancer's own"},
		{"balancers that can be gone round", func(c *config.Config) {
			c.ProxyProtocol.From, c.ProxyProtocol.Required = []string{"10.9.9.9"}, false
		}, "proxy_protocol.required", doctor.Note, "past the balancer"},
		{"hops counted", func(c *config.Config) {
			c.TrustedProxies, c.ClientAddress = nil, config.ClientAddress{Strategy: "trusted_count", Proxies: 2}
		}, "client_address.strategy", doctor.Note, "chooses its own address"},
		{"small clients", func(c *config.Config) { c.IPv6Prefix = 128 }, "ipv6_prefix", doctor.Note, "2^64 budgets"},
		{"keys in targets", func(c *config.Config) { c.Keys.Query = "key" }, "api_keys.query", doctor.Note,
			"kept in logs"},
		{"another method by a header", func(c *config.Config) { c.PassOverrideHeaders = []string{"X-HTTP-Method"} },
			"pass_override_headers", doctor.Note, "chooses what the API serves"},
		{"plain HTTP for all", func(c *config.Config) { c.TrustedProxies = nil }, "tls", doctor.Note, "plain HTTP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			tt.change(&s.conf)
			s.want(doctor.Options{}, tt.setting, tt.level, tt.words)
		})
	}
}

func TestIdentifierRules(t *testing.T) {
	s := newSite(t)
	const login = "POST /v1/login"
	byName := policy.Rule{Endpoint: login, Limit: 100, Per: time.Hour, Subject: policy.SubjectIdentifier}
	pair := policy.Rule{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifierIP}
	last := []policy.Rule{{Endpoint: policy.Default, Limit: 1}, {Endpoint: policy.UnknownEndpoint, Limit: 1}}

	s.rules(append(last, byName, pair)...)
	s.want(doctor.Options{}, "rules", doctor.Note, `subject is "identifier", want one that this process can tell apart`)
	s.conf.Identifiers = []config.Identifier{{Endpoint: login, Field: "email"}}
	s.lacks("rules")
	s.rules(append(last, byName)...)
	s.want(doctor.Options{}, "rules", doctor.Note, "one address can keep the owner of an account out")
	s.rules(last...)
	s.want(doctor.Options{}, "rules", doctor.Note,
		"identifiers: POST /v1/login is read, want a rule by identifier_ip or identifier")
	s.rules(append(last, policy.Rule{Endpoint: "POST /v1/orders", Limit: 1, Subject: policy.SubjectIdentifierIP},
		pair)...)
	s.want(doctor.Options{}, "rules", doctor.Note, "POST /v1/orders, per identifier_ip")
	s.conf.Identifiers[0].Endpoint = "POST /v1/logon"
	s.want(doctor.Options{}, "endpoints", doctor.Failure,
		`identifiers[0]: endpoint is "POST /v1/logon", want one of openapi or routes, such as "POST /v1/login"`)
}

// What happens to requests without rules to rely on is worth a word where it is dangerous.
func TestStaleness(t *testing.T) {
	s := newSite(t)
	s.rules(policy.Rule{Endpoint: policy.Default, Limit: 1}, policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1})
	for _, setting := range []string{"policy_max_stale", "policy_stale", "policy_empty"} {
		s.lacks(setting)
	}
	s.conf.Staleness.MaxStale, s.conf.Staleness.OnEmpty = 0, "allow"
	s.want(doctor.Options{}, "policy_max_stale", doctor.Note, "stay in force for ever")
	s.want(doctor.Options{}, "policy_empty", doctor.Note, "nothing is limited while the database has no rule")
	s.conf.Staleness.MaxStale, s.conf.Staleness.OnStale = time.Hour, "deny"
	s.want(doctor.Options{}, "policy_stale", doctor.Note, "every request is refused")
}

// A release of Go with a known vulnerability is a failure, whatever the configuration.
func TestRuntime(t *testing.T) {
	s := newSite(t)
	s.lacks("runtime")
	s.want(doctor.Options{Runtime: "go1.26.8"}, "runtime", doctor.Failure, "GO-2026-6617")
}
