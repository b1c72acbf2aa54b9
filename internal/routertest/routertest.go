// Package routertest is what middleware for a router of Go has to do, as tests: of
// each framework that there is one for, with the framework itself.
package routertest

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

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
)

// Router is a framework and its middleware.
type Router struct {
	// Name is that of the framework, in docs/doors.md.
	Name string

	// Statuses are those by which a protocol refuses, in place of HTTP's. A GET is then charged as a POST. Nil is HTTP.
	Statuses map[int]int

	// Item, Fixed and Rest are routes of GET as the framework writes them: of one
	// item, of a fixed one beside it, and of whatever begins with /files/.
	Item, Fixed, Rest string

	// ReadsBodies says that the framework reads a body before it calls anybody, so that a refusal waits for it.
	ReadsBodies bool

	// InOrder says that the first route that fits serves, so that Fixed stands before Item.
	InOrder bool

	// Charged are the paths of the templates that requests of a route are charged as,
	// the first of Item's being that of its rule.
	Charged map[string][]string

	// Start makes a program whose routes, which are all of these, answer with their own
	// text. Its middleware stands before them, and who tells it who is logged in.
	Start func(routes []string, who func(*http.Request) *identity.User) Program
}

// Program is what a user of the middleware writes.
type Program struct {
	Handler http.Handler             // nil where Serve is set
	Serve   func(net.Listener) error // until the listener is closed
	Open    func(headgate.Options) (*headgate.Limiter, error)
}

// Run tests that the middleware keeps its word.
func Run(t *testing.T, r Router) {
	t.Run("Limits", r.limits)
	t.Run("ChargedIsServed", r.chargedIsServed)
	t.Run("Conforms", r.Conforms)
	if !r.ReadsBodies {
		t.Run("SlowBodies", r.slowBodies)
	}
}

func (r *Router) routes() []string {
	if r.InOrder {
		return []string{r.Fixed, r.Item, r.Rest}
	}
	return []string{r.Item, r.Fixed, r.Rest}
}

// who is the session of the program: a field that it believes.
func who(r *http.Request) *identity.User {
	if name := r.Header.Get("Session"); name != "" {
		return &identity.User{ID: name}
	}
	return nil
}

func (r *Router) start(t *testing.T) (p Program, at string) {
	t.Helper()
	p = r.Start(r.routes(), who)
	if p.Serve != nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- p.Serve(l) }()
		t.Cleanup(func() { _ = l.Close(); <-served })
		return p, l.Addr().String()
	}
	server := httptest.NewServer(p.Handler)
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

// Before it is open nothing passes; then each user has a budget, and each address for whoever is
// not logged in.
func (r *Router) limits(t *testing.T) {
	p, at := r.start(t)
	if got, body := send(t, at, "GET", "/items/1"); got.StatusCode != 503 || got.Header.Get("Retry-After") != "5" {
		t.Errorf("before it is open: %d %s", got.StatusCode, body)
	}
	rule := "GET " + r.Charged[r.Item][0]
	if _, err := p.Open(headgate.Options{Rules: []string{rule + " 2/h", "default 100/h"}}); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "ann", "bob"} {
		var fields []string
		if user != "" {
			fields = []string{"Session: " + user}
		}
		for i, want := range []int{200, 200, 429} {
			got, body := send(t, at, "GET", fmt.Sprintf("/items/%d", i), fields...)
			left := fmt.Sprintf(`"%s";r=%d;`, rule, max(0, 1-i))
			said := got.Header.Get("RateLimit")
			if got.StatusCode != want || !strings.HasPrefix(said, left) || (body == r.Item) != (want == 200) {
				t.Errorf("request %d of %q: %d with RateLimit %s, %q; want %d with %s", i, user, got.StatusCode, said,
					body, want, left)
			}
			problem := got.Header.Get("Content-Type") == "application/problem+json" &&
				got.Header.Get("Retry-After") != ""
			if problem != (want == 429) {
				t.Errorf("%d has %v and %q", want, got.Header, body)
			}
		}
	}
	for target, want := range map[string]int{"/nothing": 404, "/items/1?x=1": 429} {
		if got, _ := send(t, at, "GET", target); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, got.StatusCode, want)
		}
	}
	if got, _ := send(t, at, "DELETE", "/items/1"); got.StatusCode != 405 || got.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: %d, allowed is %q", got.StatusCode, got.Header.Get("Allow"))
	}
}

// A refusal does not wait for a body that does not come.
func (r *Router) slowBodies(t *testing.T) {
	p, at := r.start(t)
	if _, err := p.Open(headgate.Options{Rules: []string{"default 1/h"}}); err != nil {
		t.Fatal(err)
	}
	send(t, at, "GET", "/items/1")
	if got, body := send(t, at, "GET", "/items/1", "Content-Length: 100"); got.StatusCode != 429 || !got.Close {
		t.Errorf("%d %s, with the connection closed %v", got.StatusCode, body, got.Close)
	}
}

// Whatever the spelling, the route that serves is the one that was charged.
func (r *Router) chargedIsServed(t *testing.T) {
	p, at := r.start(t)
	rules := []string{"default 1000/h"}
	for _, templates := range r.Charged {
		for _, path := range templates {
			rules = append(rules, "GET "+path+" 1000/h")
		}
	}
	if _, err := p.Open(headgate.Options{Rules: rules}); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"/items/1", "/items/", "/items", "//items/1", "/items//1", "/./items/1", "/x/../items/1",
		"/items/%31", "/%69tems/1",
		"/items/1/", "/items/a%2fb", "/items/%2e%2e", "/items/..", "/items/new", "/items/NEW", "/Items/new",
		"/items/n%65w",
		"/items/new/", "/files/", "/files", "/files/a", "/files/a/b", "/files//a", "/files/../items/1",
		"/files/%2e%2e/items/1",
		"/files/a%2fb", "/files/;x", "/items/1;x=1", "/items/;x", "/items/%00", "/items/%zz",
		"/items/%c3%a9", "/items/é",
		"/items/1#f", "/items/%25", "/items/1?", "http://h/items/1", "http://h", "*", "/items/\\..\\1",
	} {
		got, body := send(t, at, "GET", target)
		if got.StatusCode != 200 {
			continue
		}
		charged, _, _ := strings.Cut(strings.TrimPrefix(got.Header.Get("RateLimit"), `"GET `), `"`)
		if !slices.Contains(r.Charged[body], charged) {
			t.Errorf("%s was charged as %s and served by %s", target, charged, body)
		}
	}
	for target, route := range map[string]string{
		"/items/1": r.Item, "/items/new": r.Fixed, "/files/a": r.Rest, "/files/a/b": r.Rest, "/files/": r.Rest,
		"/files/a/": r.Rest, "/files/a/b/?x=1": r.Rest, // a folder, as file servers have them
	} {
		if got, body := send(t, at, "GET", target); got.StatusCode != 200 || body != route {
			t.Errorf("%s: %d %q, want it served by %s", target, got.StatusCode, body, route)
		}
	}
}
