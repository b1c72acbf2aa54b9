package identity_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

func newResolver(t testing.TB, o identity.Options) *identity.Resolver {
	t.Helper()
	who, err := identity.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func newKey(t testing.TB) string {
	t.Helper()
	text, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newDigester(t testing.TB) *identity.Digester {
	t.Helper()
	d, err := identity.NewDigester(bytes.Repeat([]byte("secret! "), 4))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
