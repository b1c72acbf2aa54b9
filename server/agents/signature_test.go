package agents_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/server/agents"
)

// testKey is that of RFC 9421 appendix B.1.4, whose thumbprint is agents.TestKey.
var testKey, _ = base64.RawURLEncoding.DecodeString("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs")

// vectors are the test vectors for EdDSA of draft-meunier-webbotauth-httpsig-protocol.
var vectors = map[string]http.Header{
	"a dictionary": {
		"Signature-Agent": {`agent2="https://signature-agent.test"`},
		"Signature-Input": {`sig2=("@authority" "signature-agent";key="agent2");created=1735689600` +
			`;keyid="` + agents.TestKey + `";alg="ed25519";expires=4889289600` +
			`;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="` +
			`;tag="web-bot-auth"`},
		"Signature": {
			"sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:",
		},
	},
	"a text, as older drafts have it": {
		"Signature-Agent": {`"https://signature-agent.test"`},
		"Signature-Input": {`sig2=("@authority" "signature-agent");created=1735689600` +
			`;keyid="` + agents.TestKey + `";alg="ed25519";expires=1735693200` +
			`;nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg=="` +
			`;tag="web-bot-auth"`},
		"Signature": {
			"sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
		},
	},
}

// TestVectorsOfTheDraft: they are good at their API, in their time, once, where the test key may be.
func TestVectorsOfTheDraft(t *testing.T) {
	const made = 1735689600
	for name, header := range vectors {
		r := &identity.Signed{Method: "GET", Target: "/", Header: header}
		verify := func(at int64, edit func(*agents.Options)) func() identity.Rejection {
			v := newVerifier(t, at, publish(t, testKey), edit)
			v.AcceptTestKey()
			return func() identity.Rejection {
				found := v.VerifyAgents(r)
				if good := found.Why == identity.NotRejected; good != reflect.DeepEqual(
					found.Agents,
					[]identity.Agent{theAgent},
				) ||
					good == reflect.DeepEqual(found.Claimed, []identity.Agent{theAgent}) {
					t.Errorf("%s: VerifyAgents = %+v", name, found)
				}
				return found.Why
			}
		}
		here := verify(made+60, nil)
		for i, step := range []struct{ got, want identity.Rejection }{
			{here(), identity.NotRejected},
			{here(), identity.SignatureReplayed},
			{verify(made+60, func(o *agents.Options) { o.Origins = o.Origins[:1] })(), identity.SignatureRefused},
			{verify(made+3600, nil)(),
				map[bool]identity.Rejection{true: identity.SignatureStale}[strings.HasPrefix(name, "a text")]},
			{verify(made+3601, nil)(), identity.SignatureStale},
			{verify(made-1, nil)(), identity.SignatureStale},
			{verify(made-1, func(o *agents.Options) { o.Leeway = time.Second })(), identity.NotRejected},
		} {
			if step.got != step.want {
				t.Errorf("%s, step %d: %v, want %v", name, i, step.got, step.want)
			}
		}
		if found := newVerifier(
			t,
			made+60,
			publish(t, testKey),
			nil,
		).VerifyAgents(r); found.Why != identity.SignatureKeyUnknown {
			t.Errorf("%s, under a key that everybody has: %v", name, found.Why)
		}
	}
}

// TestVectorOfTheStandard is RFC 9421 appendix B.2.6: what is signed is written as it says.
func TestVectorOfTheStandard(t *testing.T) {
	const list = `("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`
	base, made := agents.Base(
		&identity.Signed{Method: "POST", Target: "/foo?param=Value&Pet=dog", Header: http.Header{
			"Date":            {"Tue, 20 Apr 2021 02:07:55 GMT"},
			"Content-Type":    {"application/json"},
			"Content-Length":  {"18"},
			"Signature-Input": {"sig-b26=" + list},
			"Signature": {
				"sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:",
			},
		}},
		"sig-b26",
		"https://example.com",
	)
	want := `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": ` + list
	if base != want || !ed25519.Verify(testKey, []byte(base), made) {
		t.Errorf("Base = %s\nwant %s", base, want)
	}
}

const (
	madeAt = 1735689600
	at     = madeAt + 60
	signer = `"signature-agent";key="a"`
	ofIt   = signer + `: "https://signature-agent.test"` + "\n"
	forUs  = `"@authority": example.com` + "\n"
)

// pair is a key, and what it is known by.
type pair struct {
	private    ed25519.PrivateKey
	public     ed25519.PublicKey
	thumbprint string
}

// thumbprint is that of a key (RFC 7638, RFC 8037 appendix A.3).
func thumbprint(key ed25519.PublicKey) string {
	sum := sha256.Sum256(
		[]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`),
	)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func newPair(seed byte) pair {
	private := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	p := pair{private: private, public: private.Public().(ed25519.PublicKey)}
	p.thumbprint = thumbprint(p.public)
	return p
}

// params are those that a signature has to have.
func (p pair) params() string {
	return fmt.Sprintf(`;created=%d;expires=%d;keyid="%s";tag="web-bot-auth"`, madeAt, madeAt+3600, p.thumbprint)
}

// sign signs a base, of which list says what it is.
func (p pair) sign(list, base string) http.Header {
	sig := ed25519.Sign(p.private, []byte(base+`"@signature-params": `+list))
	return http.Header{
		"Signature-Agent": {`a="https://signature-agent.test"`},
		"Signature-Input": {"a=" + list},
		"Signature":       {"a=:" + base64.StdEncoding.EncodeToString(sig) + ":"},
	}
}

func (p pair) usual() http.Header { return p.sign(`("@authority" `+signer+`)`+p.params(), forUs+ofIt) }

func TestSignatures(t *testing.T) {
	key, other := newPair('k'), newPair('o')
	tag := key.params()
	list := func(items string) string { return "(" + items + ")" + tag }
	with := func(old, now string) string {
		return `("@authority" ` + signer + `)` + strings.Replace(tag, old, now, 1)
	}
	const (
		good      = identity.NotRejected
		malformed = identity.SignatureMalformed
		unfit     = identity.SignatureUnfit
	)
	changed := func(h http.Header, edit func(http.Header)) http.Header { edit(h); return h }
	for name, c := range map[string]struct {
		header http.Header
		want   identity.Rejection
	}{
		"usual":             {key.usual(), good},
		"of nothing":        {key.sign(list(""), ""), unfit},
		"without the API":   {key.sign(list(signer), ofIt), unfit},
		"without the agent": {key.sign(list(`"@authority"`), forUs), unfit},
		"the scheme alone":  {key.sign(list(`"@scheme" `+signer), `"@scheme": https`+"\n"+ofIt), unfit},
		"of the target": {key.sign(list(`"@target-uri" `+signer),
			`"@target-uri": https://example.com/v1/items?x=1`+"\n"+ofIt), good},
		"of another target": {key.sign(list(`"@target-uri" `+signer),
			`"@target-uri": https://example.com/v1/items?x=2`+"\n"+ofIt), identity.SignatureRefused},
		"of scheme, method and path": {key.sign(list(`"@scheme" "@authority" "@method" "@path" "@query" `+signer),
			`"@scheme": https`+"\n"+forUs+"\"@method\": GET\n\"@path\": /v1/items\n\"@query\": ?x=1\n"+ofIt), good},
		"of another scheme": {key.sign(list(`"@scheme" "@authority" `+signer), `"@scheme": http`+"\n"+forUs+ofIt),
			identity.SignatureRefused},
		"of the request target": {key.sign(list(`"@authority" "@request-target" `+signer),
			forUs+`"@request-target": /v1/items?x=1`+"\n"+ofIt), good},
		"of another method": {key.sign(list(`"@authority" "@method" `+signer), forUs+"\"@method\": POST\n"+ofIt),
			identity.SignatureRefused},
		"of a field": {key.sign(list(`"@authority" "accept" `+signer),
			forUs+"\"accept\": text/html, text/plain\n"+ofIt),
			good},
		"of a field that is not there": {key.sign(list(`"@authority" "date" `+signer), forUs+"\"date\": \n"+ofIt),
			unfit},
		"a component twice": {key.sign(list(`"@authority" "@authority" `+signer), forUs+forUs+ofIt),
			malformed},
		"a component in capitals": {key.sign(list(`"@authority" "Accept" `+signer), forUs+ofIt), malformed},
		"of an answer": {key.sign(list(`"@authority";req `+signer),
			"\"@authority\";req: example.com\n"+ofIt), unfit},
		"of the status": {key.sign(list(`"@authority" "@status" `+signer),
			forUs+"\"@status\": 200\n"+ofIt), unfit},
		"of itself": {key.sign(list(`"@authority" "@signature-params" `+signer), forUs+ofIt), unfit},
		"of too much": {key.sign(list(`"@authority" `+signer+strings.Repeat(` "x"`, 15)),
			forUs+ofIt), malformed},
		"a parameter of a parameter": {key.sign(list(`"@authority" `+signer+` "accept";sf`), forUs+ofIt), unfit},
		"of all members": {key.sign(list(`"@authority" "signature-agent"`),
			forUs+`"signature-agent": a="https://signature-agent.test"`+"\n"), unfit},
		"another tag":        {key.sign(with("web-bot-auth", "x"), forUs+ofIt), good},
		"the tag elsewhere":  {key.sign(with(`tag="web-bot-auth"`, `tag="x";y="web-bot-auth"`), forUs+ofIt), good},
		"the algorithm":      {key.sign(list(`"@authority" `+signer)+`;alg="ed25519"`, forUs+ofIt), good},
		"another algorithm":  {key.sign(list(`"@authority" `+signer)+`;alg="hmac-sha256"`, forUs+ofIt), unfit},
		"further parameters": {key.sign(list(`"@authority" `+signer)+`;x=1;y=?0;z="z"`, forUs+ofIt), good},
		"no end":             {key.sign(with(fmt.Sprintf(";expires=%d", madeAt+3600), ""), forUs+ofIt), malformed},
		"no beginning":       {key.sign(with(fmt.Sprintf("created=%d;", madeAt), ""), forUs+ofIt), malformed},
		"beginning a text":   {key.sign(with(fmt.Sprintf("=%d;", madeAt), `="1";`), forUs+ofIt), malformed},
		"no key":             {key.sign(with(`keyid="`+key.thumbprint+`";`, ""), forUs+ofIt), malformed},
		"an empty nonce":     {key.sign(list(`"@authority" `+signer)+`;nonce=""`, forUs+ofIt), malformed},
		"a long nonce": {key.sign(list(`"@authority" `+signer)+`;nonce="`+strings.Repeat("n", 257)+`"`,
			forUs+ofIt), malformed},
		"ends before it begins": {key.sign(with(fmt.Sprint("expires=", madeAt+3600), fmt.Sprint("expires=", madeAt)),
			forUs+ofIt),
			malformed},
		"over": {key.sign(with(fmt.Sprint("expires=", madeAt+3600), fmt.Sprint("expires=", at)),
			forUs+ofIt), identity.SignatureStale},
		"old": {key.sign(with(fmt.Sprint("created=", madeAt), fmt.Sprint("created=", at-3601)),
			forUs+ofIt), identity.SignatureStale},
		"of the future": {key.sign(with(fmt.Sprint("created=", madeAt), fmt.Sprint("created=", at+1)), forUs+ofIt),
			identity.SignatureStale},
		"another's key": {other.sign(`("@authority" `+signer+`)`+other.params(), forUs+ofIt),
			identity.SignatureKeyUnknown},
		"by another": {other.sign(list(`"@authority" `+signer), forUs+ofIt), identity.SignatureRefused},
		"for another API": {key.sign(list(`"@authority" `+signer), "\"@authority\": example.net\n"+ofIt),
			identity.SignatureRefused},
		"its lines twice": {changed(key.usual(), func(h http.Header) {
			h.Add("Signature-Input",
				h.Get("Signature-Input"))
		}), good},
		"another signature after it": {changed(key.usual(), func(h http.Header) {
			h.Add("Signature-Input", `b=("date");created=1`)
			h.Add("Signature", "b=:AAAA:")
		}), good},
		"another's directory": {changed(key.usual(), func(h http.Header) {
			h.Set("Signature-Agent",
				`a="https://other.test"`)
		}),
			identity.AgentUnknown},
		"another member of the directory": {changed(key.usual(), func(h http.Header) {
			h.Set("Signature-Agent", `a="https://other.test", b="https://signature-agent.test"`)
		}), identity.AgentUnknown},
		"the directory's members twice": {changed(key.usual(), func(h http.Header) {
			h.Add("Signature-Agent", `a="https://other.test"`)
		}), identity.AgentUnknown},
		"no directory": {changed(key.usual(), func(h http.Header) { h.Del("Signature-Agent") }), unfit},
		"a path": {changed(key.usual(), func(h http.Header) {
			h.Set("Signature-Agent",
				`a="https://signature-agent.test/x"`)
		}), unfit},
		"a number": {changed(key.usual(), func(h http.Header) { h.Set("Signature-Agent", `a=1`) }), unfit},
		"a user": {changed(key.usual(), func(h http.Header) {
			h.Set("Signature-Agent",
				`a="https://u@signature-agent.test"`)
		}), unfit},
		"without TLS": {changed(key.usual(), func(h http.Header) {
			h.Set("Signature-Agent",
				`a="http://signature-agent.test"`)
		}),
			identity.AgentUnknown},
		"another way to keys": {key.sign(list(`"@authority" `+signer), forUs+signer+`: "https://signature-agent.test";type=jwks_uri`+"\n"), identity.SignatureRefused},
		"no signature":        {changed(key.usual(), func(h http.Header) { h.Del("Signature") }), malformed},
		"a short signature": {changed(key.usual(), func(h http.Header) { h.Set("Signature", "a=:AAAA:") }),
			malformed},
		"a signature of text": {changed(key.usual(), func(h http.Header) { h.Set("Signature", `a="x"`) }), malformed},
		"no dictionary":       {changed(key.usual(), func(h http.Header) { h.Add("Signature", "=") }), malformed},
		"too long": {changed(key.usual(), func(h http.Header) {
			h.Add("Signature-Input", "b="+strings.Repeat("1",
				4<<10))
		}),
			malformed},
		"too many": {changed(key.usual(), func(h http.Header) {
			for i := range 4 {
				h.Add("Signature-Input", fmt.Sprintf(`b%d=();tag="web-bot-auth"`, i))
			}
		}), malformed},
	} {
		v := newVerifier(t, at, publish(t, key.public), nil)
		for range 2 { // the second time it may be remembered
			c.header["Accept"] = []string{" text/html", "text/plain\t"}
			found := v.VerifyAgents(&identity.Signed{Method: "GET", Target: "/v1/items?x=1", Header: c.header})
			none := c.want == good && strings.Contains(name, " tag") || name == "the tag elsewhere"
			if found.Why != c.want || !none && (len(found.Agents) == 1) != (c.want == good || name == "too many") {
				t.Errorf("%s: VerifyAgents = %+v, want %v", name, found, c.want)
			}
		}
	}
	kind := key.sign(list(`"@authority" `+signer), forUs+signer+`: "https://signature-agent.test";type=jwks_uri`+"\n")
	kind.Set("Signature-Agent", `a="https://signature-agent.test";type=jwks_uri`)
	v := newVerifier(t, at, publish(t, key.public), nil)
	if found := v.VerifyAgents(&identity.Signed{Method: "GET", Target: "/", Header: kind}); found.Why != unfit {
		t.Errorf("a directory of another kind: %+v", found)
	}
}

// TestTwoSigners is the example of the draft in which a browser signs what an agent has signed: each is verified by
// itself, and neither is taken for the other.
func TestTwoSigners(t *testing.T) {
	a, b := newPair('a'), newPair('b')
	second := identity.Agent{ID: "browser.test"}
	v := newVerifier(t, at, publish(t, a.public), func(o *agents.Options) {
		o.Agents["https://browser.test"] = agents.Named{Agent: second, Keys: publish(t, b.public)}
	})
	h := a.usual()
	h.Set("Signature-Agent", `a="https://signature-agent.test", b="https://browser.test"`)
	_, made, _ := strings.Cut(h.Get("Signature-Input"), "=")
	list := `("@authority" "signature-agent";key="b" ` + signer + ` "signature-input";key="a" "signature";key="a")` + b.params()
	base := forUs + "\"signature-agent\";key=\"b\": \"https://browser.test\"\n" + ofIt +
		"\"signature-input\";key=\"a\": " + made + "\n\"signature\";key=\"a\": " +
		strings.TrimPrefix(h.Get("Signature"), "a=") + "\n"
	both := b.sign(list, base)
	h.Add("Signature-Input", "b="+strings.TrimPrefix(both.Get("Signature-Input"), "a="))
	h.Add("Signature", "b="+strings.TrimPrefix(both.Get("Signature"), "a="))
	r := &identity.Signed{Method: "GET", Target: "/", Header: h}
	for range 2 {
		if found := v.VerifyAgents(r); !reflect.DeepEqual(found.Agents, []identity.Agent{theAgent, second}) ||
			found.Why != identity.NotRejected {
			t.Errorf("VerifyAgents = %+v, want both", found)
		}
	}
	h["Signature"][0] = strings.Replace(h["Signature"][0], "a=:", "a=:A", 1)
	if found := v.VerifyAgents(r); len(found.Agents) != 0 {
		t.Errorf("with the first one broken: %+v, want neither", found)
	}
	h.Set("Signature-Input", "b="+strings.TrimPrefix(both.Get("Signature-Input"), "a="))
	if found := v.VerifyAgents(r); len(found.Agents) != 0 || found.Why == identity.NotRejected {
		t.Errorf("without the first one: %+v, want none: it covers it", found)
	}
}

// TestWhatIsCoveredIsWhatWasLimited: a signature of random components is good for the request that it was made for, and
// for another one exactly if what it covers is the same there, whether it is remembered or not.
func TestWhatIsCoveredIsWhatWasLimited(t *testing.T) {
	const seed = 16
	rng := rand.New(rand.NewPCG(seed, 0))
	key := newPair('k')
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	random := func() *identity.Signed {
		h := http.Header{}
		for range rng.IntN(3) {
			h.Add("Accept", pick("a", " b", "c "))
		}
		return &identity.Signed{Method: pick("GET", "POST"), Header: h,
			Target: pick("/", "/a", "/a/../b", "/%61") + pick("", "?", "?x=1", "?x=%31")}
	}
	value := func(r *identity.Signed, name string) (string, bool) { // the slow and obvious one
		path, query, _ := strings.Cut(r.Target, "?")
		switch name {
		case "@method":
			return r.Method, true
		case "@path":
			return path, true
		case "@query":
			return "?" + query, true
		case "@request-target":
			return r.Target, true
		case "@target-uri":
			return "https://example.com" + r.Target, true
		}
		var all []string
		for _, line := range r.Header.Values(name) {
			all = append(all, strings.TrimSpace(line))
		}
		return strings.Join(all, ", "), all != nil
	}
	good := 0
	v := newVerifier(t, at, publish(t, key.public), nil)
	tries := race.Fewer(2_000)
	for i := range tries {
		signed := random()
		items, base := `"@authority" `+signer, forUs+ofIt
		var covered []string
		for _, name := range []string{"@method", "@path", "@query", "@request-target", "@target-uri", "accept"} {
			if v, ok := value(signed, name); ok && rng.IntN(3) == 0 {
				covered = append(covered, name)
				items, base = items+` "`+name+`"`, base+`"`+name+`": `+v+"\n"
			}
		}
		header := key.sign("("+items+")"+key.params(), base)
		v.Forget()
		for range 5 {
			shown := random()
			same := true
			for _, name := range covered {
				a, ok1 := value(signed, name)
				b, ok2 := value(shown, name)
				same = same && a == b && ok1 == ok2
			}
			for name, lines := range header {
				shown.Header.(http.Header)[name] = lines
			}
			found := v.VerifyAgents(shown)
			if (len(found.Agents) == 1) != same || (found.Why == identity.NotRejected) != same {
				t.Fatalf(
					"seed %d, %d: signed %+v, covers %q, shown %+v: %+v, want good %t",
					seed,
					i,
					*signed,
					covered,
					*shown,
					found,
					same,
				)
			}
			if same {
				good++
			}
		}
	}
	if good < tries/2 {
		t.Errorf("%d of %d were good: the requests are too unlike each other", good, 5*tries)
	}
}
