package admin_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
)

// TestQueryOfBuckets: whatever a rule counts of a parameter or a claim, its value is named by the parameter or claim;
// and no subject hides what is wrong beside it.
func TestQueryOfBuckets(t *testing.T) {
	for _, counted := range []string{"", "in_flight:", "requests:"} {
		b := admin.BucketRequest{Endpoint: "*", Of: map[string]string{counted + "path:customer": "42"}}
		if q, err := b.Query(); err != nil || !maps.Equal(q.Named, map[string]string{"path:customer": "42"}) {
			t.Errorf("%v is %v (%v), want path:customer 42", b.Of, q.Named, err)
		}
	}
	twice := admin.BucketRequest{Endpoint: "*", Of: map[string]string{
		"path:customer": "42", "requests:path:customer": "7",
	}}
	if _, err := twice.Query(); err == nil || !strings.Contains(err.Error(), "of has two values for") {
		t.Errorf("%v: %v, want an error", twice.Of, err)
	}
	for subject, want := range map[string][]string{
		"path:customer": {"peer is"},
		"color":         {"peer is", "subject"},
	} {
		b := admin.BucketRequest{Endpoint: "*", Peer: "nowhere", Subject: subject}
		_, err := b.Query()
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("peer nowhere and subject %s: %v, want an error that says %q", subject, err, part)
			}
		}
	}
}

// TestValuesOfBuckets: two values of one subject are refused, also where it is written the same way both times.
func TestValuesOfBuckets(t *testing.T) {
	for _, written := range [][]string{nil, {"path:customer=a=b", "claim:org=acme", "path:customer=a=b"}} {
		of, err := admin.OfValues(written)
		if err != nil || len(of) != min(2, len(written)) || of["path:customer"] != "a=b" && written != nil {
			t.Errorf("%q is %q (%v)", written, of, err)
		}
	}
	if _, err := admin.OfValues([]string{"path:customer=42", "path:customer=7"}); err == nil ||
		!strings.Contains(err.Error(), "of has two values for") {
		t.Errorf("two values: %v, want an error", err)
	}
}
