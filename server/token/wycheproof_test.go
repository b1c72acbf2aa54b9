package token_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/headgate-io/headgate/server/token"
)

// deviations are the vectors that have another result here, and why.
var deviations = map[int]string{
	346: "the key is for PS256, and the token is signed with PS384",
	347: "the key is for ES521, and there is no such algorithm; the token's is ES512",
	367: "the vector should hold wrong padding, and is byte by byte the valid one, 357",
	370: "the same",
	372: "a character outside the alphabet makes the header no base64url: RFC 7515 section 2",
	373: "the same in the payload",
}

// relabelled says which algorithm the keys of deviating vectors would need.
var relabelled = map[int]string{346: "PS384", 347: "ES512"}

// TestWycheproof pins the key of each group to the group's algorithm and holds
// that a signature is accepted if and only if the vector is valid. Payloads of
// these vectors are no claims, so the signature alone is asked about.
func TestWycheproof(t *testing.T) {
	data, err := os.ReadFile("testdata/wycheproof-jws.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		NumberOfTests int
		TestGroups    []struct {
			Comment         string
			Public, Private json.RawMessage
			Tests           []struct {
				TcID    int
				Comment string
				JWS     json.RawMessage
				Result  string
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ran, deviated := 0, 0
	for _, group := range file.TestGroups {
		raw := group.Public
		if raw == nil {
			raw = group.Private
		}
		var about struct{ Alg string }
		if err := json.Unmarshal(raw, &about); err != nil {
			t.Fatal(err)
		}
		alg := about.Alg
		var v *token.Verifier
		if set, err := token.ParseJWKS(jwks(string(raw)), []string{alg}, false); err == nil {
			v = newVerifier(t, &keySource{set: set}, func(o *token.Options) { o.Algorithms = []string{alg} })
		}
		for _, test := range group.Tests {
			ran++
			var jws string
			if json.Unmarshal(test.JWS, &jws) != nil {
				jws = string(test.JWS) // the JSON form
			}
			accepted := v != nil && v.Signed(jws) == nil
			why, known := deviations[test.TcID]
			if right := relabelled[test.TcID]; right != "" {
				checkRelabelled(t, raw, alg, right, jws)
			}
			switch want := test.Result == "valid"; {
			case known && accepted == want:
				t.Errorf("%d %s: has its result after all, not: %s", test.TcID, test.Comment, why)
			case known:
				deviated++
			case accepted != want:
				t.Errorf("%s, %d %s: accepted is %v, want %v", group.Comment, test.TcID, test.Comment, accepted, want)
			}
		}
	}
	if ran != file.NumberOfTests || deviated != len(deviations) {
		t.Errorf("%d vectors ran and %d deviated, want %d and %d", ran, deviated, file.NumberOfTests, len(deviations))
	}
}

// checkRelabelled holds that nothing but the label of the key is in the way.
func checkRelabelled(t *testing.T, key []byte, from, to, jws string) {
	t.Helper()
	key = bytes.Replace(key, []byte(`"`+from+`"`), []byte(`"`+to+`"`), 1)
	v := newVerifier(t, &keySource{set: parseSet(t, []string{to}, string(key))},
		func(o *token.Options) { o.Algorithms = []string{to} })
	if err := v.Signed(jws); err != nil {
		t.Errorf("with the key relabelled from %s to %s: %v", from, to, err)
	}
}
