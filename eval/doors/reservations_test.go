//go:build unix

package doors

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/serve/decisions"
)

// What is reserved at one of two gateways is taken from both, and given back to both; whatever happens
// meanwhile: the limit is lowered, the other gateway is asked to settle, the store does not answer.
func TestReservationsOfTwoGateways(t *testing.T) {
	store := redistest.Start(t)
	dir := t.TempDir()
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	write(t, filepath.Join(dir, "routes.txt"), "POST /v1/chat\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("0123456789abcdef", 4)+"\n")
	limit := func(tokens int) {
		harness.Run(t, dir, "policy", "set", "default", fmt.Sprint(tokens), "--per", "24h", "--scope",
			"strict", "--db", db)
	}
	limit(1000)
	var gateways [2]*harness.Gateway
	for i := range gateways {
		own := t.TempDir()
		write(t, filepath.Join(own, "headgate.yaml"),
			fmt.Sprintf("decisions: {listen: '127.0.0.1:0'}\nroutes: [%[1]s/routes.txt]\n"+
				"store: {redis: ['%[2]s'], secret_file: %[1]s/secret, deadline: 1s, lease_ttl: 5s}\n", dir,
				store.Socket))
		gateways[i] = harness.Serve(t, own, "--config", "headgate.yaml", "--listen", "none", "--db", db)
	}
	post := func(i int, path, body string, into any) int {
		t.Helper()
		response, err := http.Post(gateways[i].Decisions+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode == http.StatusOK {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %d %s: %v", path, response.StatusCode, text, err)
		}
		return response.StatusCode
	}
	check := func(i, cost, reserve int) (a decisions.Answer) {
		t.Helper()
		post(i, "/v1/check",
			fmt.Sprintf(
				`{"method":"POST","target":"/v1/chat","client":"192.0.2.1","user":{"id":"ann"},"cost":%d,"reserve":%d}`,
				cost, reserve), &a)
		return a
	}
	// left is what the other gateway sees. It takes a token to look.
	taken := int64(0)
	left := func(i int) int64 {
		t.Helper()
		a := check(i, 1, 0)
		if a.Remaining == nil {
			t.Fatalf("%+v", a)
		}
		if a.Allowed {
			taken++
		}
		return *a.Remaining + taken
	}
	settle := func(i int, id string, actual int) (s decisions.Settled, status int) {
		t.Helper()
		status = post(i, "/v1/settle", fmt.Sprintf(`{"reservation":"%s","actual":%d}`, id, actual), &s)
		return s, status
	}

	first := check(0, 200, 300)
	if !first.Allowed || len(first.Reservation) != 32 {
		t.Fatalf("%+v", first)
	}
	if n := left(1); n != 800 {
		t.Errorf("%d are left at the other gateway after 200 of 1000 were reserved", n)
	}
	if s, _ := settle(1, first.Reservation, 0); s.Status != "no_reservation" {
		t.Errorf("the other gateway settles: %+v", s)
	}
	store.Freeze()
	_, frozen := settle(0, first.Reservation, 100)
	store.Thaw()
	if frozen != http.StatusServiceUnavailable {
		t.Errorf("while the store does not answer: %d", frozen)
	}
	var s decisions.Settled
	if !harness.Eventually(time.Minute, func() (ok bool) {
		var status int
		s, status = settle(0, first.Reservation, 100)
		return status == http.StatusOK
	}) || s.Actual != 100 {
		t.Fatalf("once it answers: %+v", s)
	}
	// What the store was to give back and did not answer for may have been given, and is not given again.
	switch n := left(1); n {
	case 800, 900:
	default:
		t.Errorf("%d are left after 100 of 200 were spent, want 900, or 800 where the answer got lost", n)
	}

	before := left(1)
	second := check(1, 200, 300)
	limit(700)
	lowered := harness.Eventually(time.Minute, func() bool { return left(0) <= before-300-200+1 })
	if !lowered {
		t.Fatal("the lowered limit does not act")
	}
	now := left(0)
	if s, _ := settle(1, second.Reservation, 50); s.Status != "settled" {
		t.Errorf("%+v", s)
	}
	if n := left(0); n > now+150 {
		t.Errorf("%d are left, and were %d before at most 150 were given back under a lower limit", n, now)
	}
}
