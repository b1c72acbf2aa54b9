//go:build unix

package doors

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	decisions "github.com/headgate-io/headgate/clients/decisions-go"
	"github.com/headgate-io/headgate/eval/harness"
)

// beside is a Headgate that is asked about two endpoints, of which each caller has three an hour and a thousand a day.
func beside(t *testing.T) (headgate *harness.Gateway) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/items/{id}\nPOST /v1/chat\n")
	harness.Run(t, dir, "policy", "set", "GET /v1/items/{id}", "3", "--per", "1h", "--db", "sqlite:headgate.db")
	harness.Run(t, dir, "policy", "set", "POST /v1/chat", "1000", "--per", "24h", "--db", "sqlite:headgate.db")
	return harness.Serve(t, dir, "--listen", "none", "--decisions", "127.0.0.1:0", "--routes", "routes.txt")
}

// begin: client
// mayPass asks about one request of a user. Whoever repeats the question under the same key pays once.
func mayPass(ctx context.Context, client *decisions.ClientWithResponses, id, key string) (decisions.Answer, error) {
	var body decisions.CheckBody
	err := body.FromQuestion(decisions.Question{
		Method: "GET",
		Target: "/v1/items/7",
		Client: "192.0.2.7",
		User:   &decisions.User{Id: id},
	})
	if err != nil {
		return decisions.Answer{}, err
	}
	got, err := client.CheckWithResponse(ctx, &decisions.CheckParams{IdempotencyKey: &key}, body)
	switch {
	case err != nil:
		return decisions.Answer{}, err
	case got.JSON200 == nil:
		return decisions.Answer{}, problem(got.ApplicationproblemJSONDefault, got.Status())
	}
	return got.JSON200.AsAnswer()
}

// end: client

// problem is why there is no answer.
func problem(p *decisions.Problem, status string) error {
	if p == nil || p.Detail == nil {
		return &noAnswer{status}
	}
	return &noAnswer{p.Title + ": " + *p.Detail}
}

type noAnswer struct{ why string }

func (e *noAnswer) Error() string { return e.why }

// The generated client for Go asks one question, several, and about what is settled later.
func TestGeneratedGo(t *testing.T) {
	client, err := decisions.NewClientWithResponses(beside(t).Decisions)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key       string
		allowed   bool
		remaining int64
	}{{"a", true, 2}, {"a", true, 2}, {"b", true, 1}, {"c", true, 0}, {"d", false, 0}, {"d", false, 0}} {
		got, err := mayPass(t.Context(), client, "ann", c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got.Allowed != c.allowed || got.Remaining == nil || *got.Remaining != c.remaining ||
			*got.Endpoint != "GET /v1/items/{id}" {
			t.Errorf("under the key %s: %+v, want %+v", c.key, got, c)
		}
		if !c.allowed && (got.Status != 429 || got.RetryAfter == nil || *got.RetryAfter <= 0 || got.Header == nil ||
			(*got.Header)["Retry-After"] == "" || got.Problem == nil) {
			t.Errorf("refused with %+v", got)
		}
	}
	if _, err := mayPass(t.Context(), client, "ann", ""); err == nil || err.Error() == "" {
		t.Errorf("an empty key: %v, want why it is refused", err)
	}

	var batch decisions.CheckBody
	one := decisions.Question{Method: "GET", Target: "/v1/items/8", Client: "192.0.2.8"}
	if err := batch.FromQuestions(decisions.Questions{Requests: []decisions.Question{one, one, one, one}}); err != nil {
		t.Fatal(err)
	}
	several, err := client.CheckWithResponse(t.Context(), nil, batch)
	if err != nil || several.JSON200 == nil {
		t.Fatalf("%v, %s", err, several.Body)
	}
	answers, err := several.JSON200.AsAnswers()
	if err != nil || len(answers.Decisions) != 4 || !answers.Decisions[2].Allowed || answers.Decisions[3].Allowed {
		t.Errorf("of four questions: %+v, %v", answers, err)
	}

	cost, reserve := int64(500), int64(60)
	var estimate decisions.CheckBody
	if err := estimate.FromQuestion(decisions.Question{
		Method:  "POST",
		Target:  "/v1/chat",
		Client:  "192.0.2.7",
		Cost:    &cost,
		Reserve: &reserve,
	}); err != nil {
		t.Fatal(err)
	}
	held, err := client.CheckWithResponse(t.Context(), nil, estimate)
	if err != nil || held.JSON200 == nil {
		t.Fatalf("%v, %s", err, held.Body)
	}
	answer, err := held.JSON200.AsAnswer()
	if err != nil || answer.Reservation == nil || answer.Expires == nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	for _, want := range []decisions.SettledStatus{decisions.SettledStatusSettled,
		decisions.SettledStatusAlreadySettled} {
		var spent decisions.SettleBody
		if err := spent.FromSpent(decisions.Spent{Reservation: *answer.Reservation, Actual: 120}); err != nil {
			t.Fatal(err)
		}
		done, err := client.SettleWithResponse(t.Context(), spent)
		if err != nil || done.JSON200 == nil {
			t.Fatalf("%v, %s", err, done.Body)
		}
		if settled, err := done.JSON200.AsSettled(); err != nil || settled.Status != want || settled.Reserved != 500 ||
			settled.Actual != 120 {
			t.Errorf("settled: %+v, %v, want %s", settled, err, want)
		}
	}
	fault, err := client.CheckWithBodyWithResponse(t.Context(), nil, "application/json", &failing{})
	if err == nil {
		t.Errorf("a body that cannot be read: %+v", fault)
	}
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, os.ErrClosed }

// Those for Python and TypeScript do the same, and TypeScript finds their types right.
func TestGeneratedPythonAndTypeScript(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(root, "bin/garden/node_modules")
	env := append(os.Environ(), "HEADGATE="+beside(t).Decisions, "MODULES="+modules)
	packageTest(t, root, "clients/decisions-python", []string{filepath.Join(root, "bin/garden/venv/bin/python"), "-m",
		"unittest", "tests/with_headgate.py"}, env)

	// Node and tsc find libraries beside what imports them.
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "clients/decisions-ts"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	packageTest(t, dir, ".", []string{filepath.Join(modules, ".bin/tsc"), "-p", "."}, env)
	packageTest(t, dir, ".", []string{"node", "--test", "tests/"}, env)
}
