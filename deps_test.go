package headgate_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/headgate-io/headgate/internal/imports"
)

const module = "github.com/headgate-io/headgate"

// allowed is the import table: what each package of this module may import of
// it, besides the standard library. Data flows from left to right (endpoint,
// identity, policy, key, bucket, charge, headgate, doors); an import points left. To
// bend it, edit this table in the same commit and say why.
var allowed = map[string][]string{
	"endpoint":           {"internal/edits", "internal/paramname"},
	"endpoint/pattern":   {"endpoint"}, // templates from the patterns of routers
	"identity":           {"internal/siphash"},
	"identity/region":    {"internal/clip"},
	"rate":               {}, // vocabulary: what a limit is, in exact integers
	"key":                {"internal/siphash"},
	"body":               {"internal/paramname"}, // what doors find in bodies; the pipeline never sees one
	"internal/paramname": {},                     // which names of parameters servers take for one another
	"internal/clip":      {},
	"internal/edits":     {},
	"internal/live":      {},
	"internal/livelog":   {},
	"internal/siphash":   {},
	"internal/steady":    {},
	"internal/problem":   {"internal/values"},
	"internal/override":  {}, // which fields of a request ask for another target
	"policy": {"endpoint", "rate", "internal/clip", "internal/edits", "internal/live",
		"internal/steady"},
	"policy/file":       {"policy", "internal/clip"},
	"policy/sql":        {"policy", "internal/clip"},
	"bucket":            {"key", "rate"},
	"bucket/memory":     {"bucket", "key", "rate"},
	"bucket/buckettest": {"bucket", "key", "rate", "internal/race"},
	"bucket/lease":      {"bucket", "bucket/internal/accounts", "bucket/internal/outbox", "rate"},
	"bucket/report":     {"bucket", "bucket/internal/accounts", "bucket/internal/outbox", "rate"},
	// messages come and go by one method of the caller's
	"bucket/gossip": {"bucket", "bucket/internal/accounts", "key", "rate"},
	// answers questions for leases, and charges reports; a client of the server comes from outside,
	// as one method
	"bucket/redis":      {"bucket", "bucket/lease", "bucket/report", "key", "rate"},
	"internal/deadline": {},
	// decides which of the others to ask
	"bucket/scoped": {"bucket", "bucket/gossip", "bucket/lease", "bucket/report", "key", "rate",
		"internal/deadline"},
	"simulate":                {"bucket", "bucket/gossip", "bucket/lease", "bucket/report", "key", "rate"},
	"charge/internal/subject": {"identity", "policy"},
	"charge": {"bucket", "charge/internal/subject", "endpoint", "identity", "key", "penalty", "policy",
		"rate", "slot"},
	"reservation": {"charge", "key", "rate"},
	"slot":        {"key"},              // when who was refused may come again
	"adaptive":    {"endpoint", "rate"}, // by how much rates are lowered while the API behind is slow
	// who behaves unlike others, by what it did of late
	"anomaly": {"identity", "key", "internal/callers"},
	// who was denied again and again, and is blocked for a time
	"penalty":          {"key", "internal/callers"},
	"internal/callers": {"key"}, // what is kept of each caller, in memory of a fixed size
	// The buckets that a Limiter has unless it is given others are the one thing that the core makes itself.
	"": {"adaptive", "anomaly", "endpoint", "identity", "policy", "bucket", "bucket/memory", "charge", "key", "rate",
		"penalty", "reservation", "slot", "internal/steady", "internal/waiters"},
	"internal/waiters": {"identity"}, // who may wait
	// what people see of it
	"inspect":          {"", "anomaly", "bucket", "charge", "endpoint", "identity", "policy", "rate"},
	"internal/perrule": {"policy"},
	"internal/refusal": {"", "endpoint", "identity", "internal/problem", "rate"},
	"internal/sfv":     {}, // Lists of RFC 9651
	"httplimit": {"", "body", "bucket", "endpoint", "identity", "policy", "rate", "slot", "internal/perrule",
		"internal/problem", "internal/refusal", "internal/sfv", "internal/values"},
	"gateway/upstream": {"internal/silence"}, // connections to the API: it knows neither limits nor net/http
	"gateway": {"", "endpoint", "gateway/upstream", "httplimit", "internal/clip", "internal/override",
		"internal/problem", "internal/refusal", "internal/values"},
	"internal/conns":   {},
	"internal/values":  {}, // room for the header fields of answers
	"internal/silence": {}, // whether the other side of a socket has said anything
	"serve/resp":       {"bucket", "key", "rate", "internal/conns", "serve/decisions"},
	"serve/spoe":       {"internal/conns", "serve/decisions"},
	"serve/decisions": {"", "endpoint", "httplimit", "identity", "internal/override", "internal/perrule",
		"internal/problem", "internal/refusal", "policy", "reservation"},
	"llm":    {}, // numbers out of bodies: it knows no limits
	"proofs": {}, // no Go but a test
	// writes endpoints, rules and keys down for the edge module, and the texts that doors answer with
	"wasm": {"", "bucket", "endpoint", "httplimit", "identity", "internal/problem", "internal/refusal", "policy"},
	// the callers' side: it knows servers by their answers, and what clients say of each other
	"pace":           {"internal/sfv", "pace/telemetry"},
	"pace/telemetry": {},

	"bucket/internal/accounts": {"key"},    // what one replica knows of shared buckets
	"bucket/internal/outbox":   {"bucket"}, // what it tells the authority of them

	// a Limiter for tests
	"internal/trial": {"", "bucket/memory", "endpoint", "identity", "inspect", "internal/race", "policy",
		"reservation"},
	"internal/routertest": {
		"", "bucket/memory", "endpoint", "httplimit", "identity", "policy",
	}, // what middleware for routers has to do
	"internal/imports": {}, // this table, as a test
	// processes that end with the test that started them
	"internal/mortal":    {},
	"internal/freeport":  {},                                       // ports for servers that tests start
	"internal/race":      {},                                       // whether the race detector watches a test
	"internal/redistest": {"internal/freeport", "internal/mortal"}, // real servers for tests
	"internal/streams":   {},                                       // what hostile clients of a server send, for tests
}

// TestImportsPointLeft fails when an arrow runs back, or when a package stands
// outside the table.
func TestImportsPointLeft(t *testing.T) {
	table := imports.Table{Module: module, Own: allowed}
	table.Check(t)
}

// TestRootModuleRequiresNothing pins the promise to the library's users.
func TestRootModuleRequiresNothing(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module {
		t.Fatalf("module is %q, want %q", mod.Module.Path, module)
	}
	for _, r := range mod.Require {
		t.Errorf("the root module requires %s %s, want no requirement at all", r.Path, r.Version)
	}
	if _, err := os.Stat("go.sum"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("go.sum exists (%v), want none", err)
	}
}
