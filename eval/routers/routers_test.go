package routers

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
)

// router serves each of its routes with the number of the route in the field Route.
type router func(routes []pattern.Route) http.Handler

func answer(w http.ResponseWriter, n int) { w.Header().Set("Route", fmt.Sprint(n)) }

func serveMux(routes []pattern.Route) http.Handler {
	mux := http.NewServeMux()
	for n, r := range routes {
		mux.HandleFunc(r.Pattern, func(w http.ResponseWriter, _ *http.Request) { answer(w, n) })
	}
	return mux
}

func chiRouter(routes []pattern.Route) http.Handler {
	mux := chi.NewRouter()
	for n, r := range routes {
		mux.MethodFunc(r.Method, r.Pattern, func(w http.ResponseWriter, _ *http.Request) { answer(w, n) })
	}
	return mux
}

func ginRouter(routes []pattern.Route) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	for n, r := range routes {
		engine.Handle(r.Method, r.Pattern, func(c *gin.Context) { answer(c.Writer, n) })
	}
	return engine
}

func echoRouter(routes []pattern.Route) http.Handler {
	e := echo.New()
	for n, r := range routes {
		e.Add(r.Method, r.Pattern, func(c echo.Context) error { answer(c.Response(), n); return nil })
	}
	return e
}

// get are routes of GET but where a method stands before the pattern.
func get(patterns ...string) (routes []pattern.Route) {
	for _, p := range patterns {
		method := "GET"
		if m, path, ok := strings.Cut(p, " "); ok {
			method, p = m, path
		}
		routes = append(routes, pattern.Route{Method: method, Pattern: p})
	}
	return routes
}

func mux(patterns ...string) (routes []pattern.Route) {
	for _, p := range patterns {
		routes = append(routes, pattern.Route{Pattern: p})
	}
	return routes
}

// sets are route sets for each router; shared names the routes of a set that one template stands for.
var sets = []struct {
	dialect pattern.Dialect
	serve   router
	routes  []pattern.Route
	shared  [][]string
	slash   bool // a slash at the end means the same as none here
}{
	{pattern.ServeMux, serveMux, mux("GET /{$}", "GET /users/{id}", "GET /users/new", "POST /users/{id}",
		"GET /users/{id}/files/{path...}", "GET /users/{id}/files/new", "/static/"), nil, false},
	{pattern.ServeMux, serveMux, mux("/", "GET /a", "GET /a/{x}", "GET /a/{x}/b", "GET /b/{y...}", "HEAD /a",
		"PUT /a/{x}"), nil, false},
	{pattern.ServeMux, serveMux, mux("GET /a%2Fb", "GET /{x}", "GET /a/{x}", "GET /%61/c", "GET /@me",
		"GET /caf%c3%a9"), nil, false},
	{pattern.ServeMux, serveMux, mux("GET /a", "GET /a/", "GET /b/{$}"), [][]string{{"GET /a", "GET /a/"}}, true},

	{pattern.Chi, chiRouter, get("/", "/users/{id}", "/users/new", "POST /users/{id}", "POST /users/new",
		"/users/{id}/files/*", "/users/{id}/files/new", "/a-{x}", "/*"), nil, false},
	{pattern.Chi, chiRouter, get("/users/{id:[0-9]+}", "/users/{slug:[a-z]+}", "/users/new", "/a/{x}/c", "/{a}/{b}/c"),
		[][]string{{"/users/{id:[0-9]+}", "/users/{slug:[a-z]+}"}}, false},
	{pattern.Chi, chiRouter, get("/b/{from}-{to}", "/b/{id}.json/x", "/b/v{n}", "/b/v1", "/{x}/b/c", "/a/{y}"), nil,
		false},

	{pattern.Gin, ginRouter, get("/", "/users/:id", "/users/new", "POST /users/:id", "/users/:id/files/*path",
		"PUT /a/b", "/a/:x", "/a/:x/b", "/a/b/c", "/b_:x"), nil, false},
	{pattern.Gin, ginRouter, get("/:a/b", "/a/:b", "/a/:b/c", "/a/b/:c", "/users/new/:x", "/users/:id/b", "/c/:x.json"),
		nil, false},
	{pattern.Gin, ginRouter, get("/a/*rest", "/b/:x/*rest", "/caf\u00e9/:x", "/@me", "/:x"), nil, false},

	{pattern.Echo, echoRouter, get("/", "/users/:id", "/users/new", "POST /users/new", "/users/:id/files/*",
		"/users/:id/files/new", "/a/*"), nil, false},
	{pattern.Echo, echoRouter, get("/users/:id", "/users/new", "/users/new/x", "/a/:x", "/a/b/c", "/:x/b"), nil, false},
	{pattern.Echo, echoRouter, get("/a/:x/b", "/a/b", "PUT /a/:y", "/:a/:b/c", "/*"), nil, false},
}

var fragments = []string{
	"users", "new", "a", "b", "c", "files", "x", "7", "static", "v1", "v2", "a-b", "1-2", "b_x", "b_", "x.json",
	"a.b.json", "@me", "caf%C3%A9", "caf%c3%a9", "cafe",
	"%6Eew", "n%65w", "%40me", "a%2Fb", "%2F", "..", ".", "%2e%2e", "%2E", "", "", "a;x", ";x", "new;v=1", "%3Bx",
	"a%20b", "A", "NEW", "%25", "%2561", "%C0%AF", "a..b", "*", ":id", "{id}", "~",
}

func target(random *rand.Rand, plain []string) string {
	var b strings.Builder
	for range 1 + random.IntN(5) {
		b.WriteByte('/')
		// Mostly what the patterns hold, so that many requests are served.
		if n := random.IntN(4); n > 0 {
			b.WriteString(plain[random.IntN(len(plain))])
		} else {
			b.WriteString(fragments[random.IntN(len(fragments))])
		}
	}
	b.WriteString([]string{"", "", "", "/", "?q=1"}[random.IntN(5)])
	return b.String()
}

// route returns the number of the route that handler serves a raw request with, or -1.
func route(t *testing.T, handler http.Handler, method, target string) int {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target +
		" HTTP/1.1\r\nHost: example.com\r\n\r\n")))
	if err != nil {
		return -1 // no server would pass it on
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	n := -1
	if _, err := fmt.Sscan(w.Header().Get("Route"), &n); err != nil && err != io.EOF && w.Header().Get("Route") != "" {
		t.Fatal(err)
	}
	return n
}

// TestRoutersAgree sends requests to every router under its profile. Each that is served must be
// known, by a template that no other route is served under; so nobody is served by one route on
// another's budget.
func TestRoutersAgree(t *testing.T) {
	for i, set := range sets {
		t.Run(fmt.Sprintf("%d %s", i, set.dialect), func(t *testing.T) {
			templates, err := set.dialect.Templates(set.routes...)
			if err != nil {
				t.Fatal(err)
			}
			table, err := set.dialect.Table(set.routes...)
			if err != nil {
				t.Fatal(err)
			}
			handler := set.serve(set.routes)
			random := rand.New(rand.NewPCG(uint64(i), 7))
			plain := []string{"7", "x", "x", "a-b", "v2", "x.json", "b_x"}
			for _, r := range set.routes {
				for text := range strings.SplitSeq(r.Pattern[strings.IndexByte(r.Pattern, '/')+1:], "/") {
					if !strings.ContainsAny(text, "{:*") {
						plain = append(plain, text)
					}
				}
			}
			servedBy := make(map[endpoint.ID]int)
			reached := make(map[int]bool)
			served, seed := 0, []string{"/", "/users/", "/a", "/a/", "/b"}
			for _, r := range set.routes {
				if !strings.ContainsAny(r.Pattern, "{:*") {
					seed = append(seed, r.Pattern[strings.IndexByte(r.Pattern, '/'):])
				}
			}
			for n := range 30_000 {
				method, target := []string{"GET", "GET", "GET", "POST", "PUT", "HEAD"}[random.IntN(6)],
					target(random, plain)
				if n < len(seed)*6 {
					target = seed[n%len(seed)]
				}
				route := route(t, handler, method, target)
				m := table.Match(method, target)
				if route < 0 || m.Status == endpoint.Invalid {
					continue
				}
				served++
				reached[route] = true
				if m.Status != endpoint.Known {
					if emptyParameter(set.routes[route].Pattern, target) {
						continue
					}
					t.Fatalf("%s %s is served by %q, want it known, not %v; templates %q", method, target,
						set.routes[route].Pattern, m.Status, templates)
				}
				first, ok := servedBy[m.ID]
				if !ok {
					servedBy[m.ID] = route
				} else if first != route && !share(set.shared, set.routes[first].Pattern, set.routes[route].Pattern) {
					t.Fatalf("%s %s is served by %q on the budget of %q, which serves %q; templates %q",
						method, target, set.routes[route].Pattern, table.Template(m.ID),
						set.routes[first].Pattern, templates)
				}
			}
			for n, r := range set.routes {
				if !reached[n] {
					t.Errorf("no request reached %q, want one that does", r.Pattern)
				}
			}
			if served < 200 {
				t.Errorf("%d requests served, want 200 or more", served)
			}
		})
	}
}

func share(groups [][]string, a, b string) bool {
	return slices.ContainsFunc(groups, func(g []string) bool { return slices.Contains(g, a) && slices.Contains(g, b) })
}

// emptyParameter reports whether a parameter with text before it is empty in target, as /b_ for /b_:x. Templates do
// not take that; docs/routers.md says so.
func emptyParameter(p, target string) bool {
	before, _, ok := strings.Cut(p, "_:")
	return ok && strings.Contains(target+"/", before+"_/")
}
