package identity_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// bound verifies tokens "subject.key", of which those with an empty key are bound to none.
type bound struct{ countingTokens }

func (b *bound) Verify(ctx context.Context, token string) (identity.Claims, error) {
	c, err := b.countingTokens.Verify(ctx, token)
	_, c.Key, _ = strings.Cut(token, ".")
	return c, err
}

// proofs are good once, if they are "key" and are not asked too often.
type proofs struct {
	asked int
	shown map[string]bool
	last  identity.Proof
}

func (p *proofs) VerifyProof(proof *identity.Proof) identity.Rejection {
	p.asked, p.last = p.asked+1, *proof
	switch key, _, _ := strings.Cut(proof.Text, " "); {
	case key != proof.Key:
		return identity.ProofUnfit
	case p.shown[proof.Text]:
		return identity.ProofReplayed
	case proof.Spent:
		return identity.TokenFlood
	}
	if !proof.Look {
		p.shown[proof.Text] = true
	}
	return identity.NotRejected
}

func showing(token string, shown ...string) identity.Evidence {
	e := identity.Evidence{Peer: netip.MustParseAddr("192.0.2.1"), Method: "GET", Target: "/a",
		Header: http.Header{"Authorization": {"DPoP " + token}}}
	if shown != nil {
		e.Header.(http.Header)["Dpop"] = shown
	}
	return e
}

func TestBoundTokensNeedProofs(t *testing.T) {
	clock := newClock()
	tokens, p := &bound{countingTokens{until: clock.at.Add(1 << 40)}}, &proofs{shown: map[string]bool{}}
	who := newResolver(t, identity.Options{Tokens: tokens, Proofs: p, Now: clock.now})
	strict := newResolver(t, identity.Options{Tokens: tokens, Proofs: p, BoundOnly: true, Now: clock.now})
	for i, step := range []struct {
		who  *identity.Resolver
		e    identity.Evidence
		want identity.Rejection
	}{
		{who, showing("alice.k", "k 1"), identity.NotRejected},
		{who, showing("alice.k", "k 1"), identity.ProofReplayed},
		{who, showing("alice.k", "k 2"), identity.NotRejected}, // the token is remembered by now
		{who, showing("alice.k"), identity.ProofMissing},
		{who, showing("alice.k", ""), identity.ProofUnfit},
		{who, showing("alice.k", "k 3", "k 4"), identity.ProofMalformed},
		{who, showing("alice.k", "j 1"), identity.ProofUnfit},
		{who, showing("bob.", "k 5"), identity.NotRejected}, // bound to none
		{strict, showing("bob."), identity.TokenUnbound},
		{strict, showing("alice.k", "k 6"), identity.NotRejected},
	} {
		got := step.who.Resolve(t.Context(), step.e)
		if got.Rejected != step.want || (got.Kind == identity.Token) != (step.want == identity.NotRejected) {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
		if elsewhere := got.Elsewhere(); step.want == identity.NotRejected && elsewhere != nil ||
			step.want != identity.NotRejected && (len(elsewhere) != 1 || elsewhere[0].ID == "") {
			t.Errorf("step %d: elsewhere are %v, want whose the token is if it does not count", i, elsewhere)
		}
	}
	if p.last.Holder != "acme\x00alice" || p.last.Method != "GET" || p.last.Target != "/a" ||
		p.last.Token != "alice.k" {
		t.Errorf("the proof is said to be for %+v", p.last)
	}
}

// TestAProofIsForOneToken: of two tokens that one proof comes with, each is asked about.
func TestAProofIsForOneToken(t *testing.T) {
	clock := newClock()
	p := &proofs{shown: map[string]bool{}}
	who := newResolver(t, identity.Options{Tokens: &bound{}, Proofs: p, Now: clock.now})
	e := showing("alice.k", "k 1")
	e.Header.(http.Header).Add("Authorization", "Bearer mallory.j")
	var first identity.Principal
	others := who.ResolveAll(t.Context(), &e, &first, nil)
	if first.ID != "alice" || len(others) != 0 || first.Rejected != identity.ProofUnfit || p.asked != 2 {
		t.Errorf("%v and %v, asked %d times", first, others, p.asked)
	}
}

// TestProvenIsAskedOnce: whoever asks about a request again has no proof spent, and only with what was accepted of it.
func TestProvenIsAskedOnce(t *testing.T) {
	p := &proofs{shown: map[string]bool{}}
	who := newResolver(t, identity.Options{Tokens: &bound{}, Proofs: p})
	var memory identity.Proven
	e := showing("alice.k", "k 1")
	e.Proven = &memory
	for i := range 3 {
		if got := who.Resolve(t.Context(), e); got.ID != "alice" || p.asked != 1 {
			t.Errorf("ask %d: %v, asked %d times", i, got, p.asked)
		}
	}
	other := showing("mallory.k", "k 1")
	other.Proven = &memory
	if got := who.Resolve(t.Context(), other); got.Rejected != identity.ProofReplayed {
		t.Errorf("another token: %v", got)
	}
	stolen := showing("alice.k", "k 1")
	stolen.Proven = new(identity.Proven)
	for range 2 {
		if got := who.Resolve(t.Context(), stolen); got.Rejected != identity.ProofReplayed {
			t.Errorf("another request: %v", got)
		}
	}
}

// TestProofsThatFailAreBounded: whoever has a token and no key makes no signature checks without end; tokens of others
// at the address that are not bound go on, and so do those without any proof.
func TestProofsThatFailAreBounded(t *testing.T) {
	clock := newClock()
	p := &proofs{shown: map[string]bool{}}
	who := newResolver(t, identity.Options{Tokens: &bound{}, Proofs: p, Now: clock.now, TokenFailures: 4})
	for range 200 {
		who.Resolve(t.Context(), showing("alice.k", "j 1"))
	}
	if got := who.Resolve(t.Context(), showing("alice.k", "k 1")); got.Rejected != identity.TokenFlood {
		t.Errorf("a proof after 200 failed: %v", got)
	}
	if got := who.Resolve(t.Context(), showing("bob.")); got.ID != "bob" {
		t.Errorf("a token without a key: %v", got)
	}
	elsewhere := showing("alice.k", "k 1")
	elsewhere.Peer = netip.MustParseAddr("198.51.100.1")
	if got := who.Resolve(t.Context(), elsewhere); got.ID != "alice" {
		t.Errorf("from another address: %v", got)
	}
}

func TestProofsPrintNothing(t *testing.T) {
	e := showing("alice.secret", "secret 1")
	p := &proofs{shown: map[string]bool{}}
	e.Proven = new(identity.Proven)
	newResolver(t, identity.Options{Tokens: &bound{}, Proofs: p}).Resolve(t.Context(), e)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(strings.Repeat(verb, 3), e, e.Proven, &p.last); strings.Contains(text, "secret") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func TestProofsNeedTokens(t *testing.T) {
	for name, o := range map[string]identity.Options{
		"proofs alone": {Proofs: &proofs{}},
		"bound alone":  {Tokens: &bound{}, BoundOnly: true},
	} {
		if _, err := identity.New(o); err == nil ||
			!strings.Contains(err.Error(), "Tokens or Proofs is nil, want both") {
			t.Errorf("%s: New = %v", name, err)
		}
	}
}
