package identity_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// signatures says what became of those in the field Signature-Input: names of agents, with what is wrong behind a "!".
type signatures struct {
	asked int
	last  identity.Signed
}

func (s *signatures) VerifyAgents(r *identity.Signed) (found identity.Signers) {
	s.asked, s.last = s.asked+1, *r
	if r.Spent {
		return identity.Signers{Why: identity.SignatureFlood}
	}
	for _, name := range strings.Fields(r.Header.Values("Signature-Input")[0]) {
		name, wrong, bad := strings.Cut(name, "!")
		agent := identity.Agent{ID: name, Tier: "signed_agent"}
		if !bad {
			found.Agents = append(found.Agents, agent)
			continue
		}
		for why := identity.AgentUnknown; why <= identity.SignatureUnverified; why++ {
			if why.Code() == wrong {
				found.Why = why
			}
		}
		if found.Why != identity.AgentUnknown {
			found.Claimed = append(found.Claimed, agent)
		}
		if found.Why == identity.SignatureRefused {
			found.Wrong++
		}
	}
	return found
}

func signedBy(names string, more ...string) identity.Evidence {
	h := http.Header{"Signature-Input": {names}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return identity.Evidence{Peer: netip.MustParseAddr("192.0.2.1"), Method: "GET", Target: "/a", Header: h}
}

// TestSignedAgents: who has signed is a principal, behind those of other credentials and before the address; whom a bad
// signature names is elsewhere.
func TestSignedAgents(t *testing.T) {
	clock := newClock()
	tokens := &countingTokens{until: clock.at.Add(1 << 40)}
	all := newResolver(t, identity.Options{Agents: &signatures{}, Tokens: tokens, Now: clock.now})
	first := newResolver(t, identity.Options{Agents: &signatures{}, Tokens: tokens, Now: clock.now,
		Credentials: identity.FirstCredentials})
	off := newResolver(t, identity.Options{Tokens: tokens, Now: clock.now})
	bearer := []string{"Authorization", "Bearer alice"}
	names := func(of []identity.Principal) (list string) {
		for _, p := range of {
			list += fmt.Sprintf("%v %s %s;", p.Kind, p.ID, p.Tier)
		}
		return list
	}
	for i, step := range []struct {
		who       *identity.Resolver
		e         identity.Evidence
		want      string // all principals
		rejected  identity.Rejection
		elsewhere string
	}{
		{all, signedBy("a"), "signed_agent a signed_agent;", 0, ""},
		{all, signedBy("a b a"), "signed_agent a signed_agent;signed_agent b signed_agent;", 0, ""},
		{all, signedBy("a", bearer...), "token alice gold;signed_agent a signed_agent;", 0, ""},
		{first, signedBy("a", bearer...), "token alice gold;", 0, ""},
		{first, signedBy("a b"), "signed_agent a signed_agent;signed_agent b signed_agent;", 0, ""},
		{off, signedBy("a"), "address  ;", 0, ""},
		{all, signedBy(""), "address  ;", 0, ""},
		{all, signedBy("a!signature_refused"), "address  ;", identity.SignatureRefused, "signed_agent a signed_agent;"},
		{all, signedBy("a!signature_stale b"), "signed_agent b signed_agent;", identity.SignatureStale,
			"signed_agent a signed_agent;"},
		{all, signedBy("a!agent_unknown"), "address  ;", identity.AgentUnknown, ""},
		{all, signedBy("a!agent_unknown", bearer...), "token alice gold;", 0, ""},
		{all, signedBy("a!signature_unfit", bearer...), "token alice gold;", identity.SignatureUnfit,
			"signed_agent a signed_agent;"},
		{first, signedBy("a!signature_unfit", bearer...), "token alice gold;", identity.SignatureUnfit, ""},
		{all, signedBy("a!signature_unverified", "Authorization", "Bearer !"), "address  ;",
			identity.SignatureUnverified,
			"signed_agent a signed_agent;"},
	} {
		var who identity.Principal
		others := step.who.ResolveAll(t.Context(), &step.e, &who, nil)
		got := names(append([]identity.Principal{who}, others...))
		if got != step.want || who.Rejected != step.rejected || names(who.Elsewhere()) != step.elsewhere {
			t.Errorf("step %d: %s, %v, elsewhere %s, want %s, %v, %s", i, got, who.Rejected, names(who.Elsewhere()),
				step.want, step.rejected, step.elsewhere)
		}
	}
	user := signedBy("a")
	user.User = &identity.User{ID: "u"}
	if who := all.Resolve(t.Context(), user); who.Kind != identity.LoggedIn {
		t.Errorf("beside a user: %v", who)
	}
}

// TestWrongSignaturesAreCounted: who sends many has others not looked at, for a time, and his tokens are.
func TestWrongSignaturesAreCounted(t *testing.T) {
	clock, s := newClock(), &signatures{}
	who := newResolver(t, identity.Options{Agents: s, Now: clock.now, TokenFailures: 3, TokenFailuresPerSecond: 1,
		Tokens: &countingTokens{until: clock.at.Add(1 << 40)}})
	wrong := signedBy("a!signature_refused b!signature_refused")
	for i, want := range []identity.Rejection{identity.SignatureRefused, identity.SignatureRefused,
		identity.SignatureFlood} {
		if got := who.Resolve(t.Context(), wrong); got.Rejected != want {
			t.Errorf("step %d: %v, want %v", i, got, want)
		}
	}
	if got := who.Resolve(t.Context(), signedBy("a", "Authorization", "Bearer alice")); got.Kind != identity.Token ||
		got.Rejected != identity.SignatureFlood || got.Rejected.Bad() || !got.Rejected.Unverified() {
		t.Errorf("with a token: %v", got)
	}
	other := signedBy("a")
	other.Peer = netip.MustParseAddr("192.0.2.2")
	if got := who.Resolve(t.Context(), other); got.Kind != identity.SignedAgent {
		t.Errorf("from elsewhere: %v", got)
	}
	clock.advance(4e9)
	if got := who.Resolve(t.Context(), signedBy("a")); got.Kind != identity.SignedAgent {
		t.Errorf("later: %v", got)
	}
}

// TestSignaturesAreAskedOnce: whoever asks again about a request is told the same, without another look, and nothing is
// printed of what was signed.
func TestSignaturesAreAskedOnce(t *testing.T) {
	clock, s := newClock(), &signatures{}
	who := newResolver(t, identity.Options{Agents: s, Now: clock.now})
	e := signedBy("a")
	if !identity.NeedsProven(e.Header.(http.Header)) {
		t.Error("NeedsProven = false for a signed request")
	}
	e.Proven = new(identity.Proven)
	for range 3 {
		if got := who.Resolve(t.Context(), e); got.ID != "a" {
			t.Errorf("Resolve = %v", got)
		}
	}
	if s.asked != 1 || s.last.Method != "GET" || s.last.Target != "/a" {
		t.Errorf("asked %d times, last about %s %s, want once", s.asked, s.last.Method, s.last.Target)
	}
	e.Header = http.Header{"Signature-Input": {"b"}}
	if got := who.Resolve(t.Context(), e); got.ID != "b" {
		t.Errorf("with another signature: %v", got)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, &s.last); strings.Contains(text, "/a") || text == "" {
			t.Errorf("%s prints %s", format, text)
		}
	}
	if got := reflect.TypeFor[identity.Principal](); !got.Comparable() {
		t.Error("principals are not comparable")
	}
}
