package charge_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// sealed verifies tokens that are claims in base64, after "true." for those that are genuine.
type sealed struct{}

func (sealed) Verify(_ context.Context, token string) (c identity.Claims, err error) {
	text, genuine := strings.CutPrefix(token, "true.")
	if !genuine {
		return c, errors.New("forged")
	}
	said, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(said, &c)
	}
	return c, err
}

// holder is who shows one credential, and what is said of it.
type holder struct {
	Subject, Project, Tier string
	Claim                  string // urgency
}

func (h holder) token() string {
	claims := identity.Claims{Subject: h.Subject, Project: h.Project, Tier: h.Tier}
	if h.Claim != "" {
		claims.Other = []identity.Claim{{Name: "urgency", Value: h.Claim}, {Name: "org", Value: "low"}}
	}
	text, _ := json.Marshal(claims)
	return base64.RawURLEncoding.EncodeToString(text)
}

// classing is a bench in which endpoints, tiers and a claim say classes, and a rule may.
func classing(t *testing.T, rules ...policy.Rule) (b *trial.Bench, keys map[string]string) {
	t.Helper()
	keys = map[string]string{} // by their IDs
	ring := &identity.Keyring{}
	digester, err := identity.NewDigester(make([]byte, identity.MinSecretLength))
	if err != nil {
		t.Fatal(err)
	}
	var records []identity.KeyRecord
	for _, k := range []identity.Key{
		{ID: "ann", Project: "acme"}, {ID: "bob", Project: "acme", Tier: "gold"}, {ID: "cat", Project: "umbrella"},
	} {
		text, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[k.ID] = text
		records = append(records, identity.KeyRecord{Digest: digester.Digest(text), Key: k})
	}
	if err := ring.Replace(records); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{Keys: ring, Digester: digester, Tokens: sealed{},
		KeySources: identity.KeySources{Header: "X-Api-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	switching := &trial.Switching{}
	b = trial.New(t, []string{"GET /a", "GET /low", "GET /high"}, nil, func(o *headgate.Options) {
		o.Policies, o.Identities, o.Unknown = switching, who, headgate.LimitUnknown
		o.NamedTiers = func() bool { return true }
	})
	id := func(text string) endpoint.ID {
		m := b.Table.Match("GET", text)
		return m.ID
	}
	doc := policy.Document{Rules: rules, Projects: map[string]string{"umbrella": "bronze"}}
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: b.Table, ClassesBy: policy.ClassesBy{
		Endpoints: map[endpoint.ID]policy.Class{id("/low"): policy.Low, id("/high"): policy.High,
			endpoint.Unknown: policy.Low},
		Tiers: map[string]policy.Class{"gold": policy.Critical, "silver": policy.High, "bronze": policy.Low},
		Claim: "urgency",
	}})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	switching.Store(set)
	return b, keys
}

func asking(target, token, key string) headgate.Request {
	r := headgate.Request{Method: "GET", Target: target, Peer: trial.Client, Header: http.Header{}}
	if token != "" {
		r.Header.(http.Header).Set("Authorization", "Bearer "+token)
	}
	if key != "" {
		r.Header.(http.Header).Set("X-Api-Key", key)
	}
	return r
}

// TestWhatARequestHasItsClassFrom: rules, endpoints, tiers and claims say it, and the lowest counts; nothing does that
// was not verified.
func TestWhatARequestHasItsClassFrom(t *testing.T) {
	b, keys := classing(t, policy.Rule{Endpoint: policy.All, Limit: 1000, Burst: 1000, Subject: policy.SubjectEndpoint,
		Priority: "critical:10,high:10,normal:10,low:10"},
		policy.Rule{Endpoint: policy.Default, Limit: 1 << 30, Name: "for the lowest", Tier: "lowest", Priority: "low"},
		policy.Rule{Endpoint: policy.Default, Limit: 1 << 30},
		policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 1 << 30})
	urgent := holder{Subject: "u", Claim: "critical"}.token()
	for name, test := range map[string]struct {
		r      headgate.Request
		class  policy.Class
		caller policy.Class
		from   string
	}{
		"nothing":     {asking("/a", "", ""), policy.Normal, 0, ""},
		"an endpoint": {asking("/high", "", ""), policy.High, 0, "endpoint GET /high"},
		"no endpoint": {asking("/nowhere", "", ""), policy.Low, 0, "endpoint UNKNOWN"},
		"a key's tier": {asking("/a", "", keys["bob"]), policy.Critical, policy.Critical,
			"tier gold of api_key bob of project acme"},
		"a project's tier": {asking("/high", "", keys["cat"]), policy.Low, policy.Low,
			"tier bronze of api_key cat of project umbrella"},
		"a key without one": {asking("/a", "", keys["ann"]), policy.Normal, 0, ""},
		"a claim": {asking("/a", "true."+urgent, ""), policy.Critical, policy.Critical,
			"claim urgency of token u"},
		"a forged token": {asking("/a", "fake."+urgent, ""), policy.Normal, 0, ""},
		"a claim that is nothing": {asking("/a", "true."+holder{Subject: "u", Claim: "Critical"}.token(), ""),
			policy.Normal, 0, ""},
		"an endpoint below": {asking("/low", "true."+urgent, ""), policy.Low, policy.Critical, "endpoint GET /low"},
		"a tier below": {asking("/high", "true."+holder{"u", "p", "bronze", "high"}.token(), ""), policy.Low,
			policy.Low,
			"tier bronze of token u of project p"},
		"a rule below": {asking("/high", "true."+holder{"u", "p", "lowest", "high"}.token(), ""), policy.Low,
			policy.High,
			"rule for the lowest"},
		"the other is normal": {asking("/a", "true."+urgent, keys["ann"]), policy.Normal, policy.Normal, ""},
	} {
		for _, field := range []string{"Urgency", "Priority", "X-Priority", "X-Class"} {
			test.r.Header.(http.Header).Set(field, "critical")
		}
		x, d := b.Explain(t.Context(), test.r), b.Check(t.Context(), test.r)
		if d.Class != test.class || d.CallerClass != test.caller || x.Class != test.class.String() ||
			x.ClassFrom != test.from {
			t.Errorf("%s: class %v, of callers %q, explained as %s from %q; want %v, %q, from %q", name, d.Class,
				d.CallerClass, x.Class, x.ClassFrom, test.class, test.caller, test.from)
		}
	}
	r := asking("/high", "", "")
	for said, want := range map[policy.Class]policy.Class{
		policy.Critical: policy.High, policy.Low: policy.Low, 200: policy.Low,
	} {
		if r.Class = said; b.Check(t.Context(), r).Class != want {
			t.Errorf("of what a program says is %v: not %v", said, want)
		}
	}
}

// TestNoFurtherCredentialMakesARequestMoreUrgent: with two it is of the lower of the classes that it has with each.
func TestNoFurtherCredentialMakesARequestMoreUrgent(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 7))
	b, keys := classing(t,
		policy.Rule{Endpoint: policy.Default, Limit: 1 << 30, Priority: "high"},
		policy.Rule{Endpoint: policy.Default, Limit: 1 << 30, Project: "plain", Subject: policy.SubjectPrincipal},
		policy.Rule{Endpoint: policy.Default, Limit: 1 << 30, Tier: "silver", Priority: "low",
			Subject: policy.SubjectIP, Mode: policy.Shadow})
	lower := 0
	for range 2000 {
		token := "true." + holder{
			Subject: "u", Project: pick(rng, "", "plain", "umbrella", "acme"),
			Tier:  pick(rng, "", "gold", "silver", "bronze", "none"),
			Claim: pick(rng, "", "critical", "high", "normal", "low", "?"),
		}.token()
		target, key := pick(rng, "/a", "/low", "/high", "/nowhere"), keys[pick(rng, "ann", "bob", "cat")]
		both := b.Check(t.Context(), asking(target, token, key))
		one, other := b.Check(t.Context(), asking(target, token, "")), b.Check(t.Context(), asking(target, "", key))
		if both.Class != max(one.Class, other.Class) {
			t.Fatalf("%s of %s is %v with both, %v and %v with each", token, key, both.Class, one.Class, other.Class)
		}
		if len(both.Others) != 1 {
			t.Fatalf("%d further principals", len(both.Others))
		}
		if both.Class > min(one.Class, other.Class) {
			lower++
		}
	}
	if lower < 100 {
		t.Errorf("in %d of 2000 the credentials differed", lower)
	}
}
