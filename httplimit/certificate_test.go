package httplimit_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// TestOnlyVerifiedCertificatesCount: what a client sent without a chain that
// was verified names nobody.
func TestOnlyVerifiedCertificatesCount(t *testing.T) {
	who, err := identity.New(identity.Options{
		CertificateName: identity.CertificateCommon,
		Now:             func() time.Time { return epoch },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour}}, httplimit.Options{},
		func(o *headgate.Options) { o.Identities = who })
	cert := &x509.Certificate{NotBefore: epoch.Add(-time.Hour), NotAfter: epoch.Add(time.Hour)}
	cert.Subject.CommonName = "billing"
	sent := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	verified := &tls.ConnectionState{
		PeerCertificates: sent.PeerCertificates,
		VerifiedChains:   [][]*x509.Certificate{{cert}},
	}
	for i, step := range []struct {
		state *tls.ConnectionState
		want  int
	}{{nil, 200}, {nil, 429}, {sent, 429}, {&tls.ConnectionState{}, 429}, {verified, 200}, {verified, 429},
		{sent, 429}} {
		r := httptest.NewRequest("GET", "/v1/items/1", nil)
		r.TLS = step.state
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != step.want {
			t.Errorf("step %d: %d, want %d", i, w.Code, step.want)
		}
	}
}
