package readers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/internal/streams"
)

// marker follows what was taken: it is the next request if that ended where it was thought to.
const marker = "GET /marker HTTP/1.1\r\nHost: marker\r\n\r\n"

var behind = Read{Method: "GET", Target: "/marker", Host: "marker"}

// plain makes n streams and returns those that begin with plain requests, with a request behind them.
func plain(seed uint64, n int) (all []Plain) {
	e := NewEngine()
	defer e.Close()
	r := rand.New(rand.NewPCG(seed, 19))
	var stream []byte
	for range n {
		stream = streams.Mutated(r, stream)
		p, ok := e.Read(append(bytes.Clone(stream), marker...))
		if !ok {
			continue
		}
		if !p.Closed {
			p.Stream = append(bytes.Clone(p.Stream), marker...)
			p.Read = append(p.Read, behind)
		}
		all = append(all, p)
	}
	return all
}

// disagreements are where a reader reads plain requests in another way, and how many it refuses.
func disagreements(t *testing.T, r Reader, all []Plain) (found []string, refused int) {
	t.Helper()
	texts := make([][]byte, len(all))
	for i, p := range all {
		texts[i] = p.Stream
	}
	read, err := r.Read(texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		got, want := read[i], slices.Clone(p.Read)
		if len(got) < len(want) { // it goes no further, and what it refuses it does not serve
			refused++
			want = want[:len(got)]
		}
		if p.Closed && len(got) > len(want) && r.Name == "llhttp" && bytes.Contains(p.Stream, []byte("close\t\r\n")) {
			// It sees no close that a tab follows, and reads on. Here nothing behind it is read, and the field goes
			// to no server.
			got = got[:len(want)]
		}
		if r.Same != nil {
			for j := range got {
				got[j] = r.Same(got[j])
			}
			for j := range want {
				want[j] = r.Same(want[j])
			}
		}
		if !slices.EqualFunc(got, want, func(a, b Read) bool { return reflect.DeepEqual(a, b) }) {
			found = append(found, fmt.Sprintf("%q is read as\n%+q\nby %s as\n%+q", p.Stream, want, r.Name, got))
		}
	}
	return found, refused
}

// agree fails where a reader reads one of n streams in another way, or refuses many.
func agree(t *testing.T, seed uint64, n int) {
	t.Helper()
	all := plain(seed, n)
	if len(all) < n/20 {
		t.Fatalf("%d of %d streams begin with plain requests: the comparison compares nothing", len(all), n)
	}
	for _, r := range All {
		found, refused := disagreements(t, r, all)
		for _, text := range found[:min(len(found), 10)] {
			t.Errorf("seed %d: %s", seed, text)
		}
		if refused > len(all)/50 {
			t.Errorf("seed %d: %s refuses %d of %d, want few", seed, r.Name, refused, len(all))
		}
		t.Logf("%s: %d plain, %d read in another way, %d refused", r.Name, len(all), len(found), refused)
	}
}

// What is plain, fasthttp and llhttp read in the same way, or refuse: method, target, Host, fields, body, and where the
// next request begins.
func TestReadersAgree(t *testing.T) { agree(t, 1, 30_000) }

// The comparison notices what is read in another way, and what is read beyond the end.
func TestDisagreementsAreSeen(t *testing.T) {
	all := plain(2, 2000)
	for _, r := range All {
		for name, change := range map[string]func(*Plain){
			"target": func(p *Plain) { p.Read[0].Target += "x" },
			"Host":   func(p *Plain) { p.Read[0].Host += "x" },
			"body":   func(p *Plain) { p.Read[0].Body += "x" },
			"fields": func(p *Plain) { p.Read[0].Fields = append(p.Read[0].Fields, "x: y") },
			"end":    func(p *Plain) { p.Read = p.Read[:len(p.Read)-1] },
		} {
			p := all[0]
			p.Read = slices.Clone(p.Read)
			change(&p)
			if found, _ := disagreements(t, r, []Plain{p}); len(found) != 1 {
				t.Errorf("%s: another %s is not seen", r.Name, name)
			}
		}
	}
}
