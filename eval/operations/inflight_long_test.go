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
	"github.com/headgate-io/headgate/internal/redistest"
)

// slowAPI answers nobody until they leave, and counts them.
type slowAPI struct {
	*httptest.Server
	live, highest atomic.Int64
}

func newSlowAPI(t *testing.T) *slowAPI {
	t.Helper()
	a := new(slowAPI)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := a.live.Add(1)
		defer a.live.Add(-1)
		for seen := a.highest.Load(); now > seen && !a.highest.CompareAndSwap(seen, now); seen = a.highest.Load() {
		}
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begins\n")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(a.Close) // after the gateways have ended
	return a
}

// What the tests have under way: so many requests and streams, and some that are too many.
const slow, streams, more = 1000, 64, 36
const most = slow + streams

// placesDir is a folder for gateways before an API whose callers may have so many under way, with places that are kept
// for a time, and more settings.
func placesDir(t *testing.T, api string, limit int, kept time.Duration, settings string, rule ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "GET /slow\nGET /stream\n", "one.secret": strings.Repeat("5a", 32) + "\n",
		"headgate.yaml": "upstream: " + api + "\nupstream_timeout: 5m\nroutes: [routes.txt]\n" + settings +
			"clients: {max_connections_per_address: 4000, max_requests_per_address: 4000}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "set", "default", "100000", "--db", "sqlite:headgate.db")
	harness.Run(t, dir, append([]string{"policy", "set", "*", fmt.Sprint(limit), "--per", kept.String(),
		"--subject", "in_flight:ip", "--db", "sqlite:headgate.db"}, rule...)...)
	return dir
}

// filling is requests that are under way, or were refused.
type filling struct {
	all                sync.WaitGroup
	refused, streaming atomic.Int64
}

var callers = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// fill asks the gateways in turn for so many requests, some of them streams, which are under way until ctx ends.
func (f *filling) fill(ctx context.Context, n int, gateways ...*harness.Gateway) {
	for i := range n {
		path := "/slow"
		if i*most < n*streams {
			path = "/stream"
		}
		f.all.Go(func() { f.send(ctx, gateways[i%len(gateways)].URL+path) })
	}
}

// send asks for one, and returns when its answer has ended.
func (f *filling) send(ctx context.Context, url string) {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err) // the address is ours
	}
	answer, err := callers.Do(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK { // or the store was too slow, under so many at once
		f.refused.Add(1)
		return
	}
	if line, _ := bufio.NewReader(answer.Body).ReadString('\n'); line == "begins\n" {
		f.streaming.Add(1)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
}

// until waits for something about the API.
func (a *slowAPI) until(t *testing.T, what string, good func(live int64) bool) {
	t.Helper()
	if !harness.Eventually(time.Minute, func() bool { return good(a.live.Load()) }) {
		t.Fatalf("the API answers %d, want %s", a.live.Load(), what)
	}
}

// TestKillGivesPlacesBack kills a gateway, as a power cut would, that has a thousand requests and 64
// streams under way and keeps its buckets in a file: never are more of them at the API than may be, and once
// the places that the file tells of have ended, as many are again, as often as all of them end at once.
func TestKillGivesPlacesBack(t *testing.T) {
	api := newSlowAPI(t)
	dir := placesDir(t, api.URL, most, 5*time.Second, "state_file: state\nstate_interval: 100ms\n")
	g := harness.Serve(t, dir, "--config", "headgate.yaml")
	var first filling
	first.fill(t.Context(), most+more, g)
	api.until(t, "as many as may be", func(live int64) bool { return live == most && first.refused.Load() == more })
	want := fmt.Sprintf("\nheadgate_in_flight_requests{rule=\"* at once per ip\"} %d\n", most)
	if !strings.Contains(metricsOf(t, g), want) {
		t.Errorf("the metrics do not say %q", want)
	}
	t.Logf("%d streams had begun", first.streaming.Load())
	state := filepath.Join(dir, "state")
	if !harness.Eventually(time.Minute, func() bool { s, err := os.Stat(state); return err == nil && s.Size() > 0 }) {
		t.Fatal("no state was written")
	}
	g.Kill()
	first.all.Wait()
	api.until(t, "none", func(live int64) bool { return live == 0 })

	g = harness.Serve(t, dir, "--config", "headgate.yaml")
	for try, full := 0, 0; full < 10; try++ {
		ctx, cancel := context.WithCancel(t.Context())
		var again filling
		again.fill(ctx, most+more, g)
		api.until(t, "all but those refused", func(live int64) bool { return live+again.refused.Load() == most+more })
		got := api.live.Load()
		cancel()
		again.all.Wait()
		switch {
		case got == most:
			full++
		case full > 0 || try == 100:
			t.Fatalf("after %d tries %d may be under way, want %d: places are lost", try, got, most)
		}
		api.until(t, "none", func(live int64) bool { return live == 0 })
	}
	if n := api.highest.Load(); n > most {
		t.Errorf("%d were at the API at once, want %d at most", n, most)
	}
}

// TestKillGivesPlacesBackOfTheStore kills one of three gateways that share a store and have a thousand requests and 64
// streams under way together: never are more of them at the API than may be, the others keep their places for as long
// as their requests last, and those of the one that died are there again when its time is over. Then one stands still
// for so long that others have its places, and gives none of those back when it goes on.
func TestKillGivesPlacesBackOfTheStore(t *testing.T) {
	for _, by := range [][2]string{{"net/http", "strict"}, {"fast", "strict"}, {"fast", "lease"}} {
		t.Run(by[0]+", "+by[1], func(t *testing.T) { killOneOfThree(t, by[0], by[1]) })
	}
}

func killOneOfThree(t *testing.T, engine, scope string) {
	api := newSlowAPI(t)
	store := redistest.Start(t)
	dir := placesDir(t, api.URL, most, 5*time.Second, "engine: "+engine+"\nstore:\n  redis: ["+store.Socket+
		"]\n  secret_file: one.secret\n  deadline: 100ms\n", "--scope", scope)
	ofSecond, endSecond := context.WithCancel(t.Context())
	defer endSecond()
	var f filling
	// fillUp has so many under way, of which those that are asked for now are at g.
	fillUp := func(ctx context.Context, want int64, g *harness.Gateway) {
		t.Helper()
		if !harness.Eventually(2*time.Minute, func() bool {
			before, refused := api.live.Load(), f.refused.Load()
			asked := min(streams, max(1, want-before))
			f.fill(ctx, int(asked), g)
			return harness.Eventually(10*time.Second, func() bool {
				return api.live.Load()-before+f.refused.Load()-refused == asked
			}) && api.live.Load() >= want
		}) {
			t.Fatalf("%d are under way and %d refused, want %d", api.live.Load(), f.refused.Load(), want)
		}
	}
	// full sees that not one more may be.
	full := func(g *harness.Gateway) {
		t.Helper()
		before := f.refused.Load()
		f.fill(t.Context(), more, g)
		if !harness.Eventually(time.Minute, func() bool { return f.refused.Load() == before+more }) {
			t.Errorf("%d of %d more are refused, want all", f.refused.Load()-before, more)
		}
		if n := api.live.Load(); n > most {
			t.Errorf("%d are at the API, want %d at most", n, most)
		}
	}
	var gateways []*harness.Gateway
	for i, ctx := range []context.Context{t.Context(), ofSecond, t.Context()} {
		gateways = append(gateways, harness.Serve(t, dir, "--config", "headgate.yaml"))
		fillUp(ctx, int64(most*(i+1)/3), gateways[i])
	}
	full(gateways[2])
	t.Logf("%d are under way, of them %d streams", api.live.Load(), f.streaming.Load())

	gateways[0].Kill()
	killed, refused := time.Now(), f.refused.Load()
	api.until(t, "those of two gateways", func(live int64) bool { return live <= most-most/3 })
	fillUp(t.Context(), most, gateways[2])
	t.Logf("%d places were there again %v after the kill, of places that are kept for 5 s; %d requests were refused",
		most/3, time.Since(killed), f.refused.Load()-refused)
	full(gateways[1])
	if n := api.highest.Load(); n > most {
		t.Errorf("%d were at the API at once, want %d at most", n, most)
	}

	if err := gateways[1].Freeze(); err != nil {
		t.Fatal(err)
	}
	fillUp(t.Context(), most+most/3, gateways[2]) // others have its places by then, and it has its requests
	if err := gateways[1].Thaw(); err != nil {
		t.Fatal(err)
	}
	endSecond()
	api.until(t, "as many as may be", func(live int64) bool { return live <= most })
	fillUp(t.Context(), most, gateways[2])
	full(gateways[2])
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
