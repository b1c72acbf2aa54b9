//go:build unix && long

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/pace"
	wire "github.com/headgate-io/headgate/pace/telemetry"
	"github.com/headgate-io/headgate/server/telemetry"
	"github.com/headgate-io/headgate/slot"
)

// faster is how many times faster than the machine's the clock of the experiment runs.
const faster = 10

// hurried is that clock: for clients, for the aggregator and for Headgate. Envoy has the machine's,
// and a quota that is as many times higher.
type hurried struct{ began time.Time }

func (c hurried) Now() time.Time { return c.began.Add(faster * time.Since(c.began)) }

func (c hurried) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d/faster, f).Stop
}

// Idle connections live as long as in the paper's experiment, and its service multiplies.
const keepAlive = 350 * time.Second

// h2c is HTTP/2 without TLS, and nothing else.
func h2c() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

// listening serves over h2c until the test ends.
func listening(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, Protocols: h2c(), IdleTimeout: keepAlive}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// service is the paper's: it multiplies two numbers.
func service(w http.ResponseWriter, r *http.Request) {
	var in struct{ A, B int }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, in.A*in.B)
}

// envoys is one Envoy with a listener, and with it a bucket, for each name.
func envoys(t *testing.T, upstream string, names []string) (addresses map[string]string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(upstream)
	type object = map[string]any
	typed := func(name, kind string, more object) object {
		if more == nil {
			more = object{}
		}
		more["@type"] = "type.googleapis.com/envoy.extensions." + kind
		return object{"name": name, "typed_config": more}
	}
	at := func(port any) object { return object{"socket_address": object{"address": host, "port_value": port}} }
	whole := object{"default_value": object{"numerator": 100}}
	addresses = make(map[string]string)
	var listeners []object
	for _, name := range names {
		own, err := freeport.Pick()
		if err != nil {
			t.Fatal(err)
		}
		addresses[name] = fmt.Sprint(host, ":", own)
		listeners = append(listeners, object{
			"name": name, "address": at(own), "tcp_backlog_size": 2048,
			"filter_chains": []object{{"filters": []object{typed("envoy.filters.network.http_connection_manager",
				"filters.network.http_connection_manager.v3.HttpConnectionManager", object{
					"stat_prefix": name, "codec_type": "AUTO",
					"common_http_protocol_options": object{"idle_timeout": "350s"},
					"http_filters": []object{
						typed("envoy.filters.http.local_ratelimit",
							"filters.http.local_ratelimit.v3.LocalRateLimit", object{
								"stat_prefix": name, "filter_enabled": whole, "filter_enforced": whole,
								"token_bucket": object{
									"max_tokens":      capacity,
									"tokens_per_fill": perMinute,
									"fill_interval":   fmt.Sprintf("%gs", 60.0/faster),
								},
							}),
						typed("envoy.filters.http.router", "filters.http.router.v3.Router", nil),
					},
					"route_config": object{"virtual_hosts": []object{{
						"name":    "all",
						"domains": []string{"*"},
						"routes":  []object{{"match": object{"prefix": "/"}, "route": object{"cluster": "service"}}},
					}}},
				})}}},
		})
	}
	file := filepath.Join(t.TempDir(), "envoy.json")
	text, err := json.Marshal(object{"static_resources": object{"listeners": listeners, "clusters": []object{{
		"name": "service", "type": "STATIC",
		"load_assignment": object{
			"cluster_name": "service",
			"endpoints": []object{
				{"lb_endpoints": []object{{"endpoint": object{"address": at(json.Number(port))}}}}},
		},
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}},
	}}}})
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	root, err2 := harness.Root()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "bin/garden/venv/bin/envoy"), "-c", file, "--concurrency", "1", "-l",
		"error", "--disable-hot-restart")
	var log livelog.Text
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for name, address := range addresses {
		if !harness.Eventually(time.Minute, func() bool {
			c, err := net.Dial("tcp", address)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		}) {
			t.Fatalf("nobody listens for %s at %s: %s", name, address, log.String())
		}
	}
	return addresses
}

// aggregating is a running aggregator, with a quota for each name.
func aggregating(t *testing.T, clock hurried, secret []byte, names []string) (address string) {
	t.Helper()
	o := telemetry.Options{Secrets: [][]byte{secret}}
	for _, name := range names {
		o.Quotas = append(o.Quotas, telemetry.Quota{Name: name, Capacity: perMinute / 60.0, Burst: capacity})
	}
	udp, err1 := net.ListenPacket("udp", "127.0.0.1:0")
	a, err2 := telemetry.New(o, clock.Now())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s, err := telemetry.NewServer(telemetry.ServerOptions{
		Aggregator: a,
		UDP:        udp,
		Now:        clock.Now,
		PerSource:  1000,
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return udp.LocalAddr().String()
}

// headgates is a Headgate before the service, with a bucket of its own, and slots if a contender
// relies on them.
func headgates(t *testing.T, clock hurried, says speech) (address string) {
	t.Helper()
	o := headgate.Options{
		Rules: []string{fmt.Sprintf("POST /product %d/min burst %d by endpoint", perMinute, capacity),
			"default 1000/s"}, Now: clock.Now,
	}
	if says >= spaced {
		o.Slots = slot.New(slot.Options{Reserve: says == reserved, MaxAhead: int64(24 * time.Hour)})
	}
	lim, err := headgate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return listening(t, httplimit.Handler(lim, http.HandlerFunc(service), httplimit.Options{}))
}

// overSockets has the clients of a workload call the service.
func overSockets(t *testing.T, address string, c contender, w workload, random uint64, clock hurried,
	shared func(string) (wire.Options, bool)) (got cell) {
	t.Helper()
	var mu sync.Mutex // guards what follows
	var last time.Time
	first := horizon
	refused, numbers := 0, rand.New(rand.NewPCG(random, 1))
	draw := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return numbers.Float64()
	}
	began := clock.Now()
	var all sync.WaitGroup
	for i, arrivals := range w {
		// callers are told apart by address
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i))}}
		base := &http.Transport{DialContext: from.DialContext, Protocols: h2c(), IdleConnTimeout: keepAlive}
		t.Cleanup(base.CloseIdleConnections)
		transport := pace.New(pace.Options{
			Base: base, Algorithm: c.algorithm, Clock: clock, Random: draw, Telemetry: shared,
			OmitPending: c.says != reserved,
			MaxAttempts: 1 << 20, MaxWait: patience, MaxRetryAfter: patience,
			OnAttempt: func(a pace.Attempt) {
				mu.Lock()
				defer mu.Unlock()
				if a.Refused {
					refused++
				}
			},
		})
		t.Cleanup(transport.Close)
		client := &http.Client{Transport: transport}
		for _, arrival := range arrivals {
			all.Add(1)
			first = min(first, starts(i)+arrival)
			clock.AfterFunc(starts(i)+arrival, func() {
				defer all.Done()
				response, err := client.Post("http://"+address+"/product", "application/json",
					strings.NewReader(`{"a": 6, "b": 7}`))
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
					return
				}
				text, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != 200 || string(text) != "42" || response.ProtoMajor != 2 {
					t.Errorf("%s: %s %d %q %v, want 42 over HTTP/2", c.name, response.Proto,
						response.StatusCode, text, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if now := clock.Now(); now.After(last) {
					last = now
				}
			})
		}
	}
	all.Wait()
	return cell{seconds: (last.Sub(began) - first).Seconds(), refused: float64(refused)}
}

// The experiment of the paper over real connections, faster: five clients with 800 requests, by
// HTTP/2 in plain text, before Envoy's local rate limit and before Headgate. One run each shows no
// more than what is far apart, so the bands are wide.
func TestThePapersTopology(t *testing.T) {
	s := scenarios()[0]
	w := s.workload(rand.New(rand.NewPCG(7, 800)), 800)
	clock := hurried{time.Now()}
	type run struct {
		server string
		contender
	}
	var runs []run
	var names, shares []string
	for _, name := range []string{"UB", "WB", "ATB", "AATB", "AP", "XATB"} {
		runs = append(runs, run{"Envoy", contenderNamed(s, name)}, run{"Headgate", contenderNamed(s, name)})
		names = append(names, name)
	}
	runs = append(runs, run{"Headgate", contenderNamed(s, "HATB")}, run{"Headgate", contenderNamed(s, "obeys, spaced")})
	for _, r := range runs {
		if r.telemetry {
			shares = append(shares, strings.ToLower(r.server+"-"+r.name))
		}
	}
	secret := []byte(strings.Repeat("s", 32))
	aggregator := aggregating(t, clock, secret, shares)
	addresses := envoys(t, listening(t, http.HandlerFunc(service)), names)
	var mu sync.Mutex
	got := map[string]cell{}
	var under sync.WaitGroup
	for i, r := range runs {
		under.Go(func() {
			address := addresses[r.name]
			if r.server == "Headgate" {
				address = headgates(t, clock, r.says)
			}
			one := overSockets(t, address, r.contender, w, uint64(i), clock, func(string) (wire.Options, bool) {
				return wire.Options{Addr: aggregator, Quota: strings.ToLower(r.server + "-" + r.name), Secret: secret},
					r.telemetry
			})
			mu.Lock()
			defer mu.Unlock()
			got[r.server+" "+r.name] = one
		})
	}
	under.Wait()
	least := oracle(w, newLimiter(capacity, perMinute)).duration.Seconds()
	for _, r := range runs {
		one, ub := got[r.server+" "+r.name], got[r.server+" UB"]
		t.Logf("%-8s  %-13s  %4.0f s (%+5.1f %%)  %4.0f refused (%+6.1f %%)", r.server, r.name, one.seconds,
			over(one.seconds, ub.seconds), one.refused, over(one.refused, ub.refused))
		if one.seconds < least-2 {
			t.Errorf("%s, %s: %.1f s, and the optimum is %.1f: more passed than the quota allows", r.server, r.name,
				one.seconds, least)
		}
		limits := map[string]struct{ longer, fewer float64 }{ // percent against UB, at most
			"UB": {0, 0}, "WB": {40, 5}, "ATB": {45, -30}, "AATB": {80, -80}, "AP": {25, -50}, "XATB": {30, -90},
			"HATB": {3, -96}, "obeys, spaced": {3, 5},
		}[r.name]
		if d, e := over(one.seconds, ub.seconds), over(one.refused, ub.refused); d > limits.longer || e > limits.fewer {
			t.Errorf("%s, %s: %+.1f %% of duration and %+.1f %% of refusals against UB, want at most %+.0f and %+.0f",
				r.server, r.name, d, e, limits.longer, limits.fewer)
		}
	}
}
