// Package config is the operator's interface to the process: a YAML file and
// flags, read strictly, completed with defaults and checked as a whole before
// anything starts.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-io/headgate/gateway"
)

// Config is everything `headgate serve` can be told. Field comments give the
// default, which Default fills in; a field left out of a file keeps it.
type Config struct {
	// Listen is where the gateway accepts requests. Default 127.0.0.1:8080; none
	// leaves the gateway out, where Decisions are all that is asked for.
	Listen string `yaml:"listen"`

	// Decisions is the door for proxies that ask before they pass a request on.
	Decisions Decisions `yaml:"decisions"`

	// Admin is where metrics, health and the admin API answer. Default
	// 127.0.0.1:8081. Any address but loopback needs AdminTokenFile, or
	// tokens in the database.
	Admin string `yaml:"admin"`

	// AdminTokenFile holds a bearer token of the admin listener that may do
	// everything: the first line, at least 16 characters.
	AdminTokenFile string `yaml:"admin_token_file"`

	// AdminAccess says more about who may use it.
	AdminAccess AdminAccess `yaml:",inline"`

	// Upstream is the base URL of the API behind the gateway. Required where there
	// is one.
	Upstream string `yaml:"upstream"`

	// UpstreamTimeout bounds the wait for a response header. Default 60s.
	UpstreamTimeout time.Duration `yaml:"upstream_timeout"`

	// Upstreams says more about what is behind it.
	Upstreams Servers `yaml:",inline"`

	// OpenAPI and Routes are the documents that say which endpoints exist. Before a
	// file of Routes may stand its notation and a colon: servemux, chi, gin, echo, fiber,
	// grpc or protoset; see docs/endpoints.md.
	OpenAPI []string `yaml:"openapi"`

	// OpenAPIStrict refuses to start with a document of which an operation cannot be read or
	// told from another. Default false: the operation is left out or merged, with a warning.
	OpenAPIStrict bool `yaml:"openapi_strict"`

	// Routes are files that say which endpoints exist, a METHOD /template a line, beside OpenAPI; or
	// in another notation, as gin:FILE.
	Routes []string `yaml:"routes"`

	// DB is the policy database: sqlite:PATH, postgres://…, mysql://…, or
	// kubernetes:NAMESPACE for the RateLimitPolicies there, which are only read.
	// Default sqlite:headgate.db.
	DB string `yaml:"db"`

	// Database says more about it.
	Database Database `yaml:",inline"`

	// Fleet says how other replicas' operators see this one.
	Fleet Fleet `yaml:",inline"`

	// Store is where gateways share buckets. Default none: each counts alone.
	Store Store `yaml:"store"`

	// Gossip is how gateways keep limits in step without a store. Default not at all.
	Gossip Gossip `yaml:"gossip"`

	// AutoRevert takes back changes that turn callers away. Default off.
	AutoRevert AutoRevert `yaml:"auto_revert"`

	// SecretFile holds the secret under which API keys are hashed; it is made
	// when missing. Default: beside the database.
	SecretFile string `yaml:"secret_file"`

	// LastGood is where the last good rules and keys are kept, so that a
	// start without the database is possible. Default: beside the database.
	LastGood string `yaml:"last_good"`

	// StateFile is where local buckets are kept over a restart. Default none: they
	// begin full.
	StateFile string `yaml:"state_file"`

	// StateInterval is how often it is written, besides at the end: what a process
	// that is killed loses. Default 10s.
	StateInterval time.Duration `yaml:"state_interval"`

	// Staleness bounds how old they may become.
	Staleness Staleness `yaml:",inline"`

	// Refresh is how often the database is asked whether anything changed.
	// Default 250ms.
	Refresh time.Duration `yaml:"refresh"`

	// TrustedProxies are the networks whose forwarding header is believed,
	// ForwardedHeader the one header of theirs that is: X-Forwarded-For
	// (default) or Forwarded.
	TrustedProxies  []string `yaml:"trusted_proxies"`
	ForwardedHeader string   `yaml:"forwarded_header"`

	// PassOverrideHeaders names headers that reach the API although they ask it
	// for another method or target than the one that was charged, or are those of
	// proxies. Default none.
	PassOverrideHeaders []string `yaml:"pass_override_headers"`

	// IPv6Prefix is how many bits of an IPv6 address name a client. Default 64.
	IPv6Prefix int `yaml:"ipv6_prefix"`

	// IPv4Prefix is the same for IPv4 addresses. Default 32.
	IPv4Prefix int `yaml:"ipv4_prefix"`

	// NAT64 are the prefixes besides 64:ff9b::/96 behind which IPv4 addresses
	// stand (RFC 6052). Default none.
	NAT64 []string `yaml:"nat64_prefixes"`

	// ClientAddress says how the client's address is found behind proxies.
	ClientAddress ClientAddress `yaml:"client_address"`

	// ProxyProtocol says from whom the PROXY protocol is accepted.
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol"`

	// Clients bounds what clients may hold of the gateway, and for how long.
	Clients Clients `yaml:"clients"`

	// RegionFiles are tables of address ranges and their regions. Default
	// none: all regions are unknown.
	RegionFiles []string `yaml:"region_files"`

	// Keys says where API keys stand and what they look like.
	Keys Keys `yaml:"api_keys"`

	// Credentials says which valid credentials of a request are charged: all
	// (default), or those of the first kind that is there, first: tokens before
	// keys before certificates.
	Credentials string `yaml:"credentials"`

	// BadCredentials says what happens to requests with a credential that is
	// not valid: ignore it (default), or reject them with 401.
	BadCredentials string `yaml:"bad_credentials"`

	// Unknown says what happens to requests that match no endpoint: reject
	// (default) or limit.
	Unknown string `yaml:"unknown"`

	// NoRule says what happens to requests that no rule covers: allow
	// (default) or deny.
	NoRule string `yaml:"no_rule"`

	// BurstPercent is the burst of a rule that names none, as a percentage of
	// its limit, 100 or more. Default 100.
	BurstPercent int64 `yaml:"burst_percent"`

	// MaxBuckets bounds the bucket table, at about 44 bytes each. Default
	// 1048576.
	MaxBuckets int `yaml:"max_buckets"`

	// MaxBytes says the same in bytes, such as 64MiB; give one of both.
	MaxBytes Bytes `yaml:"max_bytes"`

	// RefuseNewcomers turns new clients away while the table is full, instead
	// of evicting others. Default false: eviction grants nobody anything.
	RefuseNewcomers bool `yaml:"refuse_newcomers"`

	// MaxWait is the longest that rules with algorithm leaky_bucket hold a
	// request back; one that would wait longer is refused at once. Default 10s;
	// with 0 nobody waits.
	MaxWait time.Duration `yaml:"max_wait"`

	// MaxWaiters is how many requests may wait for their turn at the same time.
	// From 512 on, half is kept for callers of whom few wait. Default 1024.
	MaxWaiters int `yaml:"max_waiters"`

	// RetryAfter is what callers that a shared bucket has no room for are told: truth,
	// when it has room, which is the same moment for all of them; spaced, a time for each
	// caller, a token apart; or reserved, which also keeps the token for callers who say
	// how many of their requests wait. Default spaced.
	RetryAfter string `yaml:"retry_after"`

	// Costs is what a request to an endpoint costs, in tokens; 1 where absent,
	// and 0 for an endpoint that only tells clients their budget.
	Costs map[string]int64 `yaml:"costs"`

	// Priority says of which class requests are, beside what rules say. Default nothing.
	Priority Priority `yaml:"priority"`

	// CountWhen is which answers the rules of an endpoint count, such as [401, 403] or
	// [4xx]; all where absent.
	CountWhen map[string][]Status `yaml:"count_when"`

	// WebSockets says, by the endpoint that opens them, on which WebSockets messages count, and how.
	// Default none: opening one counts, and nothing after it.
	WebSockets map[string]WebSocket `yaml:"websockets"`

	// GRPCStreams says, by the endpoint of the method, in which gRPC calls messages count, and how.
	// Default none: a call counts, and nothing in it.
	GRPCStreams map[string]WebSocket `yaml:"grpc_streams"`

	// Settle makes requests pay what they turned out to cost.
	Settle Settle `yaml:"settle"`

	// Identifiers are the endpoints whose bodies name what a request tries to
	// be, such as logins. Default none: no body is read.
	Identifiers []Identifier `yaml:"identifiers"`

	// LanguageModels are the endpoints of language models, whose requests cost what their bodies and answers say.
	// Default none: no body is read.
	LanguageModels []LanguageModel `yaml:"language_models"`

	// Batches are the endpoints whose bodies may hold many requests, as those of JSON-RPC do. Default none: every
	// request is one, and no body is read.
	Batches []Batch `yaml:"batches"`

	// Bytes are the endpoints whose requests cost the bytes of their bodies and answers. Default none: a body costs
	// nothing.
	Bytes []ByteCount `yaml:"bytes"`

	// MCP are the endpoints that take messages of the Model Context Protocol, whose methods and tools may
	// have endpoints of their own: "MCP /mcp/tools/call/search". Default none: a message is a request like
	// others, and no body is read.
	MCP []MCP `yaml:"mcp"`

	// GraphQL are the endpoints whose requests cost what the operations of GraphQL in them ask for. Default none: each
	// costs as much, and no body is read.
	GraphQL []GraphQL `yaml:"graphql"`

	// Adaptive are the endpoints whose rates are lowered while the API is slow or fails. Default none: rates are what
	// rules say.
	Adaptive []Adaptive `yaml:"adaptive"`

	// Endpoint adjusts the canonical form.
	Endpoint Endpoint `yaml:"endpoint"`

	// Origins are the URLs under which clients know this API, each a scheme and a host, such as
	// https://api.example: what they sign says which API it is for. Default none.
	Origins []string `yaml:"origins"`

	// Tokens says which bearer tokens are believed. Default none.
	Tokens Tokens `yaml:"tokens"`

	// SignedAgents says which agents are known by the signatures of their requests. Default none.
	SignedAgents SignedAgents `yaml:"signed_agents"`

	// Engine is what reads requests over HTTP/1.1: fast, which reads plain ones itself at half the cost and
	// leaves all others to net/http; net/http, which is Go's; or auto (default), the recommended one: fast.
	Engine string `yaml:"engine"`

	// TLS makes the gateway speak TLS. Default plain HTTP.
	TLS TLS `yaml:"tls"`

	// Headers chooses the feedback to clients.
	Headers Headers `yaml:"headers"`

	// Developers says what callers may ask about their own budgets. Default
	// nothing.
	Developers Developers `yaml:"developers"`

	// Usage says how much is remembered of what callers did.
	Usage Usage `yaml:"usage"`

	// DecisionLog says which decisions are written down, and where.
	DecisionLog DecisionLog `yaml:"decision_log"`

	// Traces says which requests a collector of OpenTelemetry is told of. Default none.
	Traces Traces `yaml:"traces"`

	// Activity says how much is remembered of decisions.
	Activity Activity `yaml:"activity"`

	// Anomalies says how callers are scored by what they do, and what follows. Default nobody is.
	Anomalies Anomalies `yaml:"anomalies"`

	// Warnings says of what people are told, and where.
	Warn Warnings `yaml:"warnings"`

	// WatchFiles reloads when the file of the configuration or a document of the endpoints changes. Default false:
	// SIGHUP and POST /v1/reload do.
	WatchFiles bool `yaml:"watch_files"`

	// ShutdownTimeout is how long requests in flight may take to finish.
	// Default 30s.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout"`

	// Log chooses the log's format, text (default) or json, and its lowest
	// level: debug, info (default), warn or error.
	Log Log `yaml:"log"`
}

// Settle says how the cost of a request becomes known while it is served. By
// default it does not, and requests pay before.
type Settle struct {
	// Header is the field, or trailer, by which the API says what a request
	// cost, in tokens; clients never see it. Default none.
	Header string `yaml:"header"`

	// BytesPerToken makes a token of so many bytes of the response, where the
	// header is not. Default 0: bytes do not count.
	BytesPerToken int64 `yaml:"bytes_per_token"`

	// Timeout is after what time the estimate stands, which is the endpoint's
	// cost. Default 5m.
	Timeout time.Duration `yaml:"timeout"`

	// MaxOutstanding bounds the requests that are under way. Default 65536.
	MaxOutstanding int `yaml:"max_outstanding"`
}

// On reports whether requests pay afterwards.
func (s Settle) On() bool { return s.Header != "" || s.BytesPerToken > 0 }

// Headers chooses the feedback to clients.
type Headers struct {
	// RateLimit writes RateLimit and RateLimit-Policy. Default true.
	RateLimit bool `yaml:"ratelimit"`

	// Draft is by which version of the IETF draft: draft-10 (default), draft-11, which are the same on the wire,
	// draft-07, draft-06, draft-03, or proposal-166 of its working group.
	Draft string `yaml:"draft"`

	// Rules is of which rules they tell: all that apply (default), or the binding one alone.
	Rules string `yaml:"rules"`

	// Legacy adds X-RateLimit-Limit, -Remaining, -Reset and -Strategy: none (default), or with a Reset that is
	// in so many seconds (delta), at a Unix time (epoch) or at a written one (iso8601); draft-03 is delta, with the
	// policies behind the limit, as Envoy does it.
	Legacy string `yaml:"legacy"`
}

// Log chooses what the process says of itself.
type Log struct {
	// Format is text (default) or json.
	Format string `yaml:"format"`

	// Level is the least that is logged: debug, info (default), warn or error.
	Level string `yaml:"level"`
}

// Default returns a Config with every default filled in, but for the files
// beside the database, which follow where it is.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080", Admin: "127.0.0.1:8081", Decisions: defaultDecisions(),
		UpstreamTimeout: 60 * time.Second, Upstreams: defaultServers(),
		DB: "sqlite:headgate.db", Database: defaultDatabase(), Fleet: defaultFleet(), AutoRevert: defaultAutoRevert(),
		Store: defaultStore(), Gossip: defaultGossip(), Refresh: 250 * time.Millisecond,
		StateInterval: 10 * time.Second, Staleness: defaultStaleness(),
		ForwardedHeader: "X-Forwarded-For", IPv6Prefix: 64, Keys: defaultKeys(),
		IPv4Prefix: 32, ClientAddress: ClientAddress{Strategy: "trusted_ranges"}, ProxyProtocol: defaultProxyProtocol(),
		Unknown: "reject", NoRule: "allow", Credentials: "all", BadCredentials: "ignore", BurstPercent: 100,
		MaxBuckets: 1 << 20,
		MaxWait:    defaultMaxWait, MaxWaiters: defaultMaxWaiters, RetryAfter: "spaced",
		Engine:          "auto",
		Clients:         defaultClients(),
		Tokens:          defaultTokens(),
		SignedAgents:    defaultSignedAgents(),
		TLS:             defaultTLS(),
		AdminAccess:     defaultAdminAccess(),
		Settle:          Settle{Timeout: 5 * time.Minute, MaxOutstanding: 1 << 16},
		Headers:         Headers{RateLimit: true, Draft: "draft-10", Rules: "all", Legacy: "none"},
		Developers:      Developers{MaxRequests: defaultMaxRequests, KeepRequests: defaultKeep},
		Usage:           Usage{MaxCallers: defaultMaxCallers, Interval: time.Minute},
		Warn:            Warnings{CallerFill: time.Minute, DeniedFor: 10 * time.Minute, SlowerFor: 5 * time.Minute},
		Traces:          Traces{OneIn: 1000, PerSecond: 100},
		DecisionLog:     DecisionLog{PerSecond: 100, MaxSize: 100 << 20, Keep: 5},
		Anomalies:       defaultAnomalies(),
		Activity:        Activity{MaxRequests: 1 << 17, MaxCallers: 1 << 11},
		ShutdownTimeout: 30 * time.Second,
		Log:             Log{Format: "text", Level: "info"},
	}
}

// Read returns the Config of a YAML file, over the defaults. Unknown and
// repeated fields are errors that name the line.
func Read(path string) (Config, error) {
	c, _, err := Open(path)
	return c, err
}

// notRead is in our words why a file cannot be read.
func notRead(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("may not be read by this user, want read permission")
	}
	return err
}

// goType is how the YAML library names the type of a struct.
var goType = regexp.MustCompile(` (not found )?in type config\.\w+|into config\.\w+`)

// oneLine turns the YAML library's report into a line in our words.
func oneLine(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n")
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		line = goType.ReplaceAllStringFunc(strings.TrimSpace(line), func(s string) string {
			if strings.HasPrefix(s, " not found") {
				return " is no field here"
			}
			return ""
		})
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// FillPaths names the files beside the database that were not named.
func (c *Config) FillPaths() {
	base := c.keysAt()
	if c.SecretFile == "" {
		c.SecretFile = base + ".secret"
	}
	if c.LastGood == "" {
		c.LastGood = c.copyAt() + ".last-good.json"
	}
}

// Complete names the files that were not named, and checks every field and how
// they go together. The error names each field at fault, its value and what
// would be right, a line each.
func (c *Config) Complete() error {
	var check checker
	c.check(&check)
	return errors.Join(check.errs...)
}

func (c *Config) check(check *checker) {
	c.FillPaths()
	check.listeners(c)
	check.adminAccess(c)
	check.endpoints(c)
	check.addresses(c)
	check.clients(c.Clients)
	check.oneOf("forwarded_header", c.ForwardedHeader, "X-Forwarded-For", "Forwarded")
	for i, name := range c.PassOverrideHeaders {
		if !gateway.Overrides(name) || !fieldName.MatchString(name) {
			check.wrong(fmt.Sprintf("pass_override_headers[%d]", i), name,
				"the name of a header that would be left out, such as X-HTTP-Method-Override")
		}
	}
	check.oneOf("unknown", c.Unknown, "reject", "limit")
	check.oneOf("no_rule", c.NoRule, "allow", "deny")
	check.oneOf("credentials", c.Credentials, "all", "first")
	check.oneOf("bad_credentials", c.BadCredentials, "ignore", "reject")
	check.oneOf("retry_after", c.RetryAfter, "truth", "spaced", "reserved")
	check.profile(c.Endpoint)
	check.oneOf("headers.draft", c.Headers.Draft, "draft-10", "draft-11", "proposal-166", "draft-07",
		"draft-06", "draft-03")
	check.oneOf("headers.rules", c.Headers.Rules, "all", "binding")
	check.oneOf("headers.legacy", c.Headers.Legacy, "none", "delta", "epoch", "iso8601", "draft-03")
	check.oneOf("log.format", c.Log.Format, "text", "json")
	check.database(c)
	check.staleness(c)
	check.fleet(c.Fleet)
	check.autoRevert(c)
	check.store(c.Store)
	check.gossip(c.Gossip)
	check.keys(c.Keys)
	check.keysBesideTokens(c.Keys, c.Tokens)
	check.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	check.between("ipv6_prefix", int64(c.IPv6Prefix), 1, 128)
	check.between("burst_percent", c.BurstPercent, 100, 1_000_000)
	check.between("max_buckets", int64(c.MaxBuckets), 1, 1<<30)
	check.bytes(c)
	check.waiting(c)
	check.settle(c.Settle)
	check.identifiers(c.Identifiers)
	check.languageModels(c.LanguageModels)
	check.adaptive(c)
	check.calls(c)
	check.byteCounts(c)
	check.graphQL(c)
	check.tokens(c.Tokens)
	check.signedAgents(c.SignedAgents)
	check.origins(c)
	check.tls(c.TLS)
	check.developers(c.Developers, c.Usage)
	check.activity(c.Activity)
	check.decisionLog(c.DecisionLog)
	check.anomalies(c.Anomalies)
	check.warnings(c)
	check.traces(c.Traces)
	check.servers(c)
	check.oneOf("engine", c.Engine, "net/http", "fast", "auto")
	check.duration("upstream_timeout", c.UpstreamTimeout, time.Millisecond, 24*time.Hour)
	check.duration("state_interval", c.StateInterval, 100*time.Millisecond, time.Hour)
	check.duration("refresh", c.Refresh, time.Millisecond, time.Hour)
	check.duration("shutdown_timeout", c.ShutdownTimeout, time.Millisecond, 24*time.Hour)
	check.countWhen(c)
	check.priority(c)
	check.messages(c)
	for endpoint, cost := range c.Costs {
		if cost < 0 {
			check.wrong("costs["+endpoint+"]", fmt.Sprint(cost), "0 or more")
		}
	}
}

// ParsePrefix reads a network, or an address as a network of one. An
// IPv4-mapped address is read as the IPv4 address it stands for.
func ParsePrefix(value string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(value); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return netip.Prefix{}, err
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s reaches beyond the IPv4-mapped addresses", value)
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

// Loopback reports whether address can only be reached from this machine.
func Loopback(address string) bool {
	if address == NoGateway {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
