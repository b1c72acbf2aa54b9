package endpoint_test

import (
	"testing"

	"github.com/headgate-io/headgate/endpoint"
)

// TestNumbers: a template has one number in every table that has it, whatever its parameters are called and the profile
// says, and no other template has it.
func TestNumbers(t *testing.T) {
	few := table(t, endpoint.Profile{}, "GET /b", "GET /b/{id}")
	many := table(t, endpoint.Profile{CaseInsensitive: true}, "GET /a", "GET /b", "GET /b/{item}", "POST /b",
		"GET /b/{x...}", "GET /b?v={v}", "GET /b?v=1", "GET /{x}b")
	seen := map[uint64]string{0: "UNKNOWN"}
	for id, template := range many.All() {
		n := many.Number(id)
		if other, ok := seen[n]; ok {
			t.Errorf("%s has the number of %s", template, other)
		}
		seen[n] = template.String()
		if same, ok := few.Lookup(template); ok && few.Number(same) != n {
			t.Errorf("%s has the number %d in one table and %d in another", template, few.Number(same), n)
		}
	}
	if few.Number(endpoint.Unknown) != 0 || many.Number(endpoint.Unknown) != 0 {
		t.Error("UNKNOWN has a number, want 0")
	}
}
