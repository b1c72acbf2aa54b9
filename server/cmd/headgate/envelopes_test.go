package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/inspect"
)

func TestExplainSaysWhatScopesPromise(t *testing.T) {
	for _, c := range []struct {
		scope, loss string
		envelope    inspect.Envelope
		want        string
	}{
		{"strict", "closed", inspect.Envelope{Replicas: 4, Burst: 10, Tokens: 5},
			"4 replicas together admit 10 at once and 5 per 1s; without the store none"},
		{"strict", "share", inspect.Envelope{Replicas: 1, Burst: 10, Tokens: 5},
			"1 replica admits 10 at once and 5 per 1s; without the store each its share"},
		// A replica goes on with what it has to itself of a lease, whatever the rule says.
		{"lease", "closed", inspect.Envelope{Replicas: 2, Burst: 100, Tokens: 100, Excess: 8},
			"2 replicas together admit 100 at once and 100 per 1s, and 8 more; without the store each at most its " +
				"free part"},
		{"lease", "open", inspect.Envelope{Replicas: 2, Burst: 100, Tokens: 100, Excess: 8},
			"2 replicas together admit 100 at once and 100 per 1s, and 8 more; without the store all"},
		{"split", "", inspect.Envelope{Replicas: 2, Burst: 10, Tokens: 5},
			"2 replicas together admit 10 at once and 5 per 1s"},
	} {
		var out strings.Builder
		c.envelope.Per = time.Second
		writeEnvelopes(&out, inspect.Explanation{Buckets: []inspect.Attempt{{Bucket: inspect.Bucket{Rule: "r"},
			Scope: c.scope, OnStoreLoss: c.loss, Envelope: &c.envelope}}})
		if want := "  r is " + c.scope + ": " + c.want + "\n"; out.String() != want {
			t.Errorf("explain says %q, want %q", out.String(), want)
		}
	}
}
