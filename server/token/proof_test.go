package token_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/once"
	"github.com/headgate-io/headgate/server/token"
)

var otherEC, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)

// publicJWK is a key as proofs bring it.
func publicJWK(key *ecdsa.PrivateKey) string {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"kty":"EC","crv":"P-256","x":%q,"y":%q}`, b64(point[1:33]), b64(point[33:]))
}

// thumbprint is that of RFC 7638 section 3, written out.
func thumbprint(key *ecdsa.PrivateKey) string {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, `{"crv":"P-256","kty":"EC","x":%q,"y":%q}`, b64(point[1:33]), b64(point[33:])))
	return b64(sum[:])
}

const boundToken = "h.p.s"

// proofOf is a proof that holds, with the changes; nil removes a claim.
func proofOf(header string, changes map[string]any, key any) string {
	if header == "" {
		header = `{"typ":"dpop+jwt","alg":"ES256","jwk":` + publicJWK(ecKey) + `}`
	}
	ath := sha256.Sum256([]byte(boundToken))
	all := map[string]any{
		"jti": "one", "htm": "GET", "htu": "https://api.example/v1/items/7", "iat": now.Unix(), "ath": b64(ath[:]),
	}
	for name, value := range changes {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return sign(header, string(text), key)
}

func newProofs(t testing.TB, edit func(*token.ProofOptions)) *token.Proofs {
	t.Helper()
	o := token.ProofOptions{
		Origins: []string{"https://api.example"}, Leeway: 5 * time.Second, Now: func() time.Time { return now },
	}
	if edit != nil {
		edit(&o)
	}
	p, err := token.NewProofs(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shown is how a proof comes with a request.
func shown(text string) *identity.Proof {
	table, err := endpoint.Compile([]endpoint.Template{}, endpoint.Profile{})
	if err != nil {
		panic(err)
	}
	return &identity.Proof{
		Text: text, Token: boundToken, Key: thumbprint(ecKey), Holder: "acme\x00alice", Method: "GET",
		Target: "/v1/items/7?page=2", Reading: table,
	}
}

// TestProofOfTheStandard is the proof of RFC 9449 figure 13, with the token of figure 12 and the thumbprint of
// figure 9.
func TestProofOfTheStandard(t *testing.T) {
	const text = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUkl" +
		"DUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSI" +
		"sImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS" +
		"5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMH" +
		"hXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jf" +
		"xSYoMxhAJpLjA"
	p := newProofs(t, func(o *token.ProofOptions) {
		o.Origins = []string{"https://resource.example.org"}
		o.Now = func() time.Time { return time.Unix(1562262618, 0) }
	})
	proof := shown(text)
	proof.Token, proof.Key = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU", "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
	proof.Target = "/protectedresource"
	for _, want := range []identity.Rejection{identity.NotRejected, identity.ProofReplayed} {
		if why := p.VerifyProof(proof); why != want {
			t.Errorf("VerifyProof = %v, want %v", why, want)
		}
	}
}

func TestProofs(t *testing.T) {
	const (
		good      = identity.NotRejected
		malformed = identity.ProofMalformed
		unfit     = identity.ProofUnfit
		stale     = identity.ProofStale
		refused   = identity.ProofRefused
	)
	head := func(more string) string {
		return `{"typ":"dpop+jwt","alg":"ES256","jwk":` + publicJWK(ecKey) + more + `}`
	}
	claims := func(name string, value any) string { return proofOf("", map[string]any{name: value}, ecKey) }
	private := strings.TrimSuffix(publicJWK(ecKey), "}") + `,"d":"` + b64(make([]byte, 32)) + `"}`
	whole := proofOf("", nil, ecKey)
	for name, c := range map[string]struct {
		text string
		want identity.Rejection
	}{
		"good":                 {whole, good},
		"a kid beside the key": {proofOf(head(`,"kid":"x"`), nil, ecKey), good},
		"a nonce":              {claims("nonce", "n"), good},
		"empty":                {"", malformed},
		"two proofs":           {whole + ", " + whole, malformed},
		"two parts":            {whole[:strings.LastIndexByte(whole, '.')], malformed},
		"padding":              {whole + "==", malformed},
		"too long":             {claims("jti", strings.Repeat("x", 4<<10)), malformed},
		"no typ": {proofOf(strings.Replace(head(""), `"typ":"dpop+jwt",`, "", 1), nil, ecKey),
			malformed},
		"typ of a token":        {proofOf(strings.Replace(head(""), "dpop+jwt", "at+jwt", 1), nil, ecKey), malformed},
		"alg none":              {proofOf(strings.Replace(head(""), "ES256", "none", 1), nil, ecKey), malformed},
		"alg of a secret":       {proofOf(strings.Replace(head(""), "ES256", "HS256", 1), nil, []byte("x")), malformed},
		"alg that is not taken": {proofOf(strings.Replace(head(""), "ES256", "RS256", 1), nil, rsaKey), malformed},
		"alg of another key":    {proofOf(strings.Replace(head(""), "ES256", "EdDSA", 1), nil, edKey), malformed},
		"no key":                {proofOf(`{"typ":"dpop+jwt","alg":"ES256"}`, nil, ecKey), malformed},
		"a private key": {proofOf(strings.Replace(head(""), publicJWK(ecKey), private, 1), nil, ecKey),
			malformed},
		"a secret": {proofOf(`{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"oct","k":"AAAA"}}`, nil, ecKey), malformed},
		"a point off the curve": {proofOf(`{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"`+
			b64(make([]byte, 32))+`","y":"`+b64(make([]byte, 32))+`"}}`, nil, ecKey), malformed},
		"two keys":         {proofOf(head(`,"jwk":{}`), nil, ecKey), malformed},
		"crit":             {proofOf(head(`,"crit":["x"]`), nil, ecKey), malformed},
		"a place for keys": {proofOf(head(`,"jku":"https://x.example"`), nil, ecKey), malformed},
		"another's key": {proofOf(strings.Replace(head(""), publicJWK(ecKey), publicJWK(otherEC), 1), nil, otherEC),
			unfit},
		"signed by another": {proofOf("", nil, otherEC), refused},
		"changed":           {whole[:len(whole)-8] + strings.Repeat("A", 8), refused},
		"no jti":            {claims("jti", nil), malformed},
		"empty jti":         {claims("jti", ""), malformed},
		"jti a number":      {claims("jti", 7), malformed},
		"long jti":          {claims("jti", strings.Repeat("x", 257)), malformed},
		"no htm":            {claims("htm", nil), unfit},
		"another method":    {claims("htm", "POST"), unfit},
		"another case":      {claims("htm", "get"), unfit},
		"no htu":            {claims("htu", nil), malformed},
		"no URI":            {claims("htu", "/v1/items/7"), unfit},
		"another API":       {claims("htu", "https://other.example/v1/items/7"), unfit},
		"another scheme":    {claims("htu", "http://api.example/v1/items/7"), unfit},
		"another port":      {claims("htu", "https://api.example:8443/v1/items/7"), unfit},
		"a user":            {claims("htu", "https://api.example@other.example/v1/items/7"), unfit},
		"a longer host":     {claims("htu", "https://api.example.other/v1/items/7"), unfit},
		"another path":      {claims("htu", "https://api.example/v1/items/8"), unfit},
		"a segment more":    {claims("htu", "https://api.example/v1/items/7/x"), unfit},
		"no path":           {claims("htu", "https://api.example"), unfit},
		"the port written":  {claims("htu", "https://api.example:443/v1/items/7"), good},
		"host in capitals":  {claims("htu", "HTTPS://API.example/v1/items/7"), good},
		"another query":     {claims("htu", "https://api.example/v1/items/7?page=9"), good},
		"a fragment":        {claims("htu", "https://api.example/v1/items/7#x"), good},
		"another spelling":  {claims("htu", "https://api.example//v1/./items/%37/"), good},
		"above the root":    {claims("htu", "https://api.example/../v1/items/7"), good},
		"no iat":            {claims("iat", nil), malformed},
		"iat a text":        {claims("iat", "1"), malformed},
		"as old as may be":  {claims("iat", now.Unix()-60), good},
		"too old":           {claims("iat", now.Unix()-61), stale},
		"of the future":     {claims("iat", now.Unix()+5), good},
		"too far ahead":     {claims("iat", now.Unix()+6), stale},
		"no ath":            {claims("ath", nil), unfit},
		"of another token":  {claims("ath", b64(make([]byte, 32))), unfit},
	} {
		p := newProofs(t, nil)
		if why := p.VerifyProof(shown(c.text)); why != c.want {
			t.Errorf("%s: VerifyProof = %v, want %v", name, why, c.want)
		}
		if why := p.VerifyProof(shown(c.text)); c.want == good && why != identity.ProofReplayed {
			t.Errorf("%s, again: VerifyProof = %v, want %v", name, why, identity.ProofReplayed)
		}
	}
}

func TestProofsByTheRequest(t *testing.T) {
	text := proofOf("", nil, ecKey)
	for name, c := range map[string]struct {
		change func(*identity.Proof)
		want   identity.Rejection
	}{
		"another token":    {func(p *identity.Proof) { p.Token = "h.p.t" }, identity.ProofUnfit},
		"another key":      {func(p *identity.Proof) { p.Key = thumbprint(otherEC) }, identity.ProofUnfit},
		"HEAD":             {func(p *identity.Proof) { p.Method = "HEAD" }, identity.ProofUnfit},
		"another target":   {func(p *identity.Proof) { p.Target = "/v1/items/8" }, identity.ProofUnfit},
		"no safe reading":  {func(p *identity.Proof) { p.Target = "/v1/items/7%00" }, identity.ProofUnfit},
		"the same reading": {func(p *identity.Proof) { p.Target = "/v1//items/x/../7" }, identity.NotRejected},
		"nobody reads":     {func(p *identity.Proof) { p.Reading = nil }, identity.NotRejected},
		"nobody reads another": {func(p *identity.Proof) { p.Reading, p.Target = nil, "/v1//items/7" },
			identity.ProofUnfit},
		"too many have failed": {func(p *identity.Proof) { p.Spent = true }, identity.TokenFlood},
	} {
		proof := shown(text)
		c.change(proof)
		if why := newProofs(t, nil).VerifyProof(proof); why != c.want {
			t.Errorf("%s: VerifyProof = %v, want %v", name, why, c.want)
		}
	}
}

// TestALookSpendsNoProof: explain shows what a proof would come to, as often as it is asked.
func TestALookSpendsNoProof(t *testing.T) {
	p, proof := newProofs(t, nil), shown(proofOf("", nil, ecKey))
	proof.Look = true
	for range 2 {
		if why := p.VerifyProof(proof); why != identity.NotRejected {
			t.Errorf("VerifyProof for a look = %v", why)
		}
	}
	proof.Look = false
	if why := p.VerifyProof(proof); why != identity.NotRejected {
		t.Errorf("VerifyProof = %v", why)
	}
	proof.Look = true
	if why := p.VerifyProof(proof); why != identity.ProofReplayed {
		t.Errorf("VerifyProof for a look = %v, want %v", why, identity.ProofReplayed)
	}
}

// TestProofsOutliveReload: other settings, a longer window among them, make no proof good again.
func TestProofsOutliveReload(t *testing.T) {
	proof := shown(proofOf("", map[string]any{"iat": now.Unix() - 50}, ecKey))
	memory := once.New(token.RememberedProofs, nil)
	before := newProofs(t, func(o *token.ProofOptions) { o.Shown = memory })
	if why := before.VerifyProof(proof); why != identity.NotRejected {
		t.Fatal(why)
	}
	after := newProofs(t, func(o *token.ProofOptions) { o.Shown, o.Window = memory, time.Hour })
	if why := after.VerifyProof(proof); why != identity.ProofReplayed {
		t.Errorf("VerifyProof = %v, want %v", why, identity.ProofReplayed)
	}
}

func TestProofsOfOtherAlgorithms(t *testing.T) {
	ed := `{"typ":"dpop+jwt","alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"` + b64(edPublic) + `"}}`
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + b64(edPublic) + `"}`))
	proof := shown(proofOf(ed, nil, edKey))
	proof.Key = b64(sum[:])
	if why := newProofs(t, nil).VerifyProof(proof); why != identity.NotRejected {
		t.Errorf("EdDSA: VerifyProof = %v", why)
	}
	n := b64(rsaKey.N.Bytes())
	rs := `{"typ":"dpop+jwt","alg":"RS256","jwk":{"kty":"RSA","e":"AQAB","n":"` + n + `"}}`
	sum = sha256.Sum256([]byte(`{"e":"AQAB","kty":"RSA","n":"` + n + `"}`))
	proof = shown(proofOf(rs, nil, rsaKey))
	proof.Key = b64(sum[:])
	p := newProofs(t, func(o *token.ProofOptions) { o.Algorithms = []string{"RS256"} })
	if why := p.VerifyProof(proof); why != identity.NotRejected {
		t.Errorf("RS256: VerifyProof = %v", why)
	}
}

func TestNewProofsNamesEveryFault(t *testing.T) {
	_, err := token.NewProofs(token.ProofOptions{
		Algorithms: []string{"HS256"}, Window: 2 * time.Hour, Leeway: -1,
		Origins: []string{"api.example", "https://api.example/v1", "https://u:p@api.example", "ftp://x", "https://x?q"},
	})
	for _, want := range []string{`Algorithms holds "HS256"`, "Window is 2h0m0s", "Leeway is -1ns",
		`Origins is "api.example"`, `is "https://api.example/v1"`, `is "ftp://x"`, `is "https://x?q"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewProofs: %v, want %q", err, want)
		}
	}
	if _, err := token.NewProofs(token.ProofOptions{}); err == nil ||
		!strings.Contains(err.Error(), "Origins is empty") {
		t.Errorf("NewProofs: %v", err)
	}
}

func TestBoundTokens(t *testing.T) {
	jkt := thumbprint(ecKey)
	for name, c := range map[string]struct {
		cnf  any
		key  string
		good bool
	}{
		"bound":               {map[string]any{"jkt": jkt}, jkt, true},
		"not bound":           {nil, "", true},
		"by a certificate":    {map[string]any{"x5t#S256": jkt}, "", true},
		"a short thumbprint":  {map[string]any{"jkt": jkt[:42]}, "", false},
		"padded":              {map[string]any{"jkt": jkt[:42] + "="}, "", false},
		"an empty thumbprint": {map[string]any{"jkt": ""}, "", false},
		"no text":             {map[string]any{"jkt": 7}, "", false},
		"null":                {map[string]any{"jkt": nil}, "", false},
	} {
		v := newVerifier(t, &keySource{set: parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))},
			func(o *token.Options) { o.Claims = []string{"a", "b", "c", "d", "e", "f", "g", "h"} })
		got, err := v.Verify(t.Context(), sign(`{"alg":"RS256","kid":"k1"}`,
			claims(map[string]any{"cnf": c.cnf, "h": "x"}), rsaKey))
		if got.Key != c.key || (err == nil) != c.good || c.good && got.Other[0].Name != "h" {
			t.Errorf("%s: Verify = %+v, %v, want key %q", name, got, err, c.key)
		}
	}
}

// FuzzVerifyProof: whatever comes is refused, unless it is the one proof that was made.
func FuzzVerifyProof(f *testing.F) {
	whole := proofOf("", nil, ecKey)
	f.Add(whole)
	f.Add(proofOf(`{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC"}}`, nil, ecKey))
	f.Add("..")
	p := newProofs(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		proof := shown(text)
		proof.Look = true
		if why := p.VerifyProof(proof); (why == identity.NotRejected) != (text == whole) {
			t.Errorf("VerifyProof(%q) = %v", text, why)
		}
	})
}

func BenchmarkVerifyProof(b *testing.B) {
	for name, proof := range map[string]*identity.Proof{
		"ES256": shown(proofOf("", nil, ecKey)),
		"unfit": shown(proofOf("", map[string]any{"htm": "POST"}, ecKey)),
		"replayed": func() *identity.Proof {
			p := shown(proofOf("", nil, ecKey))
			p.Holder = "shown"
			return p
		}(),
	} {
		b.Run(name, func(b *testing.B) {
			p := newProofs(b, nil)
			if proof.Look = name != "replayed"; !proof.Look {
				p.VerifyProof(proof)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.VerifyProof(proof)
			}
		})
	}
}

func TestOriginHasOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.example/": "https://api.example", "HTTPS://API.example:443": "https://api.example",
		"https://api.example:": "https://api.example", "https://api.example:0443": "https://api.example",
		"http://api.example:8080": "http://api.example:8080", "https://[0:0::1]:443": "https://[::1]",
		"https://api.example:80": "https://api.example:80", "https://192.0.2.1": "https://192.0.2.1",
		"https://api.example.": "https://api.example.", // another host to clients as well
		// What no client can send, or no proof could be about:
		"https://*.example": "", "https://bücher.example": "", "https://api.example:65536": "",
		"https://api.example:0": "", "https://[fe80::1%25eth0]": "", "https://a,b": "", "https://:443": "",
	} {
		got, err := token.Origin(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Origin(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}
