package developers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/developers"
)

// BenchmarkBefore is what the door costs a request that is not for it.
func BenchmarkBefore(b *testing.B) {
	who, err := identity.New(identity.Options{})
	if err != nil {
		b.Fatal(err)
	}
	door, err := developers.New(developers.Options{Path: "/.headgate", Identities: who, Profile: endpoint.Profile{}})
	if err != nil {
		b.Fatal(err)
	}
	handler := door.Before(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/v1/customers/cus_1234567890abcdef/sources?limit=3", nil)
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(nil, r)
	}
}
