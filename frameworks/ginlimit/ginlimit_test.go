package ginlimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/ginlimit"
	"github.com/headgate-io/headgate/identity"
)

// routes are those of the program; rules give each a limit of its own, and a name by which it is charged.
var routes = []string{"/items/:id", "/items/new", "/files/*path"}

var rules = []string{"GET /items/{id} 1000/h", "GET /items/new 1000/h", "GET /files/{path...} 1000/h", "GET /files 1000/h", "default 1000/h"}

// who is the session of the program: a field that it believes.
func who(r *http.Request) *identity.User {
	if name := r.Header.Get("Session"); name != "" {
		return &identity.User{ID: name}
	}
	return nil
}

// want says which endpoints a route is charged as.
var want = map[string][]string{"/items/:id": {"/items/{id}"}, "/items/new": {"/items/new"}, "/files/*path": {"/files/{path...}", "/files"}}

// program is what a user writes.
type program struct {
	engine *gin.Engine
	limits *ginlimit.Middleware
}

func (p program) open(o headgate.Options) (*headgate.Limiter, error) {
	return p.limits.Open(p.engine, o)
}

func start(t *testing.T) (program, string) {
	t.Helper()
	gin.SetMode(gin.ReleaseMode)
	p := program{gin.New(), ginlimit.New(ginlimit.Options{User: func(c *gin.Context) *identity.User { return who(c.Request) }})}
	p.engine.HandleMethodNotAllowed = true
	p.engine.Use(p.limits.Handle)
	for _, route := range routes {
		p.engine.GET(route, func(c *gin.Context) { c.String(http.StatusOK, c.FullPath()) })
	}
	server := httptest.NewServer(p.engine)
	t.Cleanup(server.Close)
	return p, server.Listener.Addr().String()
}

// send sends a target as it stands, and returns the answer with its body.
func send(t *testing.T, at, method, target string, fields ...string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := method + " " + target + " HTTP/1.1\r\nHost: h\r\n"
	for _, f := range fields {
		text += f + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// Before it is open nothing passes; then each user has a budget, and each address for whoever is not logged in.
func TestLimits(t *testing.T) {
	p, server := start(t)
	if r, body := send(t, server, "GET", "/items/1"); r.StatusCode != 503 || r.Header.Get("Retry-After") != "5" {
		t.Errorf("before it is open: %d %s", r.StatusCode, body)
	}
	if _, err := p.open(headgate.Options{Rules: []string{"GET /items/{id} 2/h", "default 100/h"}}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "ann", "bob"} {
		var fields []string
		if user != "" {
			fields = []string{"Session: " + user}
		}
		for i, want := range []int{200, 200, 429} {
			r, body := send(t, server, "GET", fmt.Sprintf("/items/%d", i), fields...)
			left := fmt.Sprintf(`"GET /items/{id}";r=%d;`, max(0, 1-i))
			if r.StatusCode != want || !strings.HasPrefix(r.Header.Get("RateLimit"), left) || (body == "/items/:id") != (want == 200) {
				t.Errorf("request %d of %q: %d with RateLimit %s, %q; want %d with %s", i, user, r.StatusCode, r.Header.Get("RateLimit"), body, want, left)
			}
			if want == 429 && (r.Header.Get("Content-Type") != "application/problem+json" || r.Header.Get("Retry-After") == "") {
				t.Errorf("a refusal has %v and %q", r.Header, body)
			}
		}
	}
	// A body that does not come holds nothing up.
	if r, body := send(t, server, "GET", "/items/1", "Content-Length: 100"); r.StatusCode != 429 || !r.Close {
		t.Errorf("a refusal without the body that was announced: %d %s, with the connection closed %v", r.StatusCode, body, r.Close)
	}
	for target, want := range map[string]int{"/nothing": 404, "/items/1?x=1": 429} {
		if r, _ := send(t, server, "GET", target); r.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, r.StatusCode, want)
		}
	}
	if r, _ := send(t, server, "DELETE", "/items/1"); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %d, allowed is %q", r.StatusCode, r.Header.Get("Allow"))
	}
}

// Whatever the spelling, the route that serves is the one that was charged.
func TestChargedIsServed(t *testing.T) {
	p, server := start(t)
	lim, err := p.open(headgate.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	if n := lim.Endpoints().Len(); n < len(routes) {
		t.Errorf("%d endpoints, want one for each route at least", n)
	}
	served := map[string]int{}
	for _, target := range []string{
		"/items/1", "/items/", "/items", "//items/1", "/items//1", "/./items/1", "/x/../items/1", "/items/%31", "/%69tems/1", "/items/1/", "/items/a%2fb", "/items/%2e%2e", "/items/..",
		"/items/new", "/items/NEW", "/Items/new", "/items/n%65w", "/items/new/", "/files/", "/files", "/files/a", "/files/a/b", "/files//a", "/files/../items/1", "/files/%2e%2e/items/1", "/files/a%2fb",
		"/files/;x", "/items/1;x=1", "/items/;x", "/items/%00", "/items/%zz", "/items/%c3%a9", "/items/é", "/items/1#f", "/items/%25", "/items/1?", "http://h/items/1", "http://h", "*", "/items/\\..\\1",
	} {
		r, body := send(t, server, "GET", target)
		if r.StatusCode != 200 {
			continue
		}
		charged, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("RateLimit"), `"GET `), `"`)
		if served[body]++; want[body] == nil || !slices.Contains(want[body], charged) {
			t.Errorf("%s was charged as %s and served by %s", target, charged, body)
		}
	}
	for _, route := range routes {
		if served[route] == 0 {
			t.Errorf("no target was served by %s", route)
		}
	}
}

// A setting by which gin reads targets in another way is named, and so is every route that is no template.
func TestEndpointsNamesFaults(t *testing.T) {
	engine := gin.New()
	engine.UseRawPath = true
	engine.GET("/a/\\:b", func(*gin.Context) {})
	_, err := ginlimit.Endpoints(engine)
	if err == nil || !strings.Contains(err.Error(), "UseRawPath") || !strings.Contains(err.Error(), `"/a/\\:b"`) {
		t.Errorf("%v, want both faults", err)
	}
}
