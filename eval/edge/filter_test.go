package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// keyed is what a door of the library and a module need to know the same keys.
type keyed struct {
	texts   []string
	records []identity.KeyRecord
	secret  []byte
}

func keysOf(t testing.TB, projects ...string) keyed {
	t.Helper()
	k := keyed{secret: []byte("a secret of thirty-two bytes, or more: 48 of them")}
	d, err := identity.NewDigester(k.secret)
	if err != nil {
		t.Fatal(err)
	}
	for i, project := range projects {
		text, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		k.texts = append(k.texts, text)
		k.records = append(k.records, identity.KeyRecord{Digest: d.Digest(text),
			Key: identity.Key{ID: fmt.Sprint("key", i), Project: project}})
	}
	return k
}

// expose is the field that names those which a browser's scripts may read.
const expose = "access-control-expose-headers"

// headless stands for the body that an answer to HEAD would have.
const headless = "headless"

// library is the same limiter as a handler of net/http, by a clock of its own.
type library struct {
	h   http.Handler
	now int64
}

// libraryOf finds who asks as o says, and by the keys.
func libraryOf(t testing.TB, set *policy.Set, k keyed, unknown headgate.UnknownMode, o identity.Options) *library {
	t.Helper()
	l := new(library)
	d, err := identity.NewDigester(k.secret)
	if err != nil {
		t.Fatal(err)
	}
	ring := new(identity.Keyring)
	if err := ring.Replace(k.records); err != nil {
		t.Fatal(err)
	}
	o.Keys, o.Digester, o.KeySources = ring, d, identity.KeySources{Header: "X-Api-Key"}
	who, err := identity.New(o)
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{Endpoints: set.Endpoints(), Policies: headgate.Fixed(set),
		Buckets: buckets, Identities: who, Unknown: unknown,
		Now: func() time.Time { return time.Unix(0, l.now) }})
	if err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})
	l.h = httplimit.Handler(lim, api, httplimit.Options{Methods: set.Endpoints().Allowed,
		Peer: func(r *http.Request) netip.Addr { a, _ := netip.ParseAddrPort(r.RemoteAddr); return a.Addr() }})
	return l
}

// ask is false for what net/http itself refuses to read, or reads as another target. fields are names and values.
func (l *library) ask(method, target, peer, apiKey string, fields ...string) (answered, bool) {
	raw := method + " " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return answered{}, false
	}
	if httplimit.Target(r) != target {
		return answered{}, false
	}
	r.RemoteAddr = peer
	if apiKey != "" {
		r.Header.Set("X-Api-Key", apiKey)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	l.h.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	a := answered{status: uint32(w.Code), body: string(body), fields: map[string]string{}}
	if a.status == http.StatusOK {
		a.status = 0
	}
	for name, values := range w.Result().Header {
		a.fields[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	delete(a.fields, "content-length") // the host writes it
	if method == http.MethodHead && a.status != 0 {
		a.body = headless // the host leaves it out
	}
	return a, true
}

func ruled(t testing.TB, lines ...string) (rules []policy.Rule) {
	t.Helper()
	for _, line := range lines {
		r, err := policy.ParseRule(line)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return rules
}

// document has rules of each subject, each level, and in shadow.
func document(t testing.TB) policy.Document {
	doc := policy.Document{Projects: map[string]string{"acme": "gold"}}
	doc.Rules = ruled(t, "default 7/s burst 9", "default 40/s by endpoint", "GET /v1/items/{id} 3/min burst 4 by ip",
		"POST /a/b 1000003/d burst 6 by principal_ip", "* 11/s burst 30 by site", "UNKNOWN 1/s burst 2 by ip",
		"GET /a 2/s burst 3", "GET /a/b 1/h burst 2 shadow", "GET /v1/items 5/s by project")
	more := ruled(t, "default 90/s burst 95", "GET /a 30/s burst 31", "default 13/s burst 14")
	more[0].Project, more[1].Tier, more[2].Tier = "acme", "gold", "gold"
	doc.Rules = append(doc.Rules, more...)
	doc.Rules[1].Name = `a "quoted" \name`
	return doc
}

// TestFilterAnswersAsTheLibrary sends the same requests at the same times through the filter, in a host of proxy-wasm,
// through the plain module, and through net/http middleware: statuses, fields and bodies are the same, to the byte.
func TestFilterAnswersAsTheLibrary(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	texts := corpus(t)
	seen, exposed := map[uint32]int{}, 0
	for n, p := range []endpoint.Profile{{}, endpoint.Strictest()} {
		for _, unknown := range []headgate.UnknownMode{headgate.RejectUnknown, headgate.LimitUnknown} {
			for _, shared := range [][]string{nil, {"*"}} {
				rng := rand.New(rand.NewPCG(*seed, uint64(n)))
				set := compile(t, tableOf(t, p, templates...), document(t))
				keys := keysOf(t, "acme", "acme", "umbrella", "")
				o := wasm.Options{Policies: set, Keys: keys.records, Secret: keys.secret, Shared: shared,
					RejectUnknown: unknown == headgate.RejectUnknown}
				lib := libraryOf(t, set, keys, unknown, identity.Options{})
				lib.now = 1e15
				w, ok := startFilter(t, o, newShared(), func() int64 { return lib.now })
				if !ok {
					t.Fatalf("the filter refuses to start: %q", w.logged)
				}
				plain := run(t, o)
				for range 1500 {
					lib.now += rng.Int64N(2e9) >> rng.IntN(30)
					method, target := anyRequest(rng, texts)
					peer, key := peers[rng.IntN(len(peers))], ""
					if rng.IntN(2) == 0 {
						key = keys.texts[rng.IntN(len(keys.texts))]
					}
					if rng.IntN(20) == 0 {
						key = "hg_not_a_key"
					}
					var fields []string
					if rng.IntN(4) == 0 { // a browser asks
						fields = []string{"origin", "https://shop.example"}
					}
					want, read := lib.ask(method, target, peer, key, fields...)
					if !read {
						continue
					}
					if key != "" {
						fields = append(fields, "x-api-key", key)
					}
					seen[want.status]++
					exposed += int(bit(want.fields[expose] != ""))
					said := fmt.Sprintf("%+v %v shared %v: %s %q from %s with %q at %d", p, unknown, shared, method,
						target, peer, key, lib.now)
					got := w.ask(method, target, peer, fields...)
					same(t, said+" in the filter", got, want)
					delete(want.fields, expose) // the program does that
					same(t, said+" in the plain module", plain.ask(method, target, peer, key, lib.now), want)
				}
			}
		}
	}
	t.Logf("answers by status, 0 for what passes: %v; %d name fields for browsers", seen, exposed)
	if exposed < 100 {
		t.Error("this shows too little of what browsers are told")
	}
	for _, status := range []uint32{0, 400, 404, 405, 429} {
		if seen[status] < 50 {
			t.Errorf("status %d: %d, which shows too little", status, seen[status])
		}
	}
}

var peers = []string{"192.0.2.7:1024", "192.0.2.8:9", "[2001:db8::1]:443", "[2001:db8::2]:443", "[2001:db8:0:1::2]:443",
	"[2001:db8:1::]:1", "[::ffff:192.0.2.7]:5"}

func anyRequest(rng *rand.Rand, texts []string) (method, target string) {
	method = methods[rng.IntN(len(methods)-2)]
	switch rng.IntN(8) {
	case 0:
		target = mutate(rng, texts)
	case 1:
		if rng.IntN(2) == 0 {
			return []string{"WS-SEND", "MCP", "MODEL"}[rng.IntN(3)], "/a"
		}
		target = "/none/of/them" // few others are unknown, and understood
	default:
		var path string
		method, path, _ = strings.Cut(templates[rng.IntN(12)], " ")
		target = fill(path, "x")
	}
	return method, target
}

func same(t testing.TB, said string, got, want answered) {
	t.Helper()
	if want.body == headless {
		want.body = got.body
	}
	if got.status != want.status || got.body != want.body || !maps.Equal(got.fields, want.fields) {
		t.Fatalf("%s:\ngot  %+v\nwant %+v", said, got, want)
	}
}

// ask is a request to the plain module.
func (p *plain) ask(method, target, peer, key string, now int64) answered {
	p.write(method, target, peer, key)
	status := p.call("decide", uint64(len(method)), uint64(len(target)), uint64(len(peer)), uint64(len(key)),
		uint64(now))
	a := answered{status: status, body: p.told(3), fields: map[string]string{}}
	if status != 0 {
		a.fields = map[string]string{"content-type": "application/problem+json", "cache-control": "no-store",
			"x-content-type-options": "nosniff"}
	}
	for n, name := range []string{"ratelimit", "ratelimit-policy"} {
		if text := p.told(uint64(n)); text != "" {
			a.fields[name] = text
		}
	}
	if status == 405 {
		a.fields["allow"] = p.told(2)
	}
	if retry := p.call("retry"); retry > 0 {
		a.fields["retry-after"] = fmt.Sprint(retry)
	}
	return a
}

func startFilter(t testing.TB, o wasm.Options, s *shared, now func() int64) (*worker, bool) {
	t.Helper()
	module, err := wasm.Build(wasm.Filter, o)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, module, s, now, 0)
}

// anyForwarded is a line of X-Forwarded-For as proxies write it, or as nobody should.
func anyForwarded(rng *rand.Rand) string {
	nodes := []string{"203.0.113.7", "203.0.113.8", "203.0.113.7:443", "2001:db8::1", "[2001:db8::1]",
		"[2001:db8::1]:443",
		"2001:db8:0:0:0::1", "2001:DB8::2", "2001:db8:0:1::1", "::ffff:203.0.113.7", "[::ffff:203.0.113.7]:1",
		"::", "0.0.0.0",
		"::ffff:0.0.0.0", "64:ff9b::0.0.0.0", "64:ff9b::203.0.113.7",
		"64:ff9b::203.0.113.8", "64:ff9b:0:0:0:1::1", "64:ff9b:0:f0:1::1",
		"2002:cb00:7107::1", "2002:cb00:7107:1::1", "2002:cb00:7108::1",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:4137::1", "1::0.0.0.0", "1:2:3:4:5:6:203.0.113.7",
		"1:2:3:4:5:6:7:203.0.113.7", "fe80::1%eth0", "fe80::1%", "fe80::1%a:b", "[fe80::1%25eth0]", "1:2:3:4:5:6:7::",
		"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8::", ":1", "1:", ":::", "1::2::3", "12345::1", "g::1", "unknown",
		"_hidden", "_",
		"203.0.113.07", "203.0.113", "203.0.113.256", "203.0.113.7:", "203.0.113.7:_x", "203.0.113.7:_",
		"203.0.113.7:65536",
		"203.0.113.7:123456", "203.0.113.7:1x", "[203.0.113.7]", "[2001:db8::1", "[2001:db8::1]x", "[2001:db8::1]:",
		"2001:db8::1]", "", " ", "\t203.0.113.8 ", "203.0.113.8\x00", "\xff", "for=203.0.113.7", "\"203.0.113.7\"",
		"192.0.2.7", "0x7f.1.1.1", "1.2.3.4.5", "0.0.0.1", "255.255.255.255"}
	var list []string
	for range 1 + rng.IntN(5) {
		node := nodes[rng.IntN(len(nodes))]
		if b := []byte(node); len(b) > 0 && rng.IntN(6) == 0 {
			b[rng.IntN(len(b))] = ":.%[]0f, "[rng.IntN(9)]
			node = string(b)
		}
		if rng.IntN(60) == 0 {
			node = strings.Repeat(" ", rng.IntN(9000)) + node
		}
		list = append(list, node)
	}
	return strings.Join(list, []string{",", ", "}[rng.IntN(2)])
}

// TestFilterFindsTheClientAsTheLibrary: whatever stands in X-Forwarded-For, the filter charges whom the library
// charges by the same number of proxies, so that no spelling of an address has a budget of its own.
func TestFilterFindsTheClientAsTheLibrary(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/d burst 1000000 by ip",
		"* 1/d burst 2000000 by site", "UNKNOWN 1/s by ip")
	for hops, bits := range map[int]int{1: 64, 2: 56, 3: 128, 4: 32} {
		rng := rand.New(rand.NewPCG(*seed, uint64(hops)))
		lib := libraryOf(t, set, keysOf(t), headgate.LimitUnknown,
			identity.Options{Strategy: identity.TrustedCount, ProxyCount: hops, IPv6Bits: bits})
		lib.now = 1e15
		w, ok := startFilter(t, wasm.Options{Policies: set, TrustedHops: hops, IPv6Bits: bits}, newShared(),
			func() int64 { return lib.now })
		if !ok {
			t.Fatalf("refused: %q", w.logged)
		}
		budgets := map[string]bool{}
		for range 6000 {
			var fields []string
			for range rng.IntN(3) {
				fields = append(fields, "x-forwarded-for", anyForwarded(rng))
			}
			peer := peers[rng.IntN(len(peers))]
			want, read := lib.ask("GET", "/a", peer, "", fields...)
			if !read {
				t.Fatal("net/http refuses a plain request")
			}
			same(t, fmt.Sprintf("%d hops, from %s by %q", hops, peer, fields), w.ask("GET", "/a", peer, fields...),
				want)
			budgets[want.fields["ratelimit"]] = true
		}
		if len(budgets) < 1000 {
			t.Errorf("%d answers differ, which shows too little", len(budgets))
		}
	}
}

// TestStrangeHeads sends what no client should, and what no proxy should let through, to a filter that is asked again
// and again: it answers as the library matches, ends in no trap, and takes no memory that it did not begin with.
func TestStrangeHeads(t *testing.T) {
	table := tableOf(t, endpoint.Profile{}, "GET /a", "GET /files/{path...}")
	set := setOf(t, table, "default 1000000000/s", "UNKNOWN 1000000000/s")
	keys := keysOf(t, "acme")
	w, ok := startFilter(t, wasm.Options{Policies: set, TrustedHops: 1, Keys: keys.records, Secret: keys.secret},
		newShared(), func() int64 { return 1e15 })
	if !ok {
		t.Fatalf("refused: %q", w.logged)
	}
	size, long := w.m.Memory().Size(), strings.Repeat("x", 60_000)
	var query []string
	for i := range 1000 {
		query = append(query, fmt.Sprintf("a%d=%%2F%d", i, i))
	}
	for _, target := range []string{"", "/", "*", "a", "//", "/%", "/%4", "/a%", "/a%4", "/a%zz", "/a%00", "/\x00",
		"/a\xff", "/%c0%af",
		"/%e0%80%af", "/%f0%80%80%af", "/%ff", "/%ed%a0%80", "/a?" + strings.Join(query, "&"), "/a?" + long,
		"/files/" + long,
		"/files/" + strings.Repeat("%41", 20_000), "/files/" + strings.Repeat("%2e/", 15_000), strings.Repeat("/",
			60_000),
		strings.Repeat("/..", 20_000), "/a" + strings.Repeat(";", 60_000), "/files/" + strings.Repeat("%25", 20_000),
		"/a#b", "http://other/a", "/a HTTP/1.1", "/a\r\nX: y", "/files/" + strings.Repeat("é", 30_000)} {
		for _, method := range []string{"GET", "", "get", "GET ", "\x00", long, "CONNECT", "TRACE"} {
			want := table.Match(method, target)
			got := w.ask(method, target, "192.0.2.1:1", "x-forwarded-for", target, "x-api-key", target, "origin",
				target)
			passes := want.Status != endpoint.Invalid && method != "TRACE"
			if passes != (got.status == 0) || !passes && got.status != 400 && got.status != 405 {
				t.Errorf("%.20q %.30q: %d, and the library finds %v", method, target, got.status, want.Status)
			}
		}
	}
	for _, missing := range []string{":method", ":path"} {
		w.missing = missing
		if got := w.ask("GET", "/a", "192.0.2.1:1"); got.status != 400 {
			t.Errorf("without %s: %d, want 400", missing, got.status)
		}
	}
	w.missing = ""
	// More than there is room for: refused, and never let through.
	if got := w.ask("GET", "/files/"+strings.Repeat("x", 400_000), "192.0.2.1:1"); got.status != 503 {
		t.Errorf("a target of 400,000 bytes: %d, want 503", got.status)
	}
	if got := w.ask("GET", "/files/"+strings.Repeat("x", 1<<20), "192.0.2.1:1"); got.status != 400 {
		t.Errorf("a target of a MiB: %d, want 400", got.status)
	}
	if got := w.ask("GET", "/a", "192.0.2.1:1", "x-forwarded-for", strings.Repeat(",", 1<<20), "x-api-key",
		long); got.status != 0 {
		t.Errorf("fields of a MiB beside a good target: %d, want that it passes by the peer's budget", got.status)
	}
	if got := w.ask("GET", "/a", "192.0.2.1:1"); got.status != 0 || got.fields["ratelimit"] == "" {
		t.Errorf("a plain request after all that: %+v", got)
	}
	if got := w.m.Memory().Size(); got != size {
		t.Errorf("memory grew from %d to %d bytes", size, got)
	}
}

// TestManyStreamsAtOnce has more requests under way than the filter has places for what their responses are told, some
// of which get none: each of the others is told what was left to its own request.
func TestManyStreamsAtOnce(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 11))
	rules := ruled(t, "GET /a 1/d burst 1000000", "GET /long 1/d burst 1000000",
		"GET /long 1/d burst 1000000 by ip", "UNKNOWN 1/s")
	rules[1].Name, rules[2].Name = strings.Repeat("long", 30), strings.Repeat("wide", 30)
	set := compile(t, tableOf(t, endpoint.Profile{}, "GET /a", "GET /long"), policy.Document{Rules: rules})
	w, ok := startFilter(t, wasm.Options{Policies: set}, newShared(), func() int64 { return 1e15 })
	if !ok {
		t.Fatalf("refused: %q", w.logged)
	}
	left, streams, next := map[string]int{"/a": 1e6, "/long": 1e6}, map[uint64]string{}, uint64(2)
	kept := 0
	for range 20_000 {
		if len(streams) < 700 && rng.IntN(7) > 0 {
			path := []string{"/a", "/a", "/a", "/long"}[rng.IntN(4)]
			if got := w.request(next, "GET", path, "192.0.2.1:1"); got.status != 0 {
				t.Fatalf("%+v", got)
			}
			left[path]--
			streams[next] = fmt.Sprintf("r=%d;", left[path])
			next++
			continue
		}
		for context, want := range streams {
			if rng.IntN(4) == 0 {
				w.gone[context] = true // its client went away
			} else if got := w.response(context).fields["ratelimit"]; !strings.Contains(got, want) {
				t.Fatalf("stream %d is told %q, want %s", context, got, want)
			}
			delete(streams, context)
			kept = max(kept, len(w.notes))
			delete(w.notes, context)
			break
		}
		if got := w.response(1 << 30).fields; len(got) > 0 {
			t.Fatalf("a stream that asked nothing is told %v", got)
		}
	}
	if kept < 100 {
		t.Errorf("the host kept %d notes at most, which shows too little", kept)
	}
}

// TestClockNeverGrants: a clock that stands still, and one that goes back, fill no bucket, of a worker or shared.
func TestClockNeverGrants(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 10/s burst 20 by ip", "UNKNOWN 1/s by ip")
	for _, shared := range [][]string{nil, {"*"}} {
		for name, next := range map[string]func(now int64) int64{
			"stands still": func(now int64) int64 { return now },
			"goes back":    func(now int64) int64 { return now - 1e9 },
			"swings":       func(now int64) int64 { return 2e15 - 3600e9 - now },
		} {
			now := int64(1e15)
			w, ok := startFilter(t, wasm.Options{Policies: set, Shared: shared}, newShared(),
				func() int64 { return now })
			if !ok {
				t.Fatalf("refused: %q", w.logged)
			}
			admitted := 0
			for range 1000 {
				admitted += int(bit(w.ask("GET", "/a", "192.0.2.1:1").status == 0))
				now = next(now)
			}
			if admitted != 20 {
				t.Errorf("by a clock that %s, shared %v: %d pass, want the burst of 20", name, shared, admitted)
			}
		}
	}
}

// TestWorkersShareExactly has two workers take from one bucket at the same time, by a frozen clock: together they admit
// what the burst holds and no request more, and what is charged by two rules is charged by both or neither.
func TestWorkersShareExactly(t *testing.T) {
	set := compile(t, tableOf(t, endpoint.Profile{}, "GET /a"),
		policy.Document{Rules: ruled(t, "GET /a 1/h burst 3000", "* 1/h burst 4000 by ip", "UNKNOWN 1/s")})
	s := newShared()
	o := wasm.Options{Policies: set, Shared: []string{"*"}, SharedBuckets: 64}
	frozen := func() int64 { return 1e15 }
	var workers []*worker
	for range 2 {
		w, ok := startFilter(t, o, s, frozen)
		if !ok {
			t.Fatalf("refused: %q", w.logged)
		}
		workers = append(workers, w)
	}
	for round, want := range []int{3000, 3000} {
		var wg sync.WaitGroup
		admitted := make([]int, len(workers))
		for i, w := range workers {
			wg.Go(func() {
				for range 2500 {
					if w.ask("GET", "/a", fmt.Sprintf("192.0.2.%d:1", round)).status == 0 {
						admitted[i]++
					}
				}
			})
		}
		wg.Wait()
		if got := admitted[0] + admitted[1]; got != want {
			t.Errorf("two workers admit %v, together %d, want %d", admitted, got, want)
		}
		t.Logf("%v admitted, %d writes came too late", admitted, s.wrong)
	}
}

// TestWorkersOfTheirOwn says what a limit means that is not shared: each worker admits it.
func TestWorkersOfTheirOwn(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/h burst 10", "UNKNOWN 1/s")
	s := newShared()
	for range 3 {
		w, _ := startFilter(t, wasm.Options{Policies: set}, s, func() int64 { return 1e15 })
		admitted := 0
		for range 30 {
			if w.ask("GET", "/a", "192.0.2.1:1").status == 0 {
				admitted++
			}
		}
		if admitted != 10 {
			t.Errorf("a worker admits %d, want 10", admitted)
		}
	}
	if len(s.values) != 0 {
		t.Errorf("%d shared values, want none", len(s.values))
	}
}

// TestRefusesToStart tries what must not start: data that is not whole, configuration, and hosts that lack something.
func TestRefusesToStart(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/h burst 10", "UNKNOWN 1/s")
	module, err := wasm.Build(wasm.Filter, wasm.Options{Policies: set, Shared: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	now := func() int64 { return 1 }
	if w, ok := start(t, module, newShared(), now, 0); !ok {
		t.Fatalf("refused: %q", w.logged)
	}
	w, ok := start(t, module, newShared(), now, 5)
	if ok || !strings.Contains(strings.Join(w.logged, ""), "want none") {
		t.Errorf("with a configuration: %v, %q", ok, w.logged)
	}
	for at := len(module) - 1000; at < len(module); at += 97 {
		broken := slices.Clone(module)
		broken[at] ^= 4
		if w, ok := start(t, broken, newShared(), now, 0); ok {
			t.Errorf("with byte %d changed it starts: %q", at, w.logged)
		}
	}
}

// TestFailingHostCalls says what becomes of requests while the host fails: a rule that is open lets pass, one that is
// closed refuses with 503, and none lets pass by accident.
func TestFailingHostCalls(t *testing.T) {
	table := tableOf(t, endpoint.Profile{}, "GET /open", "GET /closed")
	rules := ruled(t, "GET /open 1/h burst 10", "GET /closed 1/h burst 10", "UNKNOWN 1/s")
	rules[0].OnStoreLoss = policy.LossOpen
	set := compile(t, table, policy.Document{Rules: rules})
	for call, want := range map[string][2]uint32{
		"proxy_get_shared_data":       {0, 503},
		"proxy_set_shared_data":       {0, 503},
		"clock_time_get":              {0, 503},
		"proxy_get_property":          {0, 0}, // all without an address share a budget
		"proxy_set_property":          {0, 0}, // the response has no fields
		"proxy_add_header_map_value":  {0, 0},
		"proxy_increment_metric":      {0, 0},
		"proxy_get_header_map_value":  {400, 400},
		"proxy_send_local_response":   {0, 0},
		"proxy_define_metric":         {0, 0},
		"proxy_log":                   {0, 0},
		"random_get":                  {0, 0},
		"proxy_on_memory_allocate":    {0, 0},
		"no such call, as a contrast": {0, 0},
	} {
		o := wasm.Options{Policies: set, Shared: []string{"*"}}
		w, ok := startFilter(t, o, newShared(), func() int64 { return 1e15 })
		if !ok {
			t.Fatalf("refused: %q", w.logged)
		}
		w.fails[call] = true
		got := [2]uint32{w.ask("GET", "/open", "192.0.2.1:1").status, w.ask("GET", "/closed", "192.0.2.1:1").status}
		if got != want {
			t.Errorf("without %s: %v, want %v", call, got, want)
		}
		if lost := w.counters["headgate_edge_lost"]; (lost > 0) != (want[1] == 503) {
			t.Errorf("without %s: lost is %d", call, lost)
		}
	}
}

// TestManyKeysNeverGrant sends more callers than there are buckets, again and again, by a clock
// that stands still: none is admitted more often than its burst.
func TestManyKeysNeverGrant(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/h burst 3 by ip", "UNKNOWN 1/s by ip")
	w, _ := startFilter(t, wasm.Options{Policies: set, Buckets: 64}, newShared(), func() int64 { return 1e15 })
	size := w.m.Memory().Size()
	admitted := map[int]int{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		n := rng.IntN(1000)
		if w.ask("GET", "/a", fmt.Sprintf("10.0.%d.%d:1", n/250, 1+n%250)).status == 0 {
			admitted[n]++
		}
	}
	for n, count := range admitted {
		if count > 3 {
			t.Errorf("caller %d is admitted %d times, want at most 3", n, count)
		}
	}
	if len(admitted) < 20 {
		t.Errorf("%d callers were admitted, want 20 or more of 64 buckets", len(admitted))
	}
	if got := w.m.Memory().Size(); got != size {
		t.Errorf("memory grew from %d to %d bytes", size, got)
	}
}

// TestShadowIsCounted: a rule in shadow refuses nobody, and each request that it would refuse is counted once, also one
// that another rule refuses.
func TestShadowIsCounted(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "GET /a 1/h burst 3 shadow", "* 1/h burst 8 by ip",
		"default 1000/s", "UNKNOWN 1/s")
	w, ok := startFilter(t, wasm.Options{Policies: set}, newShared(), func() int64 { return 1e15 })
	if !ok {
		t.Fatalf("refused: %q", w.logged)
	}
	passed := 0
	for range 10 {
		if w.ask("GET", "/a", "192.0.2.1:1").status == 0 {
			passed++
		}
	}
	got := map[string]int64{}
	for _, name := range []string{"allowed", "denied", "would_deny"} {
		got[name] = w.counters["headgate_edge_"+name]
	}
	if want := map[string]int64{"allowed": 8, "denied": 2, "would_deny": 7}; passed != 8 || !maps.Equal(got, want) {
		t.Errorf("%d of 10 pass, counted as %v, want 8 and %v", passed, got, want)
	}
}

// TestTrustedHops: the entry of X-Forwarded-For that trusted proxies vouch for is the client, whatever stands before
// it, and without one the peer is.
func TestTrustedHops(t *testing.T) {
	set := setOf(t, tableOf(t, endpoint.Profile{}, "GET /a"), "default 1/h burst 1 by ip", "UNKNOWN 1/s by ip")
	for _, c := range []struct {
		hops   int
		fields []string // of X-Forwarded-For
		client string   // an address without such fields that has the same budget
	}{
		{0, []string{"203.0.113.1"}, "192.0.2.1"},
		{1, []string{"203.0.113.1"}, "203.0.113.1"},
		{1, []string{"6.6.6.6, 203.0.113.1"}, "203.0.113.1"},
		{1, []string{"6.6.6.6", "203.0.113.1"}, "203.0.113.1"},
		{2, []string{"6.6.6.6, 203.0.113.1, 10.0.0.1"}, "203.0.113.1"},
		{2, []string{"6.6.6.6, 203.0.113.1", "10.0.0.1"}, "203.0.113.1"},
		{1, nil, "192.0.2.1"},
	} {
		w, ok := startFilter(t, wasm.Options{Policies: set, TrustedHops: c.hops}, newShared(),
			func() int64 { return 1e15 })
		if !ok {
			t.Fatalf("refused: %q", w.logged)
		}
		var fields []string
		for _, line := range c.fields {
			fields = append(fields, "x-forwarded-for", line)
		}
		first := w.ask("GET", "/a", "192.0.2.1:1", fields...)
		again := w.ask("GET", "/a", "192.0.2.1:1", fields...)
		var own []string
		if c.hops > 0 {
			own = []string{"x-forwarded-for", strings.Repeat(c.client+", ", c.hops)[:c.hops*(len(c.client)+2)-2]}
		}
		same := w.ask("GET", "/a", c.client+":1", own...)
		if first.status != 0 || again.status != 429 || same.status != 429 {
			t.Errorf("%d hops, %q: %d, %d, and for %s %d; want one budget of one request", c.hops, c.fields,
				first.status, again.status, c.client, same.status)
		}
	}
}
