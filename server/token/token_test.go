package token_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/token"
)

func TestClaims(t *testing.T) {
	set := parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))
	payload := claims(map[string]any{
		"realm":                    map[string]any{"id": "acme", "deep": map[string]any{"plan": "gold"}},
		"https://a.example/tenant": "umbrella", "name": "Ünï",
	})
	until := time.Unix(now.Unix()+300, 0)
	for _, c := range []struct {
		name                   string
		subject, project, tier string
		want                   identity.Claims
		err                    string
	}{
		{"default", "", "", "", identity.Claims{Subject: "alice"}, ""},
		{"nested", "sub", "realm.id", "realm.deep.plan",
			identity.Claims{Subject: "alice", Project: "acme", Tier: "gold"}, ""},
		{"quoted", "sub", `"https://a.example/tenant"`, "", identity.Claims{Subject: "alice", Project: "umbrella"}, ""},
		{"another subject", "name", "", "", identity.Claims{Subject: "Ünï"}, ""},
		{"the same claim twice", "sub", "sub", "sub",
			identity.Claims{Subject: "alice", Project: "alice", Tier: "alice"}, ""},
		{"absent", "sub", "nothing.here", "sub.x", identity.Claims{Subject: "alice"}, ""},
		{"an object", "sub", "realm", "", identity.Claims{}, "the project is not a text"},
		{"no subject", "realm.name", "", "", identity.Claims{}, "the subject is missing"},
		{"a number", "exp", "", "", identity.Claims{}, "the subject is missing or not a text"},
		{"a tier that is none", "sub", "", "iat", identity.Claims{}, "the tier is not a text"},
	} {
		v := newVerifier(t, &keySource{set: set},
			func(o *token.Options) { o.Subject, o.Project, o.Tier = c.subject, c.project, c.tier })
		got, err := v.Verify(context.Background(), sign(head, payload, rsaKey))
		if c.err == "" {
			c.want.Until = until
		}
		if !reflect.DeepEqual(got, c.want) && err == nil || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// TestAnyAndNone are the options that switch a check off, and those that add one.
func TestAnyAndNone(t *testing.T) {
	set := parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))
	verify := func(header string, changes map[string]any, edit func(*token.Options)) (identity.Claims, error) {
		v := newVerifier(t, &keySource{set: set}, edit)
		return v.Verify(context.Background(), sign(header, claims(changes), rsaKey))
	}
	anyone := func(o *token.Options) {
		o.Issuer, o.Audiences, o.WithoutExpiry = token.Any, []string{token.Any}, true
	}
	c, err := verify(head, map[string]any{"iss": nil, "aud": nil, "exp": nil}, anyone)
	if err != nil || !c.Until.Equal(now.Add(time.Hour)) {
		t.Errorf("%v, %v, want an hour", c, err)
	}
	typed := func(o *token.Options) { o.Types = []string{"at+jwt"} }
	for header, ok := range map[string]bool{
		`{"alg":"RS256","typ":"at+jwt"}`: true, `{"alg":"RS256","typ":"application/AT+JWT"}`: true,
		`{"alg":"RS256","typ":"JWT"}`: false, `{"alg":"RS256"}`: false, `{"alg":"RS256","typ":7}`: false,
	} {
		if _, err := verify(header, nil, typed); (err == nil) != ok {
			t.Errorf("%s: %v", header, err)
		}
	}
	lenient := func(o *token.Options) { o.Leeway = 30 * time.Second }
	for claim, off := range map[string]int64{"exp": -29, "nbf": 30, "iat": 30} {
		if _, err := verify(head, map[string]any{claim: now.Unix() + off}, lenient); err != nil {
			t.Errorf("%s %+d s: %v", claim, off, err)
		}
		further := off + 1
		if off < 0 {
			further = off - 1
		}
		if _, err := verify(head, map[string]any{claim: now.Unix() + further}, lenient); err == nil {
			t.Errorf("%s %+d s is believed", claim, further)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := token.New(token.Options{
		Algorithms: []string{"RS256", "HS256"}, Audiences: []string{""}, Leeway: time.Hour, Subject: "a..b",
		Project: `"a`, Tier: "a.",
	})
	for _, want := range []string{
		"Keys is nil", `["RS256" "HS256"], want HS256, HS384, HS512 alone`, "Issuer is empty", "Audiences is",
		"Leeway is 1h0m0s, want 0 to 10m0s",
		`Subject is "a..b"`, `Project is "\"a"`, `Tier is "a."`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
	for _, algorithms := range [][]string{nil, {"none"}, {"None"}, {""}, {"rs256"}, {"RS256", "RS1"}, {"dir"}} {
		if token.CheckAlgorithms(algorithms) == nil {
			t.Errorf("CheckAlgorithms(%q) has nothing against it", algorithms)
		}
	}
}

// TestRefusalsSayNothingOfTheToken holds that errors can be logged.
func TestRefusalsSayNothingOfTheToken(t *testing.T) {
	for name, a := range attacks(t) {
		if a.set || a.algorithms != nil || a.keys != nil {
			continue
		}
		v := newVerifier(t, &keySource{set: parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))}, nil)
		for _, text := range a.refused {
			results, claims, err := v.Inspect(text)
			var refusal *token.Refusal
			if err == nil {
				continue // another subject than the case's
			}
			if !errors.As(err, &refusal) || !reflect.DeepEqual(claims, identity.Claims{}) || len(results) == 0 ||
				results[len(results)-1].Check != refusal.Check {
				t.Errorf("%s: %v, %v", name, err, results)
			}
			for i, r := range results {
				if r.Check != token.Checks[i] || r.Passed != (i < len(results)-1) {
					t.Errorf("%s: results %v", name, results)
				}
			}
		}
	}
}

// TestCheapRefusalsAllocateNothing: whoever sends what is refused without a
// signature check shall not keep the collector busy either.
func TestAllocCheapRefusals(t *testing.T) {
	if raceEnabled {
		return // the race detector allocates
	}
	v := newVerifier(t, &keySource{set: parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))}, nil)
	signature := "." + strings.Repeat("A", 342)
	for name, text := range map[string]string{
		"garbage":     strings.Repeat("x", 600),
		"unknown kid": b64([]byte(`{"alg":"RS256","kid":"k2"}`)) + "." + b64([]byte(claims(nil))) + signature,
		"expired":     b64([]byte(head)) + "." + b64([]byte(claims(map[string]any{"exp": 1}))) + signature,
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = v.Verify(context.Background(), text) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// TestStrictClaims holds the reader of claims against texts that others read
// in two ways, or not at all.
func TestStrictClaims(t *testing.T) {
	v := newVerifier(t, &keySource{set: parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))}, nil)
	good := claims(nil)
	insert := func(text string) string { return "{" + text + "," + good[1:] }
	deep := func(n int) string {
		return insert(`"x":` + strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`"n` + strings.Repeat("i", i) + `":1,`)
		}
		return insert(strings.TrimSuffix(b.String(), ","))
	}
	for _, c := range []struct {
		payload string
		ok      bool
	}{
		{good, true}, {" \t\r\n" + good + "\n", true}, {deep(11), true}, {deep(12), false}, {many(100), true},
		{insert(`"x":[1,-1.5e3,"a",true,false,null,{},[]]`), true}, {insert(`"x":"\ud83d\ude00\n\/"`), true},
		{insert(`"x":"😀"`), true},
		{"", false}, {"null", false}, {"[]", false}, {good + "x", false}, {good + good, false}, {good[1:], false},
		{good[:len(good)-1], false},
		{insert(`"x":01`), false}, {insert(`"x":1.`), false}, {insert(`"x":.5`), false}, {insert(`"x":+1`), false},
		{insert(`"x":-`), false}, {insert(`"x":1e`), false},
		{insert(`"x":NaN`), false}, {insert(`"x":nul`), false}, {insert(`'x':1`), false}, {insert(`x:1`), false},
		{insert(`"x":1,`), false}, {insert(`"x"`), false},
		{insert(`"x":"\x"`), false}, {insert(`"x":"\ud83d"`), false}, {insert(`"x":"\ud83d\u0041"`), false},
		{insert(`"x":"\ude00"`), false}, {insert(`"x":"\u12"`), false},
		{insert("\"x\":\"\n\""), false}, {insert("\"x\":\"\xc0\xaf\""), false}, {insert("\"\xff\":1"), false},
		{insert(`"x":[1,]`), false}, {insert(`"x":[1 2]`), false},
		{insert(`"x":{"a":1,}`), false}, {insert(`"":1,"":2`), false}, {insert(`"x":{"":1},"":2`), true},
		{insert(`"x":/**/1`), false}, {"\xef\xbb\xbf" + good, false},
		{insert(`"x":[` + strings.TrimSuffix(strings.Repeat(`{"a":1},`, 240), ",") + "]"), true},
		{insert(`"x":[` + strings.TrimSuffix(strings.Repeat(`{"a":1},`, 256), ",") + "]"), false},
	} {
		if len(c.payload) > 5700 {
			t.Fatalf("a payload of %d bytes makes too long a token", len(c.payload))
		}
		if _, err := v.Verify(context.Background(), sign(head, c.payload, rsaKey)); (err == nil) != c.ok {
			t.Errorf("%.200q: %v", c.payload, err)
		}
	}
}

// TestOtherClaims: what rules count by is read as text where every issuer writes it in one way, and else is absent. It
// never decides whether a token is good.
func TestOtherClaims(t *testing.T) {
	set := parseSet(t, []string{"RS256"}, rsaJWK("k1", &rsaKey.PublicKey, ""))
	v := newVerifier(t, &keySource{set: set}, func(o *token.Options) { o.Claims = []string{"org", "realm.id", "sub"} })
	for _, c := range []struct {
		org  any
		want string
	}{
		{"acme", "acme"}, {"Ünï \"x\"", "Ünï \"x\""}, {"", ""}, {strings.Repeat("a", 256), strings.Repeat("a", 256)},
		{strings.Repeat("a", 257), ""}, {"a\nb", ""},
		{42, "42"}, {-7, "-7"}, {json.Number("4.0"), ""}, {json.Number("1e3"), ""}, {json.Number("-0"), ""},
		{json.Number("999999999999999"), "999999999999999"},
		{json.Number("9999999999999999"), ""}, {true, "true"}, {nil, ""}, {[]string{"acme"}, ""},
		{map[string]any{"id": "acme"}, ""},
	} {
		got, err := v.Verify(context.Background(),
			sign(head, claims(map[string]any{"org": c.org, "realm": map[string]any{"id": 7}}), rsaKey))
		want := []identity.Claim{{Name: "org", Value: c.want}, {Name: "realm.id", Value: "7"},
			{Name: "sub", Value: got.Subject}}
		if c.want == "" {
			want = want[1:]
		}
		if err != nil || got.Subject == "" || !reflect.DeepEqual(got.Other, want) {
			t.Errorf("org %#v: Verify = %+v, %v, want %+v", c.org, got, err, want)
		}
	}
	for want, list := range map[string][]string{
		`name "org", want each claim once`:    {"org", "org"},
		`name "", want each claim once`:       {""},
		`is "a..b", want the name of a claim`: {"a..b"},
		`name "a b", which no rule can`:       {"a b"},
		"are 9, want 8 at most":               {"a", "b", "c", "d", "e", "f", "g", "h", "i"},
	} {
		if err := token.CheckClaims(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CheckClaims(%q) = %v, want %q", list, err, want)
		}
	}
}
