package main

import (
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
)

// confused reports whether the route that served is not the endpoint that paid. HEAD is served by the route of GET.
func confused(r request, a answer, finder *body.Finder) bool {
	switch {
	case a.status == 0 || a.charged == "":
		return false // nothing was let through
	case a.strange:
		return true
	case !a.reached():
		return false
	case a.route != a.charged:
		return true
	case a.method != "" && a.method != r.method:
		return true
	}
	return a.route == "POST /login" && anotherUser(r, a, finder)
}

// anotherUser reports whether the server read another account in a form than the gateway does.
// Where the gateway finds none, the request meets the strict path, or is refused.
func anotherUser(r request, a answer, finder *body.Finder) bool {
	_, query, _ := strings.Cut(r.target, "?")
	id, fault := finder.Find(nil, body.Form, query, []byte(r.form))
	if fault != body.None || a.user == "" {
		return false
	}
	return a.user != string(id) && inLatin1(a.user) != string(id)
}

// inLatin1 returns the bytes that a text stands for where each byte was read as a character, as
// servlets read forms unless told otherwise. They are the account's: no two accounts become one by
// that.
func inLatin1(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xFF {
			return text
		}
		b = append(b, byte(r))
	}
	return string(b)
}

func newFinder() (*body.Finder, error) {
	return body.New(body.Field{Name: "user", Format: body.Form, Spellings: body.Exact})
}

// offline judges answers that a server gave without a gateway: what would have paid under a profile.
func offline(table *endpoint.Table, r request, a answer) answer {
	m := table.Match(r.method, r.target)
	switch m.Status {
	case endpoint.Invalid:
		a.status = 0
	case endpoint.Known:
		a.charged = table.Template(m.ID).String()
	default:
		a.charged = "UNKNOWN"
	}
	return a
}

// result is what became of the requests to one server through a gateway.
type result struct {
	sent, through, served int   // requests, those let through, and those of them that a route served
	admitted, seen        int64 // decisions that let a request through, and answers of the server
	failures              []string
	routes                map[string]int // how many each route served
}

// through sends n requests of a grammar to the gateway f before a server. Failures are shrunk.
func through(f *front, g *grammar, n int, progress func(done int)) (result, error) {
	finder, err := newFinder()
	if err != nil {
		return result{}, err
	}
	res := result{routes: make(map[string]int)}
	const chunk = 1 << 14 // the last of each may have to be waited for
	for res.sent < n {
		requests := make([]request, min(chunk, n-res.sent))
		for i := range requests {
			requests[i] = g.request()
		}
		window := frontWindow
		if f.fast != nil && res.sent/chunk%2 == 0 {
			window = 0 // a connection for each: behind one request that is not plain no other is
		}
		for i, a := range askBy(frontClients, f.addr, window, requests) {
			res.sent++
			if a.charged != "" {
				res.through++
			}
			if a.reached() {
				res.served++
				res.routes[a.route]++
			}
			if confused(requests[i], a, finder) && len(res.failures) < 10 {
				r := requests[i]
				again := func(target string) (answer, bool) {
					less := request{method: r.method, target: target, form: r.form}
					got := ask(f.addr, 1, []request{less})[0]
					return got, target != "" && !strings.ContainsAny(target, " \r\n") && confused(less, got, finder)
				}
				r.target = shrink(r.target, 200, func(t string) bool { _, bad := again(t); return bad })
				got, bad := again(r.target)
				if !bad {
					got = a // it does not happen alone
				}
				res.failures = append(res.failures, describe(r, got))
			}
		}
		progress(res.sent)
	}
	res.admitted, res.seen = f.settled()
	return res, nil
}

// direct sends n requests of a grammar to a server itself and returns those that a route served.
func direct(addr string, s server, g *grammar, n int, progress func(done int)) (requests []request, answers []answer) {
	const chunk = 1 << 14 // the last of each may have to be waited for
	for sent := 0; sent < n; {
		some := make([]request, min(chunk, n-sent))
		for i := range some {
			some[i] = g.request()
		}
		for i, a := range ask(addr, s.window, some) {
			if a.reached() && !a.strange {
				requests, answers = append(requests, some[i]), append(answers, a)
			}
		}
		sent += len(some)
		progress(sent)
	}
	return requests, answers
}

// wrongUnder returns a request that a profile counts as another endpoint than the server served it as, or "".
func wrongUnder(p endpoint.Profile, requests []request, answers []answer) (string, error) {
	table, err := compile(p)
	if err != nil {
		return "", err
	}
	finder, err := newFinder()
	if err != nil {
		return "", err
	}
	for i, r := range requests {
		if a := offline(table, r, answers[i]); confused(r, a, finder) {
			return describe(r, a), nil
		}
	}
	return "", nil
}

var errConfused = fmt.Errorf("requests were served by one route on the budget of another, or were not counted")
