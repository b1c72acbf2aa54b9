package main

import (
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

// TestQuickGarden is the garden without the servers that Maven builds, and with few requests. `make
// long` asks all of them, and more.
func TestQuickGarden(t *testing.T) {
	seed := rand.Uint64()
	for _, s := range all {
		if s.quick() {
			t.Run(s.kind, func(t *testing.T) {
				t.Parallel()
				walk(t, s.kind, 600, seed)
			})
		}
	}
}

func walk(t *testing.T, kind string, n int, seed uint64) {
	t.Helper()
	s, ok := find(kind)
	if !ok {
		t.Fatalf("no server of kind %q", kind)
	}
	r, err := visit(s, options{n: n, seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range r.failures {
		t.Errorf("seed %d: %s", seed, failure)
	}
	if r.served < r.direct/10 || r.counted < r.through/20 || r.profiles == 0 || r.framed < 50 {
		t.Errorf("%d of %d served, %d of %d let through, %d profiles, %d framed: want more of each", r.served, r.direct,
			r.counted, r.through, r.profiles, r.framed)
	}
}

// TestGardenSeesConfusion: before a server that takes // and dots as they come, the profile of another one shows.
func TestGardenSeesConfusion(t *testing.T) {
	s, _ := find("chi")
	addr, stop, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	f, err := newFront(addr, endpoint.Profile{Params: endpoint.StripParams})
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	g, err := newGrammar(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	res, err := through(f, g, 4096, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.failures) == 0 {
		t.Error("no request was confused under params: strip before chi, want some")
	}
	// What is shown is as short as it gets.
	if shortest := slices.MinFunc(res.failures,
		func(a, b string) int { return len(a) - len(b) }); !strings.Contains(shortest, "GET /") || len(shortest) > 250 {
		t.Errorf("a failure is shown as %s, want a short request", shortest)
	}
}

// TestRelayCountsAnswers counts status lines however they are cut, and not those of 100 Continue.
func TestRelayCountsAnswers(t *testing.T) {
	text := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not Found\r\n" +
		"\r\nHTTP/1.1 204 No Content\r\n\r\n"
	for size := 1; size <= len(text); size++ {
		var f front
		f.relay = &relay{}
		in := &counted{Reader: &inPieces{strings.NewReader(text), size}, answers: &f.relay.answers}
		if _, err := io.Copy(io.Discard, in); err != nil {
			t.Fatal(err)
		}
		if got := f.relay.answers.Load(); got != 3 {
			t.Errorf("in pieces of %d bytes: %d answers, want 3", size, got)
		}
	}
}

type inPieces struct {
	io.Reader
	size int
}

func (p *inPieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(p.size, len(b))]) }

// TestExploits sends what was seen to get past a budget: none is served by one route on the budget
// of another, nor by an undeclared one.
func TestExploits(t *testing.T) {
	for kind, targets := range map[string][]string{
		"nginx": {"/v1/items/;7", "/v1/items/search;x", "/rpc?%61ction=login", "/rpc?action=LOGIN",
			"/v1/items/a%2Fb", "/public/"},
		"go": {"/v1/items/;7", "/v1/items/%2e%2e", "x:/v1/exports?://z/v1/items/1", "x:http://h/v1/exports",
			"a+b:/v1/exports", "https:v1/exports"},
		"chi":  {"/v1/items/;7", "/v1/items/%73earch", "/v1//items", "/v1/items/%2e%2e/exports"},
		"echo": {"/v1/items/", "/v1/items//parts/3"},
	} {
		s, _ := find(kind)
		check(t, s, targets)
	}
}

// check sends targets through the gateway under its defaults.
func check(t *testing.T, s server, targets []string) {
	t.Helper()
	addr, stop, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	f, err := newFront(addr, endpoint.Strictest())
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	finder, err := newFinder()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		r := request{method: "GET", target: target}
		if form, ok := strings.CutPrefix(target, "form:"); ok {
			r = request{method: "POST", target: "/login", form: form}
		}
		if a := ask(f.addr, 1, []request{r})[0]; confused(r, a, finder) || a.reached() && r.form == "" {
			t.Errorf("%s: %s, want it refused", s.kind, describe(r, a))
		}
	}
	if admitted, seen := f.settled(); seen > admitted {
		t.Errorf("%s: %d requests seen, %d let through", s.kind, seen, admitted)
	}
}

// A server that reads each byte of a form as a character means the same account; one that means other bytes does not.
func TestAccountsInLatin1(t *testing.T) {
	finder, err := newFinder()
	if err != nil {
		t.Fatal(err)
	}
	for user, other := range map[string]bool{
		"ev\uff49":             false,
		"ev\u00ef\u00bd\u0089": false,
		"evi":                  true,
		"ev\u00ef":             true,
		"ev?":                  true,
	} {
		r := request{method: "POST", target: "/login", form: "user=ev%ef%bd%89"}
		if got := anotherUser(r, answer{status: 200, route: "POST /login", user: user}, finder); got != other {
			t.Errorf("%q is another account: %v, want %v", user, got, other)
		}
	}
}
