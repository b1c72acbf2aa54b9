package inspect_test

import (
	"net/http"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestScopesKnowQueries: POST /rpc?action=drop is another endpoint than POST
// /rpc, so a key for the one is none for the other.
func TestScopesKnowQueries(t *testing.T) {
	for _, c := range []struct {
		scope, target string
		want          bool
	}{
		{"POST /rpc", "/rpc", true},
		{"POST /rpc", "/rpc?x=1", true},
		{"POST /rpc", "/rpc?action=drop", false},
		{"/rpc", "/rpc?action=drop", false},
		{"POST /rpc?action=drop", "/rpc?action=drop", true},
		{"POST /rpc?action=drop", "/rpc?x=1&%61ction=dro%70", true},
		{"POST /rpc?action=drop", "/rpc", false},
		{"POST /rpc?acl={any}", "/rpc?acl=1", true},
		{"POST", "/rpc?action=drop", true},
	} {
		scopes, err := identity.ParseScopes([]string{c.scope})
		if err != nil {
			t.Fatal(err)
		}
		who, header := keyHolder(t, identity.Key{ID: "k", Scopes: scopes})
		b := trial.New(t, []string{"POST /rpc", "POST /rpc?action=drop", "POST /rpc?acl={acl}"},
			[]policy.Rule{{Endpoint: policy.Default, Limit: 10}},
			func(o *headgate.Options) { o.Identities = who })
		d := b.Check(t.Context(), headgate.Request{Method: "POST", Target: c.target, Peer: trial.Client,
			Header: header})
		if got := d.Principal.Kind == identity.APIKey; got != c.want {
			t.Errorf("scope %s, target %s: %s, want the key %v", c.scope, c.target, d.Principal, c.want)
		}
	}
}

// keyHolder is who has one key, and how it is shown.
func keyHolder(t *testing.T, key identity.Key) (*identity.Resolver, http.Header) {
	t.Helper()
	who, text := trial.Holder(t, key)
	return who, http.Header{"X-Api-Key": {text}}
}
