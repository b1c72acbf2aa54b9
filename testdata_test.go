package headgate_test

import (
	"encoding/json"
	"os"
	"testing"
)

// stripeTemplates returns the 594 endpoints of Stripe's API, which the
// endpoint package keeps for its tests.
func stripeTemplates(t testing.TB) []string {
	t.Helper()
	return operations(t, "endpoint/testdata/stripe.ops.json")
}

func operations(t testing.TB, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Ops []struct{ Method, Path string }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var templates []string
	for _, op := range document.Ops {
		templates = append(templates, op.Method+" "+op.Path)
	}
	if len(templates) == 0 {
		t.Fatalf("%s holds no operations", path)
	}
	return templates
}
