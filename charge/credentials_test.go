package charge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// holders are who has credentials in these tests: keys k1 to k3 and tokens t1 to
// t3, of the projects p1 to p3 that are limited to 5, 7 and 9 an hour for each
// principal. Addresses have 5 an hour.
type holders struct {
	lim    *headgate.Limiter
	who    *identity.Resolver
	keys   []string
	limits map[string]int // by credential text
}

// tokenList verifies the tokens t1.x.y to t3.x.y, and knows old.x.y, forged.x.y
// and away.x.y, which cannot be verified.
type tokenList struct{}

func (tokenList) Verify(_ context.Context, token string) (identity.Claims, error) {
	switch name, _, _ := strings.Cut(token, "."); name {
	case "t1", "t2", "t3":
		return identity.Claims{Subject: name, Project: "p" + name[1:], Until: time.Now().Add(time.Hour)}, nil
	case "old":
		return identity.Claims{}, identity.ErrTokenExpired
	case "forged":
		return identity.Claims{}, errors.New("forged")
	case "away":
		return identity.Claims{}, identity.ErrUnavailable
	}
	return identity.Claims{}, identity.ErrTokenUnfit
}

const perAddress = 5

func newHolders(t testing.TB, change func(*identity.Options)) *holders {
	t.Helper()
	digester, err := identity.NewDigester(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	h := &holders{limits: map[string]int{}}
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: perAddress, Per: time.Hour}}
	var records []identity.KeyRecord
	for i, limit := range []int{5, 7, 9} {
		project := fmt.Sprint("p", i+1)
		rules = append(rules, policy.Rule{Endpoint: policy.Default, Project: project, Limit: int64(limit),
			Per: time.Hour})
		text, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, identity.KeyRecord{
			Digest: digester.Digest(text),
			Key:    identity.Key{ID: fmt.Sprint("k", i+1), Project: project},
		})
		h.keys = append(h.keys, text)
		h.limits[text], h.limits[fmt.Sprintf("t%d.x.y", i+1)] = limit, limit
	}
	ring := &identity.Keyring{}
	if err := ring.Replace(records); err != nil {
		t.Fatal(err)
	}
	o := identity.Options{
		Keys: ring, Digester: digester, Tokens: tokenList{}, TokenFailures: -1,
		KeySources: identity.KeySources{Header: "X-Api-Key", Bearer: true, Query: "api_key"},
	}
	if change != nil {
		change(&o)
	}
	who, err := identity.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.who = who
	h.rules(t, headgate.Options{}, rules...)
	return h
}

// rules makes the limiter anew, with other rules and full buckets.
func (h *holders) rules(t testing.TB, o headgate.Options, rules ...policy.Rule) {
	t.Helper()
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 14})
	if err != nil {
		t.Fatal(err)
	}
	table := trial.Compile(t, []string{"GET /v1/items/{id}"})
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: table})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	o.Endpoints, o.Policies, o.Buckets, o.Identities = table, headgate.Fixed(set), buckets, h.who
	o.Now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	if h.lim, err = headgate.New(o); err != nil {
		t.Fatal(err)
	}
}

// admitted sends a request from so many addresses, 6 times from each, and counts
// what is admitted.
func (h *holders) admitted(t testing.TB, addresses int, target string, header http.Header) (n int) {
	t.Helper()
	for i := range 6 * addresses {
		peer := netip.AddrFrom4([4]byte{198, 51, byte(i % addresses / 250), byte(1 + i%addresses%250)})
		if h.lim.Check(t.Context(), headgate.Request{Method: "GET", Target: target, Peer: peer,
			Header: header}).Allowed {
			n++
		}
	}
	return n
}

// TestA5ASecondCredentialWidensNoBudget sends a valid credential with others, in
// all the ways that requests can be written, from 20 addresses. Without more
// than an address to go by, each of these would have 5 an hour of its own.
func TestA5ASecondCredentialWidensNoBudget(t *testing.T) {
	madeUp, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	const item = "/v1/items/1"
	for _, c := range []struct {
		name   string
		target func(key string) string
		header func(key string) http.Header
		want   int
	}{
		{"the key alone", nil, func(k string) http.Header { return http.Header{"X-Api-Key": {k}} }, 5},
		{"and a made-up bearer token", nil, func(k string) http.Header {
			return http.Header{"X-Api-Key": {k}, "Authorization": {"Bearer a.b.c"}}
		}, 5},
		{"and a made-up key as bearer", nil, func(k string) http.Header {
			return http.Header{"X-Api-Key": {k}, "Authorization": {"Bearer hg_x"}}
		}, 5},
		{"twice in two lines", nil, func(k string) http.Header { return http.Header{"X-Api-Key": {k, k}} }, 5},
		{"twice in one line", nil, func(k string) http.Header { return http.Header{"X-Api-Key": {k + ", " + k}} }, 5},
		{"before a made-up key", nil, func(k string) http.Header { return http.Header{"X-Api-Key": {k, madeUp}} }, 5},
		{"behind a made-up key", nil, func(k string) http.Header { return http.Header{"X-Api-Key": {madeUp, k}} }, 5},
		{"behind an empty line", nil, func(k string) http.Header { return http.Header{"X-Api-Key": {"", k}} }, 5},
		{"and an expired token", nil, func(k string) http.Header {
			return http.Header{"X-Api-Key": {k}, "Authorization": {"Bearer old.x.y"}}
		}, 5},
		{"and a valid token of more", nil, func(k string) http.Header {
			return http.Header{"X-Api-Key": {k}, "Authorization": {"Bearer t3.x.y"}}
		}, 5},
		{"a valid token of more and a made-up one", nil, func(string) http.Header {
			return http.Header{"Authorization": {"Bearer a.b.c", "Bearer t3.x.y"}}
		}, 9},
		{"beside Basic", nil, func(k string) http.Header {
			return http.Header{"Authorization": {"Basic YTpi", "Bearer " + k}}
		}, 5},
		{"in one line with Basic", nil, func(k string) http.Header {
			return http.Header{"Authorization": {"Basic YTpi, Bearer " + k}}
		}, 5},
		{"scheme in lower case", nil, func(k string) http.Header {
			return http.Header{"Authorization": {"bearer " + k}}
		}, 5},
		{"behind a tab", nil, func(k string) http.Header { return http.Header{"Authorization": {"Bearer\t" + k}} }, 5},
		{"behind a no-break space", nil,
			func(k string) http.Header { return http.Header{"Authorization": {"Bearer\u00a0" + k}} }, 5},
		{"before a word", nil, func(k string) http.Header {
			return http.Header{"Authorization": {"Bearer " + k + " x"}}
		}, 5},
		{"behind a word", nil, func(k string) http.Header { return http.Header{"Authorization": {"Bearer x " + k}} },
			5},
		{"under another scheme", nil, func(k string) http.Header {
			return http.Header{"Authorization": {"Token " + k}}
		}, 5},
		{"without a scheme", nil, func(k string) http.Header { return http.Header{"Authorization": {k}} }, 5},
		{"in quotes", nil, func(k string) http.Header { return http.Header{"Authorization": {`Bearer "` + k + `"`}} },
			5},
		{"behind a colon", nil, func(k string) http.Header { return http.Header{"Authorization": {`Bearer:` + k}} }, 5},
		{"a signed token under another scheme", nil, func(string) http.Header {
			return http.Header{"Authorization": {"JWT t1.x.y"}}
		}, 5},
		{"a token behind a colon", nil,
			func(string) http.Header { return http.Header{"Authorization": {"Bearer:t1.x.y"}} }, 5},
		{"a token as a parameter", nil, func(string) http.Header {
			return http.Header{"Authorization": {`Token token="t1.x.y", x=1`}}
		}, 5},
		{"a token as a bare parameter", nil, func(string) http.Header {
			return http.Header{"Authorization": {"Token token=t1.x.y"}}
		}, 5},
		{"a key as a parameter", nil, func(k string) http.Header {
			return http.Header{"Authorization": {`Token token="` + k + `", x=1`}}
		}, 5},
		{"a token before a word", nil, func(string) http.Header {
			return http.Header{"Authorization": {"Bearer t1.x.y " + strings.Repeat("x ", 3)}}
		}, 5},
		{"a token before more than a token may have", nil, func(string) http.Header {
			return http.Header{"Authorization": {"Bearer t1.x.y " + strings.Repeat("x", identity.MaxTokenLength)}}
		}, 5},
		{"in header and query", func(k string) string { return item + "?api_key=" + k }, func(k string) http.Header {
			return http.Header{"X-Api-Key": {k}}
		}, 5},
		{"in the query, with a made-up one in the header", func(k string) string { return item + "?api_key=" + k },
			func(string) http.Header {
				return http.Header{"X-Api-Key": {madeUp}}
			}, 5},
		{"twice in the query, once made up", func(k string) string { return item + "?api_key=x&api_key=" + k }, nil, 5},
		{"in the query in capitals", func(k string) string { return item + "?API_Key=" + k }, nil, 5},
		{"in the query as a list", func(k string) string { return item + "?api_key[]=" + k }, nil, 5},
		{"in the query with a blank", func(k string) string { return item + "?api_key=+" + k + "%20" }, nil, 5},
		{"in the query behind a semicolon", func(k string) string { return item + "?a=b;api_key=" + k }, nil, 5},
		{"with more than are looked at", nil, func(k string) http.Header {
			return http.Header{"X-Api-Key": {"1", "2", "3", "4", "5", "6", "7", "8", k}}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHolders(t, nil)
			target, header := item, http.Header{}
			if c.target != nil {
				target = c.target(h.keys[0])
			}
			if c.header != nil {
				header = c.header(h.keys[0])
			}
			if got := h.admitted(t, 20, target, header); got != c.want {
				t.Errorf("%d of 120 are admitted, want %d", got, c.want)
			}
		})
	}
}

// TestCredentialsProperty sends random sets of credentials, valid and made up,
// from ever new addresses. No valid credential takes part in more requests than
// its principal's budget admits, and what is not valid never changes a verdict:
// a twin gets the same requests without it.
func TestCredentialsProperty(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range race.Fewer(200) {
		h, twin := newHolders(t, nil), newHolders(t, nil)
		used := map[string]int{}
		for i := range 60 {
			var valid, all []shown
			for range random.IntN(4) {
				n := random.IntN(6)
				place := random.IntN(places)
				valid = append(valid, shown{n, place})
			}
			all = append(all, valid...)
			for range random.IntN(4) {
				all = append(all, shown{madeUpFrom + random.IntN(len(inventions)), random.IntN(places)})
			}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			peer := netip.AddrFrom4([4]byte{198, 18, byte(i / 250), byte(i % 250)})
			got := h.lim.Check(t.Context(), h.request(all, peer))
			if got.Reason == headgate.TooManyCredentials {
				continue
			}
			want := twin.lim.Check(t.Context(), twin.request(valid, peer))
			if got.Allowed != want.Allowed {
				t.Fatalf("seed %d, round %d: %v are %v, and without what is made up %v", seed, round, all,
					got.Reason, want.Reason)
			}
			if !got.Allowed {
				continue
			}
			counted := map[string]bool{}
			for _, s := range valid {
				if text := h.text(s.credential); !counted[text] {
					counted[text] = true
					used[text]++
				}
			}
			for text, n := range used {
				if n > h.limits[text] {
					t.Fatalf("seed %d, round %d: %d requests with one credential are admitted, want %d", seed, round, n,
						h.limits[text])
				}
			}
		}
	}
}

// shown is a credential in a place. Credentials 0 to 2 are keys, 3 to 5 tokens,
// and those from madeUpFrom on inventions.
type shown struct{ credential, place int }

const (
	madeUpFrom = 6
	places     = 4
)

var inventions = []string{"", "x", "hg_x", "a.b.c", "old.x.y", "t4.x.y"}

func (h *holders) text(n int) string {
	switch {
	case n < 3:
		return h.keys[n]
	case n < madeUpFrom:
		return fmt.Sprintf("t%d.x.y", n-2)
	}
	return inventions[n-madeUpFrom]
}

// request writes credentials where they are to stand. Tokens stand behind
// Bearer, whatever place is said.
func (h *holders) request(all []shown, peer netip.Addr) headgate.Request {
	r := headgate.Request{Method: "GET", Target: "/v1/items/1?", Peer: peer, Header: http.Header{}}
	header := r.Header.(http.Header)
	for _, s := range all {
		text := h.text(s.credential)
		switch token := s.credential >= 3 && s.credential < madeUpFrom; {
		case token && s.place == 0:
			header.Add("Authorization", "bearer x "+text)
		case token && s.place == 1:
			header.Add("Authorization", "Basic YTpi, Bearer "+text)
		case token || s.place == 0:
			header.Add("Authorization", "Bearer "+text)
		case s.place == 1:
			header.Add("X-Api-Key", text)
		case s.place == 2:
			header.Add("X-Api-Key", text+",x")
		default:
			r.Target += "&api_key=" + text
		}
	}
	return r
}
