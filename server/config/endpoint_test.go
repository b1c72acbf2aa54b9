package config_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/kinds"
)

func TestProfileRoundTrip(t *testing.T) {
	for i := range 3 * 3 * 4 * 64 {
		p := endpoint.Profile{EncodedSlash: endpoint.EncodedSlash(i % 3), Params: endpoint.Params(i / 3 % 3),
			CaseInsensitive: i/9&1 != 0, AllowDoubleEncoding: i/18&1 != 0, Refuse: endpoint.Refusal(i / 36)}
		if got := config.EndpointOf(p).Profile(); got != p {
			t.Fatalf("EndpointOf(%+v).Profile() = %+v, want the same", p, got)
		}
	}
	if got := config.Default().Endpoint.Profile(); got != endpoint.Strictest() {
		t.Errorf("without a server the profile is %+v, want the strictest", got)
	}
}

func TestProfileIsChecked(t *testing.T) {
	c := config.Default()
	c.Upstream, c.Unknown = "http://127.0.0.1:1", "limit"
	c.Endpoint = config.Endpoint{
		Server:       "inetd",
		EncodedSlash: "pass",
		Params:       "drop",
		Refuse:       []string{"dots", "dot_segments", "dot_segments"},
	}
	err := c.Complete()
	for _, want := range []string{
		`endpoint.server is "inetd", want one of nginx, `,
		`endpoint.encoded_slash is "pass", want reject, decode or keep`,
		`endpoint.params is "drop", want reject, strip or keep`,
		`endpoint.refuse[0] is "dots", want one of repeated_slashes, dot_segments, unreserved_escapes, bad_utf8, trailing_slash, other_case`,
		`endpoint.refuse[2] is "dot_segments", want each name once`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Complete() = %v, want %s", err, want)
		}
	}
}

// TestServerSetsWhatIsNotSet: a named server decides how targets are read, and each setting that is named stands.
func TestServerSetsWhatIsNotSet(t *testing.T) {
	no := false
	for _, k := range kinds.All() {
		if got := (config.Endpoint{Server: k.Kind}).Profile(); got != k.Profile() {
			t.Errorf("server %s: profile %+v, want its own %+v", k.Kind, got, k.Profile())
		}
		e := config.Endpoint{
			Server:          k.Kind,
			Params:          "reject",
			EncodedSlash:    "reject",
			CaseInsensitive: &no,
			Refuse:          []string{},
		}
		if got := e.Profile(); got != (endpoint.Profile{}) {
			t.Errorf("server %s with every setting named: profile %+v, want these alone", k.Kind, got)
		}
		if a := (config.Endpoint{Server: k.Kind}).Assumes(); !strings.Contains(a, k.Name) ||
			!strings.Contains(a, k.Version) {
			t.Errorf("server %s assumes %q, want its name and version", k.Kind, a)
		}
	}
	want := "nothing, since endpoint.server names none: refused are %2F, ;parameters, repeated_slashes, " +
		"dot_segments, unreserved_escapes, bad_utf8, trailing_slash, other_case"
	if got := config.Default().Endpoint.Assumes(); got != want {
		t.Errorf("without a server: %q, want %q", got, want)
	}
}
