package attack_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/attack"
)

const validKey = "hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72b"

// given are credentials as users give them.
var given = []attack.Field{
	{Name: "X-Api-Key", Value: validKey},
	{Name: "Authorization", Value: "Bearer " + validKey},
	{Name: "Authorization", Value: "Basic YTpi"},
	{Name: "Cookie", Value: "session=0123456789abcdef"},
	{Name: "Apikey", Value: "::"},
}

// TestCredentialFamilies holds that every request presents the valid credential, the one beside
// which others stand exactly as it was given, and that nothing else of a request is lost.
func TestCredentialFamilies(t *testing.T) {
	other := attack.Field{Name: "Accept", Value: "text/plain"}
	for _, field := range given {
		text := field.Value[strings.LastIndexAny(field.Value, " =")+1:]
		c := attack.Credential(field)
		if len(c.Families) < 22 || len(c.Doubtful) < 8 {
			t.Fatalf("%s: %d and %d families: some are missing", field.Name, len(c.Families), len(c.Doubtful))
		}
		named := map[string]bool{}
		for _, f := range slices.Concat(c.Families, c.Doubtful) {
			if named[f.Name] {
				t.Errorf("%s: two families are %q", field.Name, f.Name)
			}
			named[f.Name] = true
			for i := range 20 {
				for _, base := range []attack.Request{plain, plain.With(other, field)} {
					r := f.Make(base, i)
					all := r.Target
					for _, h := range r.Header {
						all += "\n" + h.Name + ": " + h.Value
					}
					if !strings.Contains(all, text) && !strings.Contains(f.Name, "Basic") &&
						!strings.Contains(f.Name, "query") {
						t.Errorf("%s, %s: %q does not present the credential", field.Name, f.Name, all)
					}
					if len(base.Header) > 0 && (!slices.Contains(r.Header, other) || base.Header[1] != field) {
						t.Errorf("%s, %s: the request has lost %v, or the plain one was changed", field.Name,
							f.Name, other)
					}
				}
			}
		}
		for _, f := range attack.Beside(field) {
			if r := f.Make(plain, 3); !slices.Contains(r.Header, field) {
				t.Errorf("%s, %s: %v is not among %v", field.Name, f.Name, field, r.Header)
			}
		}
		for n, f := range attack.Claimed(field).Families {
			claimed := map[string]bool{}
			for i := range 20 {
				for _, h := range f.Make(plain, i).Header {
					if h.Name == "X-Forwarded-For" {
						claimed[h.Value] = true
					}
				}
			}
			if len(claimed) < 19 {
				t.Errorf("%s, family %d: %d addresses are claimed in 20 requests", field.Name, n, len(claimed))
			}
		}
	}
}

// holder is a name of the bucket for requests with the valid key, and the other one's for the rest.
func holder(is func(*http.Request) bool, other func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		if is(r) {
			return "the holder of the key"
		}
		return other(r)
	}
}

// presented are all credentials of a request.
func presented(r *http.Request) []string {
	return slices.Concat(r.Header["Authorization"], r.Header["X-Api-Key"], r.Header["Apikey"],
		r.Header["X-Access-Token"])
}

func claimedOrPeer(r *http.Request) string {
	if claimed := r.Header.Get("X-Forwarded-For"); claimed != "" {
		return claimed
	}
	return peer(r)
}

// TestRunFindsWhatTakesACredentialAway gives limiters by API key one hole each: what leaves a
// request with a valid key to its address, and so gives the key one more budget for every address.
// The attacks with a credential in hand, and no others, are to find it, and to name it.
func TestRunFindsWhatTakesACredentialAway(t *testing.T) {
	anyLine := func(r *http.Request) bool {
		return slices.ContainsFunc(presented(r), func(line string) bool { return strings.Contains(line, validKey) })
	}
	for _, c := range []struct {
		name    string
		by      func(*http.Request) string
		widened []string
		family  string // one that must be named by the first
	}{
		{"every line is looked at", holder(anyLine, peer), nil, ""},
		{"two credentials are none", holder(func(r *http.Request) bool {
			return len(presented(r)) == 1 && anyLine(r)
		}, peer), []string{"credential"}, "before a made-up bearer token"},
		{"two credentials are none, and addresses are believed", holder(func(r *http.Request) bool {
			return len(presented(r)) == 1 && anyLine(r)
		}, claimedOrPeer), []string{"credential", "claimed"}, "behind a made-up bearer token"},
		{"the first line alone", holder(func(r *http.Request) bool {
			return r.Header.Get("X-Api-Key") == validKey
		}, peer), []string{"credential"}, "behind another in its own field"},
		{"a bearer token before any key", holder(func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "" && anyLine(r)
		}, func(r *http.Request) string { return r.Header.Get("Authorization") + peer(r) }),
			[]string{"credential", "claimed"}, "beside Basic"},
		{"by address", peer, []string{"credential"}, "alone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := plan()
			p.Requests, p.Header = 800, []attack.Field{{Name: "X-Api-Key", Value: validKey}}
			found, err := attack.Run(t.Context(), serve(t, newLimiter(c.by)), p, func(attack.Finding) {})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				want := attack.Held
				if slices.Contains(c.widened, f.Attack) {
					want = attack.Widened
				}
				if f.Verdict != want {
					t.Errorf("%s: %s, want %s: %+v", f.Attack, f.Verdict, want, f)
				}
				if f.Attack != "credential" {
					continue
				}
				if !strings.Contains(f.Note, "nobody issued is answered with 200 too") {
					t.Errorf("the note is %q, want it to say that the API believes everything", f.Note)
				}
				named := slices.ContainsFunc(f.Families,
					func(one attack.FamilyCount) bool { return one.Name == c.family && one.Admitted > 1 })
				if want == attack.Widened && (!named || f.Admitted < 2*int(f.Envelope) || f.Fix == "") {
					t.Errorf("the evidence is %+v, want %q among the families, a fix, and more than twice the envelope",
						f, c.family)
				}
			}
			if got := verdictOf(found, "keys"); len(found) != 6 || got != "not tried" {
				t.Errorf("%d findings, and keys is %s, want 6 and keys left out", len(found), got)
			}
		})
	}
}

// TestRunFindsASchemeThatTheAPIAloneReads is about an API that reads whatever stands behind the
// first space, and a limiter before it that reads Bearer alone. Since the API refuses made-up
// credentials, every spelling is tried.
func TestRunFindsASchemeThatTheAPIAloneReads(t *testing.T) {
	checked := func(by func(*http.Request) string) http.Handler {
		l := newLimiter(by)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !l.take(l.name(r)) {
				w.WriteHeader(http.StatusTooManyRequests)
			} else if _, text, _ := strings.Cut(r.Header.Get("Authorization"),
				" "); strings.TrimSpace(text) != validKey {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
	}
	p := plan()
	p.Requests, p.Header = 1020, []attack.Field{{Name: "Authorization", Value: "Bearer " + validKey}}
	strict := checked(holder(func(r *http.Request) bool {
		scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		return strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(text) == validKey
	}, peer))
	found, err := attack.Run(t.Context(), serve(t, strict), p, func(attack.Finding) {})
	if err != nil || verdictOf(found, "credential") != attack.Widened || verdictOf(found, "claimed") != attack.Held ||
		verdictOf(found, "plain") != attack.Held {
		t.Fatalf("a limiter that knows one scheme: %+v, %v", found, err)
	}
	for _, f := range found {
		if f.Attack != "credential" {
			continue
		}
		for _, c := range f.Families {
			if read := c.Name == "under the scheme Token"; read && c.Admitted < 2 ||
				c.Name == "without a scheme" && c.Admitted > 0 {
				t.Errorf("%+v: want what the API reads to count, and nothing else", c)
			}
		}
		if f.Note != "" {
			t.Errorf("the note is %q, want none: everything was tried", f.Note)
		}
	}

	lenient := checked(holder(func(r *http.Request) bool {
		return strings.Contains(r.Header.Get("Authorization"), validKey)
	}, peer))
	found, err = attack.Run(t.Context(), serve(t, lenient), p, func(attack.Finding) {})
	if err != nil || verdictOf(found, "credential") != attack.Held || len(found) != 6 {
		t.Errorf("a limiter that reads all that the API does: %+v, %v", found, err)
	}
}

// TestLoopbackIsThisMachine: only this machine can be asked from several addresses.
func TestLoopbackIsThisMachine(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1:80":              true,
		"127.9.9.9:80":              true,
		"192.0.2.1:80":              false,
		"[::1]:80":                  false,
		"[::1]:80 127.0.0.1:80":     true,
		"127.0.0.1:80 192.0.2.1:80": false,
	} {
		var site attack.Site
		for _, one := range strings.Fields(text) {
			site.Addresses = append(site.Addresses, netip.MustParseAddrPort(one))
		}
		if got := site.Loopback(t.Context()); got != want {
			t.Errorf("Loopback of %s = %v, want %v", text, got, want)
		}
	}
}
