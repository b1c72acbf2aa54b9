package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/attack"
)

// limit is what a setup is told to enforce: so many a second, and so many at once.
type limit struct{ rate, burst int64 }

// setup is a limiter, configured as its documentation says.
type setup struct {
	limiter, name string
	source        string // where its documentation shows this
	start         func(l *lab, lim limit) (url string, err error)
}

func (s setup) String() string {
	if s.name == "" {
		return s.limiter
	}
	return s.limiter + ", " + s.name
}

func (s setup) ours() bool { return s.limiter == "Headgate" }

// Headgate, as docs/gateway.md says.

// gate starts `headgate serve` for the endpoints in routes, with rules that are arguments of `headgate policy set`.
func gate(l *lab, routes []string, rules [][]string, args ...string) (string, error) {
	dir, err := l.folder()
	if err != nil {
		return "", err
	}
	return gateIn(l, dir, routes, rules, args...)
}

// gateIn is gate in a folder that may hold a database already.
func gateIn(l *lab, dir string, routes []string, rules [][]string, args ...string) (string, error) {
	file := filepath.Join(dir, "routes.txt")
	if err := os.WriteFile(file, []byte(strings.Join(routes, "\n")+"\n"), 0o600); err != nil {
		return "", err
	}
	for _, rule := range rules {
		if err := harness.Command(dir, append([]string{"policy", "set", "--db", "sqlite:headgate.db"},
			rule...)...); err != nil {
			return "", err
		}
	}
	g, err := harness.Start(dir, append([]string{"--upstream", l.api.URL, "--routes", file, "--trusted-proxy",
		proxy.String()}, args...)...)
	if err != nil {
		return "", err
	}
	l.atEnd(g.Kill)
	return g.URL, nil
}

// gateWith is gate with settings that stand in the configuration file alone.
func gateWith(l *lab, settings string, routes []string, rules [][]string) (string, error) {
	dir, err := l.folder()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return "", err
	}
	return gate(l, routes, rules, "--config", file)
}

func (lim limit) rule(endpoint string, more ...string) []string {
	return append([]string{endpoint, strconv.FormatInt(lim.rate, 10), "--burst", strconv.FormatInt(lim.burst, 10)},
		more...)
}

func headgateSetup(name string, routes []string, args ...string) setup {
	return setup{"Headgate", name, "[gateway](../gateway.md)", func(l *lab, lim limit) (string, error) {
		return gate(l, routes, [][]string{lim.rule("default"), lim.rule("UNKNOWN")}, args...)
	}}
}

// headgateKeys knows one API key.
var headgateKeys = setup{"Headgate", "an API key", "[API keys](../api-keys.md)",
	func(l *lab, lim limit) (string, error) {
		dir, err := l.folder()
		if err != nil {
			return "", err
		}
		key, err := harness.Output(dir, "key", "create", "--db", "sqlite:headgate.db", "--project", "acme",
			"--name", "attacker")
		if err != nil {
			return "", err
		}
		url, err := gateIn(l, dir, routes, [][]string{lim.rule("default"), lim.rule("UNKNOWN")})
		l.issue(url, attack.Field{Name: "X-Api-Key", Value: strings.TrimSpace(key)})
		return url, err
	}}

// holding is a setup before which a client has a valid credential.
func (s setup) holding(f attack.Field) setup {
	start := s.start
	s.start = func(l *lab, lim limit) (string, error) {
		url, err := start(l, lim)
		l.issue(url, f)
		return url, err
	}
	return s
}

// The Go libraries stand in a reverse proxy of the standard library, so that all limiters stand before the same API.

func goProxy(l *lab) http.Handler {
	to, err := url.Parse(l.api.URL)
	if err != nil {
		panic(err) // httptest made it
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 2 * workers},
	}
}

func (l *lab) serve(h http.Handler) (string, error) {
	server := httptest.NewServer(h)
	l.atEnd(server.Close)
	return server.URL, nil
}

// httprateSetup is httprate in a chi router, as its README says: uses are the middlewares in order.
func httprateSetup(name, source string, uses func(lim limit) []func(http.Handler) http.Handler) setup {
	return setup{"httprate", name, "README, " + source, func(l *lab, lim limit) (string, error) {
		r := chi.NewRouter()
		r.Use(uses(lim)...)
		r.Handle("/*", goProxy(l))
		return l.serve(r)
	}}
}

// routed is the same with the API's routes in chi, instead of a proxy for everything: what chi does not route is a 404.
var httprateRouted = setup{"httprate", "KeyByEndpoint and chi's own routes", "README, “Rate limit by IP and URL path”",
	func(l *lab, lim limit) (string, error) {
		r := chi.NewRouter()
		r.Use(xffKeyed(httprate.JoinKeys(clientIPKey, httprate.KeyByEndpoint))(lim)...)
		r.Method(http.MethodGet, "/v1/items/{id}", goProxy(l))
		return l.serve(r)
	}}

// window is the limit as httprate has it: the burst in the time that it takes to refill.
func (lim limit) window() (int, time.Duration) {
	return int(lim.burst), time.Duration(lim.burst) * time.Second / time.Duration(lim.rate)
}

// clientIPKey is the README's.
func clientIPKey(r *http.Request) (string, error) {
	return httprate.CanonicalizeIP(middleware.GetClientIP(r.Context())), nil
}

func xffKeyed(key httprate.KeyFunc) func(lim limit) []func(http.Handler) http.Handler {
	return func(lim limit) []func(http.Handler) http.Handler {
		n, per := lim.window()
		return []func(http.Handler) http.Handler{middleware.ClientIPFromXFF(proxy.String() + "/32"),
			httprate.LimitBy(n, per, key)}
	}
}

var (
	httprateIP = httprateSetup("ClientIPFromXFF", "“Rate limit by client IP behind a proxy”",
		xffKeyed(clientIPKey))
	httprateEndpoint = httprateSetup("ClientIPFromXFF and KeyByEndpoint", "“Rate limit by IP and URL path”",
		xffKeyed(httprate.JoinKeys(clientIPKey, httprate.KeyByEndpoint)))
	httprateHeader = httprateSetup("a header as the key",
		"“Rate limit by arbitrary keys” (“an oversimplified example”)", xffKeyed(func(r *http.Request) (string, error) {
			return r.Header.Get("X-Access-Token"), nil
		}))
	httprateRealIP = httprateSetup("LimitByRealIP (deprecated)", "before v0.16; now with a warning",
		func(lim limit) []func(http.Handler) http.Handler {
			n, per := lim.window()
			//lint:ignore SA1019 it is what programs that were not changed since use
			return []func(http.Handler) http.Handler{httprate.LimitByRealIP(n, per)}
		})
)

// tollboothSetup is tollbooth before a handler, as its README says.
func tollboothSetup(name, source string, configure func(*limiter.Limiter)) setup {
	return setup{"tollbooth", name, source, func(l *lab, lim limit) (string, error) {
		lmt := tollbooth.NewLimiter(float64(lim.rate), &limiter.ExpirableOptions{DefaultExpirationTTL: time.Hour}).
			SetBurst(int(lim.burst))
		configure(lmt)
		return l.serve(tollbooth.HTTPMiddleware(lmt)(goProxy(l)))
	}}
}

func lookup(name string) func(*limiter.Limiter) {
	return func(lmt *limiter.Limiter) { lmt.SetIPLookup(limiter.IPLookup{Name: name, IndexFromRight: 0}) }
}

var (
	tollboothAddr = tollboothSetup("RemoteAddr", "HTTPMiddleware's default", lookup("RemoteAddr"))
	tollboothXFF  = tollboothSetup("X-Forwarded-For", "README, “Customize your own message”",
		lookup("X-Forwarded-For"))
	tollboothReal   = tollboothSetup("X-Real-IP", "README, “Five Minute Tutorial”", lookup("X-Real-IP"))
	tollboothHeader = tollboothSetup("SetHeader", "README, “Limit request headers containing certain values”",
		func(lmt *limiter.Limiter) {
			lookup("RemoteAddr")(lmt)
			lmt.SetHeader("X-Access-Token", []string{"abc123", "xyz098"})
		})
)

// nginxSetup is nginx with limit_req; key is limit_req_zone's, location where limit_req stands.
func nginxSetup(name, source, key, location, zone string, more ...string) setup {
	return setup{"nginx limit_req", name, source, func(l *lab, lim limit) (string, error) {
		// the one above the rate, and burst more
		limitReq := fmt.Sprintf("limit_req zone=one burst=%d nodelay;", lim.burst-1)
		return startNginx(l, fmt.Sprintf("limit_req_zone %s zone=one:%s rate=%dr/s;", key, zone, lim.rate), location,
			strings.Join(append(more, limitReq), "\n"))
	}}
}

// checkKey has nginx refuse requests without a known key, as the article does.
const checkKey = "auth_request /_validate_apikey;"

const nginxDocs = "ngx_http_limit_req_module and ngx_http_realip_module, “Example Configuration”"

var (
	nginxAddr = nginxSetup("by address", nginxDocs, "$binary_remote_addr", "/", "10m")
	nginxURI  = nginxSetup("by address and $uri",
		"limit_req_zone: “key can contain text, variables, and their combination”",
		"$binary_remote_addr$uri", "/", "10m")
	nginxLocation = nginxSetup("by address, in a location", nginxDocs, "$binary_remote_addr", "/v1/items/", "10m")
	nginxTarget   = nginxSetup("by address and $request_uri",
		"limit_req_zone: “key can contain text, variables, and their combination”",
		"$binary_remote_addr$request_uri", "/", "10m")
	nginxKeyCheck = nginxSetup("by $http_apikey, keys checked", "“Deploying NGINX as an API Gateway”, parts 1 and 2",
		"$http_apikey", "/", "10m", checkKey)
	nginxKey = nginxSetup("by $http_apikey, keys not checked",
		"“Deploying NGINX as an API Gateway”, part 2, without the check of part 1", "$http_apikey", "/", "10m")
	nginxSmall = nginxSetup("by address, zone of 32k", nginxDocs, "$binary_remote_addr", "/", "32k")
)
