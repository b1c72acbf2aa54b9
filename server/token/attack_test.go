package token_test

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/token"
)

// attack is one case of jwt-attack-cases.json as tokens.
type attack struct {
	algorithms []string // RS256 if empty
	keys       []string // k1, the tests' RSA key, if empty
	refused    []string // tokens that are worth nothing
	believed   []string // tokens that are alice's, all the same
	set        bool     // the keys themselves are refused
}

const head = `{"alg":"RS256","kid":"k1"}`

// TestAttackCases makes the tokens of every case and shows them to a Resolver:
// what is refused counts against its address, bit by bit.
func TestAttackCases(t *testing.T) {
	var file struct {
		Cases []struct{ Name, Expected string }
	}
	data, err := os.ReadFile("testdata/jwt-attack-cases.json")
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	attacks, elsewhere := attacks(t), map[string]bool{"scheme": true, "fallback": true}
	for _, c := range file.Cases {
		a, ok := attacks[c.Name]
		if !ok {
			if !elsewhere[c.Name] {
				t.Errorf("%s is not tried", c.Name)
			}
			continue
		}
		delete(attacks, c.Name)
		t.Run(c.Name, func(t *testing.T) { a.try(t, c.Expected) })
	}
	for name := range attacks {
		t.Errorf("%s is no case of the file", name)
	}
}

func (a attack) try(t *testing.T, expected string) {
	if a.algorithms == nil {
		a.algorithms = []string{"RS256"}
	}
	if a.keys == nil {
		a.keys = []string{rsaJWK("k1", &rsaKey.PublicKey, "")}
	}
	set, err := token.ParseJWKS(jwks(a.keys...), a.algorithms, false)
	if a.set != (err != nil) {
		t.Fatalf("the keys: %v; %s", err, expected)
	}
	who := resolver(t, &keySource{set: set}, func(o *token.Options) {
		o.Algorithms, o.Project = a.algorithms, "project_id"
	})
	address := resolve(who, "")
	if len(a.refused)+len(a.believed) == 0 && !a.set {
		t.Fatal("nothing is tried")
	}
	for _, text := range a.refused {
		p := resolve(who, text)
		if p.Rejected == identity.NotRejected || string(p.AppendSubject(nil)) != string(address.AppendSubject(nil)) {
			t.Errorf("%.120q is %v; expected: %s", text, p, expected)
		}
	}
	for _, text := range a.believed {
		if p := resolve(who, text); p.Kind != identity.Token || p.ID != "alice" {
			t.Errorf("%.120q is %v; expected: %s", text, p, expected)
		}
	}
}

func attacks(t *testing.T) map[string]attack {
	fetched := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("what a header says was fetched")
	}))
	t.Cleanup(fetched.Close)

	good := claims(nil)
	unsigned := func(header string) string { return b64([]byte(header)) + "." + b64([]byte(good)) + "." }
	rs := func(header string) string { return sign(header, good, rsaKey) }
	with := func(name string, value any) string { return sign(head, claims(map[string]any{name: value}), rsaKey) }
	raw := func(payload string) string { return sign(head, payload, rsaKey) }
	valid := rs(head)
	signed, sig := valid[:strings.LastIndex(valid, ".")], valid[strings.LastIndex(valid, ".")+1:]
	bytes, _ := base64.RawURLEncoding.DecodeString(sig)
	der, _ := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	pemText := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	jwk := rsaJWK("k1", &rsaKey.PublicKey, "")
	ecDER, _ := x509.MarshalPKIXPublicKey(&ecKey.PublicKey)
	ecPoint, _ := ecKey.PublicKey.Bytes()
	ecJWKText := ecJWK("k1", &ecKey.PublicKey, "")
	hs := func(keys ...[]byte) (all []string) {
		for _, key := range keys {
			all = append(all, sign(`{"alg":"HS256","kid":"k1"}`, good, key), sign(`{"alg":"HS256"}`, good, key),
				sign(head, good, key)) // the confusion the other way
		}
		return all
	}
	es := `{"alg":"ES256","kid":"k1"}`
	esToken := sign(es, good, ecKey)
	esSigned, esSig := esToken[:strings.LastIndex(esToken, ".")], signaturePart(esToken)
	kid := func(id string) string { return rs(`{"alg":"RS256","kid":` + quote(id) + `}`) }
	epoch := now.Unix()

	return map[string]attack{
		"alg-none": {refused: []string{unsigned(`{"alg":"none"}`), unsigned(`{"alg":"None","kid":"k1"}`),
			unsigned(`{"alg":"NONE"}`), unsigned(`{"alg":"nOnE"}`), unsigned(`{"alg":""}`)}},
		"alg-none-with-sig": {refused: []string{rs(`{"alg":"none"}`), rs(`{"alg":"none","kid":"k1"}`)}},
		"missing-alg": {refused: []string{rs(`{"kid":"k1"}`), rs(`{"alg":null,"kid":"k1"}`),
			rs(`{"alg":["RS256"],"kid":"k1"}`), rs(`{"ALG":"RS256","kid":"k1"}`)}},
		"hs-rs-confusion": {refused: hs(pemText, pemText[:len(pemText)-1], der, []byte(jwk), rsaKey.N.Bytes(), nil)},
		"es-hs-confusion": {
			algorithms: []string{"ES256"},
			keys:       []string{ecJWKText},
			refused:    hs(ecDER, ecPoint, ecPoint[1:33], []byte(ecJWKText)),
		},
		"embedded-jwk": {refused: []string{
			sign(`{"alg":"RS256","kid":"k1","jwk":`+rsaJWK("k1", &otherRSA.PublicKey, "")+`}`, good, otherRSA),
			sign(`{"alg":"RS256","jwk":`+rsaJWK("k1", &otherRSA.PublicKey, "")+`}`, good, otherRSA)}},
		"jku-x5u": {refused: []string{
			sign(`{"alg":"RS256","kid":"k1","jku":"`+fetched.URL+`"}`, good, otherRSA),
			sign(`{"alg":"RS256","kid":"k1","x5u":"`+fetched.URL+`"}`, good, otherRSA)}},
		"x5c": {refused: []string{sign(`{"alg":"RS256","kid":"k1","x5c":["`+
			base64.StdEncoding.EncodeToString(der)+`"]}`, good, otherRSA)}},
		"kid-traversal": {refused: []string{kid("../../dev/null"), kid("/proc/sys/kernel/randomize_va_space"),
			kid("k1/../k1")}},
		"kid-sql": {refused: []string{kid("x' UNION SELECT 'key"), kid("k1' OR '1'='1")}},
		"kid-cmd": {refused: []string{kid("key;sleep 5|"), kid("k1;id")}},
		"kid-huge": {refused: []string{kid(strings.Repeat("k", 1<<20)), kid(strings.Repeat("k", 257)),
			kid(strings.Repeat("k", 1400)), kid("k1\x00"), kid("k1\n"), kid(""), rs(`{"alg":"RS256","kid":1}`),
			rs(`{"alg":"RS256","kid":null}`)}},
		"kid-missing-multi": {keys: []string{jwk, rsaJWK("k2", &otherRSA.PublicKey, "")},
			refused:  []string{rs(`{"alg":"RS256"}`), sign(`{"alg":"RS256"}`, good, otherRSA)},
			believed: []string{valid}},
		"duplicate-kid": {keys: []string{jwk, rsaJWK("k1", &otherRSA.PublicKey, "")}, set: true,
			refused: []string{valid}},
		"mixed-keyset": {
			keys:    []string{jwk, `{"kty":"oct","kid":"k2","k":"` + b64(make([]byte, 32)) + `"}`},
			set:     true,
			refused: []string{valid},
		},
		"wrong-use": {
			keys: []string{rsaJWK("k1", &rsaKey.PublicKey, `,"use":"enc"`), rsaJWK("k2", &rsaKey.PublicKey,
				`,"key_ops":["encrypt"]`), rsaJWK("k3", &rsaKey.PublicKey, `,"key_ops":[]`)},
			set:     true,
			refused: []string{valid},
		},

		"empty-signature": {refused: []string{signed + ".", signed, signed + ".AA"}},
		"psychic-signature": {
			algorithms: []string{"ES256"},
			keys:       []string{ecJWKText},
			refused: []string{esSigned + "." + b64(make([]byte, 64)), esSigned + "." + b64(make([]byte, 0)),
				esSigned + "." + b64(append(make([]byte, 32), elliptic.P256().Params().N.Bytes()...))},
		},
		"ecdsa-der": {
			algorithms: []string{"ES256"},
			keys:       []string{ecJWKText},
			refused:    []string{esSigned + "." + b64(asDER(esSig))},
			believed:   []string{esToken},
		},
		"ecdsa-malleable": {
			algorithms: []string{"ES256"},
			keys:       []string{ecJWKText},
			believed:   []string{esToken, esSigned + "." + b64(mirrored(esSig))},
		},
		"truncated-sig": {refused: []string{signed + "." + b64(bytes[:len(bytes)-1]), signed + "." + b64(bytes[1:]),
			signed + "." + b64(append([]byte{0}, bytes...)),
			signed + "." + b64(append(bytes[:len(bytes):len(bytes)], 0))}},
		// The signature is the one part whose other spellings verify elsewhere: they are the same principal's.
		"b64-variants": {refused: []string{strings.Replace(valid, ".", "=.", 1), valid[:20] + "\r\n" + valid[20:]},
			believed: []string{valid + "=", valid + "==", signed + "." + base64.URLEncoding.EncodeToString(bytes),
				strings.NewReplacer("-", "+", "_", "/").Replace(withMarks(t, head)), valid + "\n", looseBits(valid)}},
		"json-serialization": {refused: []string{`{"payload":"` + b64([]byte(good)) + `","protected":"` +
			b64([]byte(head)) + `","signature":"` + sig + `"}`, `{"payload":"` + b64([]byte(good)) +
			`","signatures":[{"protected":"` + b64([]byte(head)) + `","signature":"` + sig + `"}]}`}},
		"parts": {refused: []string{"a", "a.b", signed, valid + ".", valid + ".a", valid + "." + sig + ".b",
			strings.Repeat(".", 8000), strings.Repeat(".", 1<<20), strings.Repeat("a.", 4000), "..", "." + signed}},
		"crit": {refused: []string{rs(`{"alg":"RS256","kid":"k1","crit":["exp"]}`),
			rs(`{"alg":"RS256","kid":"k1","crit":[]}`), rs(`{"alg":"RS256","kid":"k1","crit":["x"],"x":1}`)}},
		"b64-false": {refused: []string{rs(`{"alg":"RS256","kid":"k1","b64":false,"crit":["b64"]}`),
			rs(`{"alg":"RS256","kid":"k1","b64":false}`), rs(`{"alg":"RS256","kid":"k1","b64":true}`)}},
		"zip-bomb": {refused: []string{b64([]byte(`{"alg":"dir","enc":"A256GCM","zip":"DEF"}`)) + "..AAAA.AAAA.AAAA",
			rs(`{"alg":"RS256","kid":"k1","enc":"A256GCM","zip":"DEF"}`),
			rs(`{"alg":"RS256","kid":"k1","zip":"DEF"}`)}},
		"pbes2": {
			refused: []string{b64([]byte(`{"alg":"PBES2-HS256+A128KW","p2c":2147483647,"p2s":"AA","enc":"A128GCM"}`)) +
				".AAAA.AAAA.AAAA.AAAA", rs(`{"alg":"PBES2-HS256+A128KW","p2c":2147483647,"kid":"k1"}`)}},

		"expired": {
			refused:  []string{with("exp", epoch), with("exp", epoch-31), with("exp", 0)},
			believed: []string{with("exp", epoch+1)},
		},
		"nbf-future": {
			refused:  []string{with("nbf", epoch+1), with("nbf", epoch+86400)},
			believed: []string{with("nbf", epoch)},
		},
		"iat-future": {
			refused:  []string{with("iat", epoch+1), with("iat", epoch+1e6)},
			believed: []string{with("iat", epoch)},
		},
		"exp-types": {refused: []string{with("exp", "1900000000"),
			raw(strings.Replace(good, `"exp":`, `"exp":1e308,"x":`, 1)), with("exp", -1), with("exp", nil),
			with("exp", true), with("exp", []int{1900000000}),
			raw(strings.Replace(good, `"exp":`, `"exp":null,"x":`, 1)),
			raw(strings.Replace(good, `"exp":`, `"exp":99999999999999999999,"x":`, 1)),
			raw(strings.Replace(good, `"exp":`, `"exp":01,"x":`, 1))}, believed: []string{with("exp", 1900000000.5)}},
		"aud-array": {refused: []string{with("aud", nil), with("aud", []string{}), with("aud", []string{"other"}),
			with("aud", "api2"), with("aud", "API"), with("aud", []any{"api", 1}),
			with("aud", map[string]string{"api": "api"}), with("aud", "api "), with("aud", []any{[]string{"api"}})},
			believed: []string{with("aud", "api"), with("aud", []string{"api"}),
				with("aud", []string{"other", "api"})}},
		"iss-mismatch": {refused: []string{with("iss", "https://issuer.example/"),
			with("iss", "https://issuer.example.evil"), with("iss", "HTTPS://issuer.example"), with("iss", nil),
			with("iss", []string{"https://issuer.example"}), with("iss", "")}},
		"sub-missing": {
			refused: []string{with("sub", nil), with("sub", ""), with("sub", 1), with("sub", []string{"alice"}),
				with("sub", strings.Repeat("x", 64<<10)), with("sub", strings.Repeat("x", 257)), with("sub", "a\x00"),
				with("sub", "a\nb"), with("sub", "a\x7f"), raw(strings.Replace(good, `"alice"`, `null`, 1)),
				raw(strings.Replace(good, `"alice"`, `"\ud800"`, 1)),
				raw(strings.Replace(good, `"alice"`, "\"\xff\"", 1))},
			believed: []string{raw(strings.Replace(good, `"alice"`, `"\u0061lice"`, 1))},
		},
		"duplicate-claims": {refused: []string{raw(strings.Replace(good, `"sub":`, `"sub":"a","sub":`, 1)),
			raw(strings.Replace(good, `"sub":`, `"s\u0075b":"a","sub":`, 1)),
			raw(strings.Replace(good, `"sub":`, `"x":{"a":1,"a":1},"sub":`, 1)),
			raw(strings.Replace(good, `"sub":`, `"x":[{"a":1,"a":1}],"sub":`, 1)),
			rs(`{"alg":"RS256","alg":"RS256","kid":"k1"}`), rs(`{"alg":"none","alg":"RS256","kid":"k1"}`)},
			believed: []string{raw(strings.Replace(good, `"sub":`, `"x":{"a":1,"sub":1},"y":{"a":1},"sub":`, 1))}},
		"case-claims": {refused: []string{raw(strings.Replace(good, `"sub":`, `"SUB":`, 1)),
			raw(strings.Replace(good, `"sub":`, `"Sub":`, 1)), raw(strings.Replace(good, `"exp":`, `"EXP":`, 1)),
			raw(strings.Replace(good, `"sub":`, `"ſub":`, 1))}},
		"tenant-claim-type": {
			refused: []string{with("project_id", 1), with("project_id", 1.5),
				raw(strings.Replace(good, `"sub":`, `"project_id":1.0,"sub":`, 1)), with("project_id", ""),
				with("project_id", map[string]string{}), with("project_id", false)},
			believed: []string{with("project_id", "1")},
		},

		"token-parse-error-order": {refused: []string{sign(head, claims(map[string]any{"exp": 1}), otherRSA)}},
		"replay-other-alg-same-kid": {
			algorithms: []string{"RS256", "PS256"},
			keys:       []string{rsaJWK("k1", &rsaKey.PublicKey, `,"alg":"RS256"`)},
			refused:    []string{signPSS(`{"alg":"PS256","kid":"k1"}`, good, rsaKey)},
			believed:   []string{valid},
		},
	}
}

func quote(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

func signaturePart(text string) []byte {
	b, _ := base64.RawURLEncoding.DecodeString(text[strings.LastIndex(text, ".")+1:])
	return b
}

func asDER(rs []byte) []byte {
	der, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(rs[:32]), new(big.Int).SetBytes(rs[32:])})
	if err != nil {
		panic(err)
	}
	return der
}

// mirrored is the other signature that ECDSA has for the same message.
func mirrored(rs []byte) []byte {
	s := new(big.Int).Sub(elliptic.P256().Params().N, new(big.Int).SetBytes(rs[32:]))
	return append(rs[:32:32], s.FillBytes(make([]byte, 32))...)
}

// withMarks is a good token whose signature holds - or _.
func withMarks(t *testing.T, head string) string {
	for i := range 100 {
		text := sign(head, claims(map[string]any{"i": i}), rsaKey)
		if strings.ContainsAny(text[strings.LastIndex(text, "."):], "-_") {
			return text
		}
	}
	t.Fatal("no signature holds - or _")
	return ""
}

// looseBits sets a bit behind the last byte of the signature: 256 bytes leave
// four of them.
func looseBits(text string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, text[len(text)-1])
	return text[:len(text)-1] + alphabet[last|1:last|1+1]
}

func resolver(t testing.TB, keys token.KeySource, edit func(*token.Options)) *identity.Resolver {
	t.Helper()
	who, err := identity.New(identity.Options{
		Tokens: newVerifier(t, keys, edit), TokenFailures: -1, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return who
}

var peer = netip.MustParseAddr("203.0.113.9")

func resolve(who *identity.Resolver, text string) identity.Principal {
	header := http.Header{}
	if text != "" {
		header.Set("Authorization", "Bearer "+text)
	}
	return who.Resolve(context.Background(), identity.Evidence{Peer: peer, Header: header})
}

// TestAttackScheme is the case scheme: how a token may be shown.
func TestAttackScheme(t *testing.T) {
	who := resolver(t, &keySource{set: parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))}, nil)
	valid := sign(head, claims(nil), rsaKey)
	for _, c := range []struct {
		lines []string
		want  identity.Kind
	}{
		{[]string{"Bearer " + valid}, identity.Token},
		{[]string{"bearer " + valid}, identity.Token},
		{[]string{"BEARER  " + valid}, identity.Token},
		// Servers read these too, and the budget is the token's whoever does.
		{[]string{"Basic " + valid}, identity.Token},
		{[]string{"Bearer\t" + valid}, identity.Token},
		{[]string{"Bearer" + valid}, identity.Token},
		{[]string{valid}, identity.Token},
		{[]string{"Bearer " + valid, "Bearer " + valid}, identity.Token},
		{[]string{"Bearer " + valid + ", Bearer " + valid}, identity.Token},
		{[]string{"Bearer " + valid + " "}, identity.Token},
		{[]string{"Bearer " + valid + " x"}, identity.Token},
		{[]string{"Basic YTpi", "Bearer " + valid}, identity.Token},
		{[]string{"Basic YTpi"}, identity.Address},
		{[]string{"Bearer x" + valid}, identity.Address},
	} {
		p := who.Resolve(context.Background(), identity.Evidence{Peer: peer,
			Header: http.Header{"Authorization": c.lines}})
		if p.Kind != c.want {
			t.Errorf("%.20q ×%d is %v, want kind %v", c.lines[0], len(c.lines), p, c.want)
		}
	}
}

// TestAttackFallback is the case fallback: ten thousand bad tokens from one
// address make one bucket and get what the address gets.
func TestAttackFallback(t *testing.T) {
	who := resolver(t, &keySource{set: parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))}, nil)
	lim, buckets := newLimiter(t, who)
	valid := sign(head, claims(nil), rsaKey)
	refused := attacks(t)["parts"].refused
	allowed := 0
	for i := range race.Fewer(10_000) {
		text := refused[i%len(refused)]
		if i%2 == 0 { // forged, each another one
			text = b64([]byte(head)) + "." + b64([]byte(claims(map[string]any{"sub": fmt.Sprint("user", i)}))) +
				valid[strings.LastIndex(valid, "."):]
		}
		d := lim.Check(context.Background(), headgate.Request{
			Method: "GET",
			Target: "/x",
			Peer:   peer,
			Header: http.Header{"Authorization": {"Bearer " + text}},
		})
		if d.Allowed {
			allowed++
		}
	}
	if s := buckets.Stats(now.UnixNano()); allowed != 5 || s.Created != 1 {
		t.Errorf("%d requests are allowed and %d buckets created, want 5 and 1", allowed, s.Created)
	}
}

func newLimiter(t *testing.T, who *identity.Resolver) (*headgate.Limiter, *memory.Store) {
	t.Helper()
	template, err := endpoint.ParseTemplate("GET /x")
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	rules, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5,
		Per: time.Hour}}}, policy.CompileOptions{Endpoints: endpoints})
	if rules == nil {
		t.Fatal(problems.Err())
	}
	buckets, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{
		Endpoints: endpoints, Policies: headgate.Fixed(rules), Buckets: buckets, Identities: who,
		Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return lim, buckets
}
