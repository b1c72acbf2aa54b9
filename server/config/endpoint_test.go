package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/server/config"
)

func TestProfileRoundTrip(t *testing.T) {
	for i := range 3 * 3 * 4 * 32 {
		p := endpoint.Profile{EncodedSlash: endpoint.EncodedSlash(i % 3), Params: endpoint.Params(i / 3 % 3),
			CaseInsensitive: i/9&1 != 0, AllowDoubleEncoding: i/18&1 != 0, Refuse: endpoint.Refusal(i / 36)}
		if got := config.EndpointOf(p).Profile(); got != p {
			t.Fatalf("EndpointOf(%+v).Profile() = %+v, want the same", p, got)
		}
	}
	if got, want := config.EndpointOf(endpoint.Profile{}), config.Default().Endpoint; !reflect.DeepEqual(got, want) {
		t.Errorf("EndpointOf of the zero profile = %+v, want the default %+v", got, want)
	}
}

func TestProfileIsChecked(t *testing.T) {
	c := config.Default()
	c.Upstream, c.Unknown = "http://127.0.0.1:1", "limit"
	c.Endpoint = config.Endpoint{EncodedSlash: "pass", Params: "drop", Refuse: []string{"dots", "dot_segments", "dot_segments"}}
	err := c.Complete()
	for _, want := range []string{
		`endpoint.encoded_slash is "pass", want reject, decode or keep`,
		`endpoint.params is "drop", want strip, keep or reject`,
		`endpoint.refuse[0] is "dots", want one of repeated_slashes, dot_segments, unreserved_escapes, bad_utf8, trailing_slash`,
		`endpoint.refuse[2] is "dot_segments", want each name once`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Complete() = %v, want %s", err, want)
		}
	}
}
