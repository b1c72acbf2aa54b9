//go:build long

package operations

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// TestKillGivesPlacesBack kills a gateway, as a power cut would, that has a thousand requests and 64
// streams under way and keeps its buckets in a file: never are more of them at the API than may be, and once
// the places that the file tells of have ended, as many are again.
func TestKillGivesPlacesBack(t *testing.T) {
	const slow, streams, more = 1000, 64, 36
	const most = slow + streams
	var live, highest atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := live.Add(1)
		defer live.Add(-1)
		for seen := highest.Load(); now > seen && !highest.CompareAndSwap(seen, now); seen = highest.Load() {
		}
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begins\n")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(api.Close) // after the gateway has ended
	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "GET /slow\nGET /stream\n",
		"headgate.yaml": "upstream: " + api.URL + "\nroutes: [routes.txt]\nstate_file: state\n" +
			"state_interval: 100ms\nclients: {max_connections_per_address: 4000, max_requests_per_address: 4000}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "set", "default", "100000", "--db", "sqlite:headgate.db")
	harness.Run(t, dir, "policy", "set", "*", fmt.Sprint(most), "--per", "5s", "--subject", "in_flight:ip",
		"--db", "sqlite:headgate.db")

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	// send asks for one, and says whether it was refused; it returns when its answer has ended otherwise.
	send := func(ctx context.Context, url string, began func()) (refused bool) {
		r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			t.Error(err)
			return false
		}
		answer, err := client.Do(r)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusTooManyRequests {
			return true
		}
		if line, _ := bufio.NewReader(answer.Body).ReadString('\n'); line == "begins\n" {
			began()
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		return false
	}
	// fill has as many under way as may be, and reports how many were refused besides.
	fill := func(ctx context.Context, g *harness.Gateway, all *sync.WaitGroup) (refused, streaming *atomic.Int64) {
		refused, streaming = new(atomic.Int64), new(atomic.Int64)
		for i := range most + more {
			path := "/slow"
			if i < streams {
				path = "/stream"
			}
			all.Go(func() {
				if send(ctx, g.URL+path, func() { streaming.Add(1) }) {
					refused.Add(1)
				}
			})
		}
		return refused, streaming
	}

	g := harness.Serve(t, dir, "--config", "headgate.yaml")
	var first sync.WaitGroup
	refused, streaming := fill(t.Context(), g, &first)
	if !harness.Eventually(time.Minute, func() bool { return live.Load() == most && refused.Load() == more }) {
		t.Fatalf("%d are under way and %d refused, want %d and %d", live.Load(), refused.Load(), most, more)
	}
	want := fmt.Sprintf("\nheadgate_in_flight_requests{rule=\"* at once per ip\"} %d\n", most)
	if !strings.Contains(metricsOf(t, g), want) {
		t.Errorf("the metrics do not say %q", want)
	}
	t.Logf("%d streams had begun", streaming.Load())
	state := filepath.Join(dir, "state")
	if !harness.Eventually(time.Minute, func() bool { s, err := os.Stat(state); return err == nil && s.Size() > 0 }) {
		t.Fatal("no state was written")
	}
	g.Kill()
	first.Wait()
	if !harness.Eventually(time.Minute, func() bool { return live.Load() == 0 }) {
		t.Fatalf("the API still answers %d", live.Load())
	}

	g = harness.Serve(t, dir, "--config", "headgate.yaml")
	for try := 0; ; try++ {
		ctx, cancel := context.WithCancel(t.Context())
		var again sync.WaitGroup
		refused, _ := fill(ctx, g, &again)
		whole := harness.Eventually(time.Minute, func() bool { return live.Load()+refused.Load() == most+more })
		got := live.Load()
		cancel()
		again.Wait()
		if !whole {
			t.Fatalf("%d are under way and %d refused", got, refused.Load())
		}
		if got == most {
			break
		}
		if try == 100 {
			t.Fatalf("after a hundred tries %d may be under way, want %d: places are lost", got, most)
		}
		if !harness.Eventually(time.Minute, func() bool { return live.Load() == 0 }) {
			t.Fatalf("the API still answers %d", live.Load())
		}
	}
	if n := highest.Load(); n > most {
		t.Errorf("%d were at the API at once, want %d at most", n, most)
	}
}

func metricsOf(t *testing.T, g *harness.Gateway) string {
	t.Helper()
	answer, err := http.Get(g.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
