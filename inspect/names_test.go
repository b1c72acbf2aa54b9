package inspect_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// aliceOfAcme believes one token.
type aliceOfAcme struct{}

func (aliceOfAcme) Verify(_ context.Context, token string) (identity.Claims, error) {
	if token != "a.b.c" {
		return identity.Claims{}, errors.New("forged")
	}
	return identity.Claims{Subject: "alice", Project: "acme", Tier: "gold"}, nil
}

// TestBucketsOfCertificatesAndTokensHaveNames: who asks by name is told of the
// bucket that requests take from.
func TestBucketsOfCertificatesAndTokensHaveNames(t *testing.T) {
	who, err := identity.New(identity.Options{
		Tokens: aliceOfAcme{}, CertificateName: identity.CertificateCommon,
		CertificateProject: identity.CertificateOrganization,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: policy.Default, Limit: 1, Burst: 10}, {Endpoint: policy.Default, Tier: "gold", Limit: 1, Burst: 20},
		{Endpoint: policy.UnknownEndpoint, Limit: 1},
	}, func(o *headgate.Options) { o.Identities = who })
	certificate := &x509.Certificate{
		Raw: []byte("billing"), Subject: pkix.Name{CommonName: "billing", Organization: []string{"acme"}},
		NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for _, r := range []headgate.Request{
		{Method: "GET", Target: "/a", Peer: trial.Client, Certificate: certificate},
		{Method: "GET", Target: "/a", Peer: trial.Client, Header: http.Header{"Authorization": {"Bearer a.b.c"}}},
		{Method: "GET", Target: "/a", Peer: trial.Client, User: &identity.User{ID: "7", Project: "acme"}},
	} {
		if d := b.Check(context.Background(), r); !d.Allowed || d.Principal.Kind == identity.Address {
			t.Fatalf("Check = %v for %v, want a principal that is allowed", d.Reason, d.Principal)
		}
	}
	for name, c := range map[string]struct {
		query     inspect.Query
		whose     string
		remaining int64
	}{
		"certificate": {inspect.Query{Certificate: "billing", Project: "acme"},
			"certificate billing of project acme", 9},
		"token": {inspect.Query{Token: "alice", Project: "acme", Tier: "gold"},
			"token alice of project acme", 19},
		"user":                   {inspect.Query{User: "7", Project: "acme"}, "user 7 of project acme", 9},
		"a key of the same name": {inspect.Query{KeyID: "7", Project: "acme"}, "api key 7 of project acme", 10},
		"another certificate": {inspect.Query{Certificate: "shipping", Project: "acme"},
			"certificate shipping of project acme", 10},
		"a token of the same name": {inspect.Query{Token: "billing", Project: "acme"},
			"token billing of project acme", 10},
		"an agent of that name": {inspect.Query{SignedAgent: "7", Project: "acme"},
			"signed agent 7 of project acme", 10},
		"a certificate of no project": {inspect.Query{Certificate: "billing"}, "certificate billing", 10},
	} {
		c.query.Endpoint = "GET /a"
		in, err := b.Inspect(context.Background(), c.query)
		if err != nil || len(in.Buckets) != 1 || in.Buckets[0].Whose != c.whose ||
			in.Buckets[0].Remaining != c.remaining {
			t.Errorf("%s: Inspect = %+v, %v, want one bucket of %s with %d", name, in, err, c.whose, c.remaining)
		}
	}
	for _, q := range []inspect.Query{{Certificate: "a", Token: "b"}, {Certificate: "a", KeyID: "k_1"},
		{Token: "a", KeyID: "k_1"}, {User: "a", Token: "a"},
		{SignedAgent: "a", KeyID: "k_1"}} {
		q.Endpoint = "GET /a"
		if _, err := b.Inspect(context.Background(), q); err == nil ||
			!strings.Contains(err.Error(), "want one: a key, a certificate, a token's subject, a user or an agent") {
			t.Errorf("Inspect(%+v) = %v, want an error about several principals", q, err)
		}
	}
	if _, err := b.Inspect(context.Background(), inspect.Query{Endpoint: "GET /a", Peer: trial.Client,
		Token: "alice"}); err == nil || !strings.Contains(err.Error(), "both evidence and names") {
		t.Errorf("Inspect = %v, want an error about evidence and names", err)
	}
}

// TestTheBucketOfTheUnparsableHasAName: logins that nobody can read share a
// bucket, and an operator can look at it and fill it.
func TestTheBucketOfTheUnparsableHasAName(t *testing.T) {
	const login = "POST /v1/login"
	b := trial.New(t, []string{login}, []policy.Rule{
		{Endpoint: login, Limit: 20, Per: time.Hour, Subject: policy.SubjectIP},
		{Endpoint: login, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifier},
		{Endpoint: policy.All, Limit: 50, Subject: policy.SubjectIdentifier.Counting(policy.CountsRequests)},
	})
	for range 3 {
		b.Check(context.Background(), headgate.Request{Method: "POST", Target: "/v1/login", Peer: trial.Client,
			Unparsable: true})
	}
	q := inspect.Query{Endpoint: login, Unparsable: true}
	want := func(step string, remaining int64) {
		t.Helper()
		in, err := b.Inspect(context.Background(), q)
		if err != nil || len(in.Buckets) != 1 || len(in.Skipped) != 0 || in.Buckets[0].Remaining != remaining ||
			in.Buckets[0].Whose != "all requests whose identifier cannot be read" {
			t.Fatalf("%s: Inspect = %+v, %v, want one bucket with %d", step, in, err, remaining)
		}
	}
	want("three taken", 2)
	if _, err := b.Reset(context.Background(), q, nil); err != nil {
		t.Fatal(err)
	}
	want("reset", 5)
	all := inspect.Query{Endpoint: policy.All, Unparsable: true}
	if in, err := b.Inspect(context.Background(), all); err != nil || len(in.Buckets) != 1 ||
		in.Buckets[0].Remaining != 47 {
		t.Errorf("Inspect of all endpoints = %+v, %v, want one bucket with 47", in, err)
	}
	for _, wrong := range []inspect.Query{{Identifier: "alice"}, {Address: trial.Client}, {Peer: trial.Client},
		{Project: "acme"}} {
		wrong.Endpoint, wrong.Unparsable = login, true
		if _, err := b.Inspect(context.Background(), wrong); err == nil || !strings.Contains(err.Error(), "share one") {
			t.Errorf("Inspect(%+v) = %v, want an error: there is one for all", wrong, err)
		}
	}
}
