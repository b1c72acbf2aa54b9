package agents_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/agents"
	"github.com/headgate-io/headgate/server/once"
	"github.com/headgate-io/headgate/server/token"
)

// published are keys that do not change, and how often one was missed.
type published struct {
	set    *token.Set
	missed int
}

func (p *published) Set() *token.Set { return p.set }
func (p *published) Missing()        { p.missed++ }

func publish(t testing.TB, keys ...ed25519.PublicKey) *published {
	t.Helper()
	var texts []string
	for _, key := range keys {
		texts = append(texts, `{"kty":"OKP","crv":"Ed25519","x":"`+base64.RawURLEncoding.EncodeToString(key)+`"}`)
	}
	set, err := token.ParseDirectory([]byte(`{"keys":[` + strings.Join(texts, ",") + `]}`))
	if err != nil || set.Len() != len(keys) {
		t.Fatal(set, err)
	}
	return &published{set: set}
}

const directory = "https://signature-agent.test"

// theAgent is whose the directory is.
var theAgent = identity.Agent{ID: "signature-agent.test", Tier: "signed_agent"}

func newVerifier(t testing.TB, at int64, keys *published, edit func(*agents.Options)) *agents.Verifier {
	t.Helper()
	o := agents.Options{
		Origins: []string{"https://other.example", "https://example.com"},
		Agents:  map[string]agents.Named{directory: {Agent: theAgent, Keys: keys}},
		Now:     func() time.Time { return time.Unix(at, 0) },
	}
	if edit != nil {
		edit(&o)
	}
	v, err := agents.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestKeysComeAndGo: what was found good is so no longer once its key is withdrawn, or is not known at present.
func TestKeysComeAndGo(t *testing.T) {
	key, other := newPair('k'), newPair('o')
	keys := publish(t, key.public)
	v := newVerifier(t, at, keys, nil)
	r := &identity.Signed{Method: "GET", Target: "/", Header: key.usual()}
	for i, step := range []struct {
		set    *token.Set
		want   identity.Rejection
		missed int
	}{
		{keys.set, identity.NotRejected, 0}, {keys.set, identity.NotRejected, 0},
		{publish(t, other.public).set, identity.SignatureKeyUnknown, 1},
		{publish(t).set, identity.SignatureKeyUnknown, 2},
		{nil, identity.SignatureUnverified, 3},
		{publish(t, other.public, key.public).set, identity.NotRejected, 3},
	} {
		keys.set = step.set
		if found := v.VerifyAgents(r); found.Why != step.want || keys.missed != step.missed {
			t.Errorf("step %d: %+v, %d missed, want %v, %d", i, found, keys.missed, step.want, step.missed)
		}
	}
}

// TestClockSteps: whatever the clock does, a nonce is good once, and what is remembered counts within its time alone.
func TestClockSteps(t *testing.T) {
	key := newPair('k')
	now := int64(at)
	keys := publish(t, key.public)
	clock := func(o *agents.Options) { o.Now = func() time.Time { return time.Unix(now, 0) } }
	memory := once.New(agents.RememberedNonces, nil)
	v := newVerifier(t, 0, keys, func(o *agents.Options) { clock(o); o.Shown = memory })
	plain := key.usual()
	nonce := key.sign(`("@authority" `+signer+`)`+key.params()+`;nonce="n"`, forUs+ofIt)
	for i, step := range []struct {
		now    int64
		header http.Header
		want   identity.Rejection
	}{
		{at, plain, identity.NotRejected}, {at, nonce, identity.NotRejected},
		{madeAt - 1, plain, identity.SignatureStale}, {madeAt - 1, nonce, identity.SignatureStale},
		{madeAt, plain, identity.NotRejected}, {madeAt, nonce, identity.SignatureReplayed},
		{madeAt + 3599, plain, identity.NotRejected}, {madeAt + 3600, plain, identity.SignatureStale},
		{madeAt + 3599, nonce, identity.SignatureReplayed}, {at, plain, identity.NotRejected},
	} {
		now = step.now
		if found := v.VerifyAgents(
			&identity.Signed{Method: "GET", Target: "/", Header: step.header},
		); found.Why != step.want {
			t.Errorf("step %d: %+v, want %v", i, found, step.want)
		}
	}
	after := newVerifier(
		t,
		0,
		keys,
		func(o *agents.Options) { clock(o); o.Shown, o.MaxAge, o.Nonces = memory, 24*time.Hour, true },
	)
	now = at
	if found := after.VerifyAgents(&identity.Signed{Header: nonce}); found.Why != identity.SignatureReplayed {
		t.Errorf("after a reload: %+v, want a replay", found)
	}
	if found := after.VerifyAgents(&identity.Signed{Header: plain}); found.Why != identity.SignatureUnfit {
		t.Errorf("without the nonce that is asked for: %+v", found)
	}
}

// TestLooksAndFloods: a look spends no nonce, and where no signature is to be checked, those that are remembered count.
func TestLooksAndFloods(t *testing.T) {
	key := newPair('k')
	v := newVerifier(t, at, publish(t, key.public), nil)
	plain := key.usual()
	once := key.sign(`("@authority" `+signer+`)`+key.params()+`;nonce="n"`, forUs+ofIt)
	for i, step := range []struct {
		r    identity.Signed
		want identity.Rejection
	}{
		{identity.Signed{Header: once, Look: true}, identity.NotRejected},
		{identity.Signed{Header: once, Look: true}, identity.NotRejected},
		{identity.Signed{Header: once, Spent: true}, identity.SignatureFlood},
		{identity.Signed{Header: once}, identity.NotRejected},
		{identity.Signed{Header: once, Look: true}, identity.SignatureReplayed},
		{identity.Signed{Header: plain, Look: true}, identity.NotRejected},
		{identity.Signed{Header: plain, Spent: true}, identity.SignatureFlood},
		{identity.Signed{Header: plain}, identity.NotRejected},
		{identity.Signed{Header: plain, Spent: true}, identity.NotRejected},
	} {
		if found := v.VerifyAgents(&step.r); found.Why != step.want || found.Wrong != 0 {
			t.Errorf("step %d: %+v, want %v", i, found, step.want)
		}
	}
	wrong := newPair('o').sign(`("@authority" `+signer+`)`+key.params(), forUs+ofIt)
	if found := v.VerifyAgents(&identity.Signed{Header: wrong}); found.Wrong != 2 {
		t.Errorf("a wrong one: %+v, want 2 checks in vain, one for each origin", found)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := agents.New(agents.Options{
		Origins: []string{"https://api.example/v1"}, MaxAge: 25 * time.Hour, Leeway: -1,
		Agents: map[string]agents.Named{"https://A.example": {}, "https://b.example:443": {}},
	})
	for _, want := range []string{`Origins is "https://api.example/v1"`, `Agents has "https://A.example"`,
		`Agents has "https://b.example:443"`, `Agents["https://A.example"] has no ID`, "MaxAge is 25h",
		"Leeway is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
	if _, err := agents.New(agents.Options{}); err == nil || !strings.Contains(err.Error(), "Agents is empty") ||
		!strings.Contains(err.Error(), "Origins is empty") {
		t.Errorf("New: %v", err)
	}
}

// FuzzVerifyAgents: whatever stands in the fields, only what the agent has signed counts, and what is remembered counts
// as what is not.
func FuzzVerifyAgents(f *testing.F) {
	key := newPair('k')
	usual := key.usual()
	f.Add(usual.Get("Signature-Input"), usual.Get("Signature"), usual.Get("Signature-Agent"), "/a?b")
	for _, h := range vectors {
		f.Add(h.Get("Signature-Input"), h.Get("Signature"), h.Get("Signature-Agent"), "/")
	}
	f.Add(
		`a=("@authority" "signature-agent";key="a" "signature";key="a");tag="web-bot-auth"`,
		"a=:AA==:",
		`a="https://x"`,
		"",
	)
	v := newVerifier(f, at, publish(f, key.public), nil)
	whole, _, _ := strings.Cut(strings.TrimPrefix(usual.Get("Signature"), "a=:"), ":")
	want, _ := base64.StdEncoding.DecodeString(whole)
	f.Fuzz(func(t *testing.T, input, signature, agent, target string) {
		r := &identity.Signed{Method: "GET", Target: target, Header: http.Header{
			"Signature-Input": {input}, "Signature": {signature}, "Signature-Agent": {agent}}}
		v.Forget()
		first := v.VerifyAgents(r)
		again := v.VerifyAgents(r)
		if !reflect.DeepEqual(first, again) {
			t.Errorf("%+v, and again %+v", first, again)
		}
		if len(first.Agents) == 0 {
			return
		}
		label, _, _ := strings.Cut(input, "=")
		if _, made := agents.Base(r, strings.TrimSpace(label), "https://example.com"); len(first.Agents) != 1 ||
			first.Agents[0] != theAgent || !strings.Contains(input, "web-bot-auth") || made != nil &&
			string(made) != string(want) {
			t.Errorf("VerifyAgents(%q, %q, %q) = %+v", input, signature, agent, first)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	key := newPair('k')
	for name, c := range map[string]struct {
		header http.Header
		look   bool
	}{
		"cold":       {key.usual(), true},
		"remembered": {key.usual(), false},
		"remembered with method and path": {key.sign(`("@authority" "@method" "@path" `+signer+`)`+key.params(),
			forUs+"\"@method\": GET\n\"@path\": /\n"+ofIt), false},
	} {
		b.Run(name, func(b *testing.B) {
			v := newVerifier(b, at, publish(b, key.public), func(o *agents.Options) { o.Origins = o.Origins[1:] })
			r := &identity.Signed{Method: "GET", Target: "/", Header: c.header, Look: c.look}
			if !c.look {
				v.VerifyAgents(r)
			}
			b.ReportAllocs()
			for b.Loop() {
				if found := v.VerifyAgents(r); found.Why != identity.NotRejected {
					b.Fatal(found.Why)
				}
			}
		})
	}
	b.Run("malformed", func(b *testing.B) {
		h := key.usual()
		h.Add("Signature-Input", strings.Repeat(`a=("x";a;b;c "y";d;e;f), `, 90)+"b=")
		v := newVerifier(b, at, publish(b, key.public), nil)
		for b.Loop() {
			v.VerifyAgents(&identity.Signed{Header: h})
		}
	})
}

// BenchmarkEd25519 is what of BenchmarkVerify/cold is the signature.
func BenchmarkEd25519(b *testing.B) {
	key := newPair('k')
	text := make([]byte, 300)
	sig := ed25519.Sign(key.private, text)
	for b.Loop() {
		ed25519.Verify(key.public, text, sig)
	}
}
