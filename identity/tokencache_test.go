package identity_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
)

// countingTokens believes tokens "subject.…" until a time, refuses "forged.…",
// and counts who asks.
type countingTokens struct {
	asked atomic.Int64
	until time.Time
}

func (c *countingTokens) Verify(_ context.Context, token string) (identity.Claims, error) {
	c.asked.Add(1)
	subject, _, _ := strings.Cut(token, ".")
	switch subject {
	case "forged":
		return identity.Claims{}, errForged
	case "unfit":
		return identity.Claims{}, fmt.Errorf("aud: %w", identity.ErrTokenUnfit)
	case "away":
		return identity.Claims{}, identity.ErrUnavailable
	}
	return identity.Claims{Subject: subject, Project: "acme", Tier: "gold", Until: c.until}, nil
}

type movedClock struct{ at time.Time }

func (c *movedClock) now() time.Time          { return c.at }
func (c *movedClock) advance(d time.Duration) { c.at = c.at.Add(d) }

func newClock() *movedClock { return &movedClock{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)} }

func bearer(peer, token string) identity.Evidence {
	return identity.Evidence{Peer: netip.MustParseAddr(peer), Header: http.Header{"Authorization": {"Bearer " + token}}}
}

// TestTokenCacheForgetsInTime steps through the life of two tokens.
func TestTokenCacheForgetsInTime(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(45 * time.Second)}
	who := newResolver(t, identity.Options{Tokens: tokens, Now: clock.now})
	for _, step := range []struct {
		at    time.Duration
		asked int64
	}{
		{0, 1}, {0, 1}, {29 * time.Second, 1},
		{30*time.Second - 1, 1}, {30 * time.Second, 2}, // the TTL
		{45*time.Second - 1, 2}, {45 * time.Second, 3}, // its own end: never beyond
		{46 * time.Second, 4},
	} {
		clock.at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Add(step.at)
		p := who.Resolve(context.Background(), bearer("192.0.2.1", "alice.x"))
		if p.Kind != identity.Token || p.ID != "alice" || p.Project != "acme" || p.Tier != "gold" ||
			tokens.asked.Load() != step.asked {
			t.Errorf("at %v: %v, asked %d times, want %d", step.at, p, tokens.asked.Load(), step.asked)
		}
	}
}

func TestTokenCacheKeepsNothingThatItMustNot(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{}
	who := newResolver(t, identity.Options{Tokens: tokens, Now: clock.now, TokenFailures: -1})
	for range 2 {
		for _, text := range []string{"alice.x", "forged.x", "unfit.x", "away.x"} { // alice has no Until
			who.Resolve(context.Background(), bearer("192.0.2.1", text))
		}
	}
	tokens.until = clock.at.Add(time.Hour)
	long := strings.Repeat("s", 1200) + ".x"
	for range 2 {
		who.Resolve(context.Background(), bearer("192.0.2.1", long))
	}
	if s := who.TokenCacheStats(); tokens.asked.Load() != 10 || s.Entries != 0 || s.Hits != 0 || s.Misses != 10 {
		t.Errorf("asked %d times, %+v, want 10 and nothing kept", tokens.asked.Load(), s)
	}
	off := newResolver(t, identity.Options{Tokens: tokens, TokenCache: -1})
	off.Resolve(context.Background(), bearer("192.0.2.1", "alice.x"))
	off.Resolve(context.Background(), bearer("192.0.2.1", "alice.x"))
	if s := off.TokenCacheStats(); tokens.asked.Load() != 12 || s != (identity.TokenCacheStats{}) {
		t.Errorf("asked %d times, %+v, want 12 without a cache", tokens.asked.Load(), s)
	}
}

// TestTokenCacheIsBounded: many valid tokens stay within the capacity.
func TestTokenCacheIsBounded(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, TokenCache: 64, Now: clock.now, TokenFailures: -1})
	for i := range 10_000 {
		who.Resolve(context.Background(), bearer("192.0.2.1", fmt.Sprint("user", i, ".x")))
	}
	s := who.TokenCacheStats()
	if s.Capacity != 64 || s.Entries != 64 {
		t.Fatalf("%+v, want 64 of 64", s)
	}
}

// TestForgedTokensDriveNothingOut: what was verified stays, however many
// forged tokens come.
func TestForgedTokensDriveNothingOut(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, Now: clock.now, TokenFailures: -1})
	see := func(token string) { who.Resolve(context.Background(), bearer("192.0.2.1", token)) }
	for i := range 16 {
		see(fmt.Sprint("user", i, ".x"))
	}
	for i := range 20_000 {
		see(fmt.Sprint("forged.", i))
	}
	before := tokens.asked.Load()
	for i := range 16 {
		see(fmt.Sprint("user", i, ".x"))
	}
	if s := who.TokenCacheStats(); tokens.asked.Load() != before || s.Entries != 16 || s.Hits != 16 {
		t.Errorf("%d tokens were verified again, %+v", tokens.asked.Load()-before, s)
	}
}

// TestTokenCacheTellsTokensApart looks for a token that is taken for another:
// tokens that differ in one byte, at every place, and in length.
func TestTokenCacheTellsTokensApart(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, Now: clock.now, TokenFailures: -1})
	good := "alice." + strings.Repeat("A", 600)
	who.Resolve(context.Background(), bearer("192.0.2.1", good))
	for i := len("alice."); i < len(good); i++ {
		for _, other := range []string{good[:i], good[:i] + "B" + good[i+1:], good[:i] + "/" + good[i+1:],
			good + good[:i]} {
			forged := "forged" + other[len("alice"):]
			if p := who.Resolve(context.Background(), bearer("192.0.2.1", forged)); p.Kind != identity.Address {
				t.Fatalf("%q: %v", forged, p)
			}
			before := tokens.asked.Load()
			if who.Resolve(context.Background(), bearer("192.0.2.1", other)); tokens.asked.Load() == before {
				t.Fatalf("a token that differs at %d is taken for the other", i)
			}
		}
	}
}

// TestTokenCacheConcurrently has goroutines share a small cache: nobody ever
// gets what is another's.
func TestTokenCacheConcurrently(t *testing.T) {
	tokens := &countingTokens{until: time.Now().Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, TokenCache: 16})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			for range 5000 {
				name := fmt.Sprint("user", random.IntN(40))
				if p := who.Resolve(context.Background(), bearer("192.0.2.1", name+".x")); p.ID != name {
					t.Errorf("%s is %v", name, p)
					return
				}
			}
		})
	}
	all.Wait()
	if s := who.TokenCacheStats(); s.Hits+s.Misses != 20_000 || s.Entries > 16 {
		t.Errorf("%+v, want 20000 look-ups and 16 entries at most", s)
	}
}

// TestAllocCachedToken pins what a cached token, and one that is not looked
// at, take from the heap: nothing.
func TestAllocCachedToken(t *testing.T) {
	if raceEnabled {
		return // the race detector allocates
	}
	tokens := &countingTokens{until: time.Now().Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens})
	good, forged := bearer("192.0.2.1", "alice."+strings.Repeat("A", 600)),
		bearer("192.0.2.2", "forged."+strings.Repeat("A", 600))
	for range 100 {
		who.Resolve(context.Background(), forged)
	}
	for name, e := range map[string]identity.Evidence{"cached": good, "not looked at": forged} {
		if n := testing.AllocsPerRun(100, func() { sink = who.Resolve(context.Background(), e) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// TestTokenFailuresAreBounded steps through the budget of an address.
func TestTokenFailuresAreBounded(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, TokenFailures: 3, TokenFailuresPerSecond: 2, Now: clock.now})
	see := func(peer, token string) identity.Rejection {
		return who.Resolve(context.Background(), bearer(peer, token)).Rejected
	}
	see("192.0.2.1", "alice.x")
	for i, step := range []struct {
		wait  time.Duration
		peer  string
		token string
		want  identity.Rejection
	}{
		{0, "192.0.2.1", "forged.1", identity.TokenRefused},
		{0, "192.0.2.1", "forged.2", identity.TokenRefused},
		{0, "192.0.2.1", "forged.3", identity.TokenRefused},
		{0, "192.0.2.1", "forged.4", identity.TokenFlood},
		{0, "192.0.2.1", "bob.x", identity.TokenFlood},    // valid, but nobody looks any more
		{0, "192.0.2.1", "alice.x", identity.NotRejected}, // remembered
		{0, "192.0.2.2", "bob.x", identity.NotRejected},   // another address
		{0, "192.0.2.1", "bob.x", identity.NotRejected},   // remembered by now, wherever it comes from
		{0, "192.0.2.1", "a b", identity.TokenMalformed},  // no token at all
		{499 * time.Millisecond, "192.0.2.1", "forged.5", identity.TokenFlood},
		{time.Millisecond, "192.0.2.1", "forged.5", identity.TokenRefused}, // one has drained
		{0, "192.0.2.1", "forged.5", identity.TokenFlood},
		{time.Second, "192.0.2.1", "carol.x", identity.NotRejected},
		{time.Hour, "192.0.2.1", "forged.6", identity.TokenRefused}, // all has, and no more than that
		{0, "192.0.2.1", "forged.7", identity.TokenRefused},
		{0, "192.0.2.1", "forged.8", identity.TokenRefused},
		{0, "192.0.2.1", "forged.9", identity.TokenFlood},
	} {
		clock.advance(step.wait)
		if got := see(step.peer, step.token); got != step.want {
			t.Errorf("step %d: %s from %s: %v, want %v", i, step.token, step.peer, got, step.want)
		}
	}
}

// TestCheapFailuresWeighLess: a client with the wrong audience is not a forger,
// and an issuer that is away is nobody's fault.
func TestCheapFailuresWeighLess(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{}
	who := newResolver(t, identity.Options{Tokens: tokens, TokenFailures: 2, TokenFailuresPerSecond: 1, Now: clock.now})
	count := func(peer, token string) (looked int) {
		for range 1000 {
			if who.Resolve(context.Background(), bearer(peer, token)).Rejected == identity.TokenFlood {
				return looked
			}
			looked++
		}
		return looked
	}
	for _, c := range []struct {
		token string
		want  int
	}{{"forged.x", 2}, {"unfit.x", 17}, {"away.x", 1000}} {
		if n := count("192.0.2."+fmt.Sprint(len(c.token)), c.token); n != c.want {
			t.Errorf("%s: %d are looked at, want %d", c.token, n, c.want)
		}
	}
}

// TestFailuresOfManyAddresses: thousands of forging addresses leave strangers
// alone, and the neighbours in a /64 are one address.
func TestFailuresOfManyAddresses(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, TokenFailures: 2, Now: clock.now})
	for i := range 400 {
		for range 3 {
			who.Resolve(context.Background(), bearer(fmt.Sprintf("10.0.%d.%d", i/250, i%250), "forged.x"))
		}
	}
	suffer := 0
	for i := range 2000 {
		p := who.Resolve(context.Background(), bearer(fmt.Sprintf("203.0.%d.%d", i/250, i%250),
			fmt.Sprint("user", i, ".x")))
		if p.Rejected == identity.TokenFlood {
			suffer++
		}
	}
	// Either row holds 400 of 8192 spent counters: (400/8192)² is 0.24 %.
	if suffer > 20 {
		t.Errorf("%d of 2000 strangers suffer from 400 forgers, want about 5", suffer)
	}
	for _, peer := range []string{"2001:db8::1", "2001:db8::2"} {
		who.Resolve(context.Background(), bearer(peer, "forged.x"))
	}
	if p := who.Resolve(context.Background(), bearer("2001:db8::3", "new.x")); p.Rejected != identity.TokenFlood {
		t.Errorf("a neighbour in the /64: %v", p)
	}
}

// TestFailuresOfASite: the 65,536 /64s of a /48 are not as many budgets.
func TestFailuresOfASite(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(time.Hour)}
	who := newResolver(t, identity.Options{Tokens: tokens, TokenFailures: 4, TokenFailuresPerSecond: 4, Now: clock.now})
	looked := 0
	for i := range 1000 {
		if who.Resolve(context.Background(), bearer(fmt.Sprintf("2001:db8:1:%x::1", i),
			"forged.x")).Rejected == identity.TokenRefused {
			looked++
		}
	}
	if looked < 25 || 32 < looked { // 8 × 4, and full at the last one's weight
		t.Errorf("of 1000 forged tokens from a /48, %d are looked at, want 25 to 32", looked)
	}
	for peer, want := range map[string]identity.Rejection{
		"2001:db8:1:ffff::1": identity.TokenFlood,
		"2001:db8:2::1":      identity.NotRejected,
	} {
		if p := who.Resolve(context.Background(),
			bearer(peer, fmt.Sprint("user", len(peer), ".x"))); p.Rejected != want {
			t.Errorf("%s: %v, want %v", peer, p, want)
		}
	}
}

// TestFailuresBehindNAT64: clients of one translator are strangers to each
// other, so a few of them must not have the tokens of all ignored.
func TestFailuresBehindNAT64(t *testing.T) {
	for _, prefix := range []string{"64:ff9b::%x:%x", "2001:db8:64::%x:%x"} {
		who := newResolver(t, identity.Options{
			Tokens: &countingTokens{}, TokenFailures: 4, TokenFailuresPerSecond: 4, NAT64: prefixes("2001:db8:64::/96"),
			Now: newClock().now,
		})
		for i := range 20 { // few, since a stranger may share the counters of many
			attacker := fmt.Sprintf(prefix, 0xc000, i+1)
			for range 6 {
				who.Resolve(context.Background(), bearer(attacker, "forged.x"))
			}
			if p := who.Resolve(context.Background(), bearer(attacker, "bob.x")); p.Rejected != identity.TokenFlood {
				t.Fatalf("%s after 6 forged tokens: %v, want them counted", attacker, p)
			}
		}
		if p := who.Resolve(context.Background(),
			bearer(fmt.Sprintf(prefix, 0xcb00, 0x7109), "alice.x")); p.ID != "alice" {
			t.Errorf("a stranger behind the same translator: %v, want alice", p)
		}
	}
}

// TestTokenMemoryIsFlat sends a million forged tokens from a hundred thousand
// addresses.
func TestTokenMemoryIsFlat(t *testing.T) {
	if raceEnabled {
		return // a hundred times slower, and the heap is another
	}
	who := newResolver(t, identity.Options{Tokens: &countingTokens{}})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	header := http.Header{"Authorization": {"Bearer forged." + strings.Repeat("A", 300)}}
	send := func(n int) {
		for i := range n {
			addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			who.Resolve(context.Background(), identity.Evidence{Peer: addr, Header: header})
		}
	}
	send(1000)
	before := heap()
	for range 10 {
		send(100_000)
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

func TestTokenOptionsAreChecked(t *testing.T) {
	_, err := identity.New(identity.Options{
		TokenCache: -2, TokenTTL: time.Hour, TokenFailures: -2, TokenFailuresPerSecond: -1, CertificateName: 99,
		CertificateProject: 99,
	})
	for _, want := range []string{
		"TokenCache is -2", "TokenTTL is 1h0m0s, want up to 5m0s", "TokenFailures is -2",
		"TokenFailuresPerSecond is -1",
		"CertificateName is CertificateName(99)", "CertificateProject is CertificateProject(99)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
}
