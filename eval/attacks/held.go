package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// held is what a vector cost, and what others noticed of it.
type held struct {
	vector              vector
	span                time.Duration // of each stretch
	connections, opened int
	most                int           // held at a time
	memory              float64       // more than before, in MiB
	goroutines          int           // at most
	cpu                 float64       // of one processor
	quiet, attacked     latencies     // of honest requests through the gateway
	alone, beside       latencies     // and of requests to the API itself, at the same times
	health              time.Duration // the slowest answer of /healthz
}

// latencies are those of one stretch after the other.
type latencies struct {
	asked, failed int
	slowest       time.Duration
	p99s          []time.Duration // of each stretch
}

// add adds a stretch.
func (l *latencies) add(all []time.Duration, failed int) {
	l.asked, l.failed = l.asked+len(all), l.failed+failed
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	l.slowest = max(l.slowest, all[len(all)-1])
	l.p99s = append(l.p99s, all[len(all)*99/100])
}

// p99 is the median of the stretches'.
func (l *latencies) p99() time.Duration {
	if len(l.p99s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.p99s))
	return sorted[len(sorted)/2]
}

// honest makes requests for so long, a hundred a second, by turns as a newcomer and on a connection that is kept; and
// as many to the API itself.
func (s *site) honest(ctx context.Context, span time.Duration, through, beside *latencies) {
	var wg sync.WaitGroup
	wg.Go(func() { through.add(s.asks(ctx, s.gate.URL, span)) })
	wg.Go(func() { beside.add(s.asks(ctx, s.api.URL, span)) })
	wg.Wait()
}

func (s *site) asks(ctx context.Context, url string, span time.Duration) (all []time.Duration, failed int) {
	kept, fresh := s.client(victim, false, 5*time.Second), s.client(victim, true, 5*time.Second)
	defer kept.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(span)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
		case <-end:
		case <-tick.C:
			client := kept
			if i%2 == 0 {
				client = fresh
			}
			wg.Go(func() {
				took, ok := ask(client, url+"/v1/items/1")
				mu.Lock()
				defer mu.Unlock()
				if all = append(all, took); !ok {
					failed++
				}
			})
			continue
		}
		wg.Wait()
		return all, failed
	}
}

func ask(client *http.Client, url string) (time.Duration, bool) {
	began := time.Now()
	response, err := client.Get(url)
	if err != nil {
		return time.Since(began), false
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return time.Since(began), err == nil && response.StatusCode == http.StatusOK
}

// watch looks at the process, which had so much memory before, and at /healthz until ctx ends.
func (s *site) watch(ctx context.Context, h *held, before float64) {
	client := s.client(netip.MustParseAddr("127.0.0.1"), true, 10*time.Second)
	for tick := time.NewTicker(250 * time.Millisecond); ; {
		took, ok := ask(client, s.gate.Admin+"/healthz")
		if !ok {
			took = max(took, 10*time.Second)
		}
		h.health = max(h.health, took)
		h.memory = max(h.memory, memory(s.gate.PID())-before)
		values := s.metrics(client)
		h.most = max(h.most, int(values[`headgate_connections{listener="gateway"}`]))
		h.goroutines = max(h.goroutines, int(values["go_goroutines"]))
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

func (s *site) metrics(client *http.Client) map[string]float64 {
	values := map[string]float64{}
	response, err := client.Get(s.gate.Admin + "/metrics")
	if err != nil {
		return values
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			values[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return values
}

// memory is what a process has resident, in MiB.
func memory(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("VmRSS:"))
	kb, _ := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
	return kb / 1024
}

// spent is the processor time of a process so far.
func spent(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // of a hundred a second
}

// measureHeld lets one client with n connections hold what it can, in so many rounds: for span, after as long of quiet.
func (s *site) measureHeld(ctx context.Context, v vector, n, rounds int, span time.Duration,
	yields bool) (held, error) {
	if v.share > 0 {
		n = max(1, n/v.share)
	}
	h := held{vector: v, span: span, connections: n}
	before := memory(s.gate.PID())
	for range rounds {
		// Metrics take the gateway some milliseconds each time, so they are asked for without the attacker as well.
		undisturbed, stop := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { s.watch(undisturbed, &held{}, before) })
		s.honest(ctx, span, &h.quiet, &h.alone)
		stop()
		watching.Wait()
		attacking, stop := context.WithCancel(ctx)
		var underWay atomic.Bool
		a := &holder{ctx: attacking, vector: v, to: s.address(), from: attacker, yields: yields,
			under: func() { underWay.Store(true) }}
		var wg sync.WaitGroup
		var failed error
		wg.Go(func() { failed = a.attackApart(n) })
		wg.Go(func() { s.watch(attacking, &h, before) })
		cpu, began := spent(s.gate.PID()), time.Now()
		s.honest(ctx, span, &h.attacked, &h.beside)
		// A busy machine has not even started the attacker's process by then, or has opened next to nothing.
		for !underWay.Load() && ctx.Err() == nil && time.Since(began) < time.Minute {
			s.honest(ctx, span, &h.attacked, &h.beside)
		}
		h.cpu += (spent(s.gate.PID()) - cpu).Seconds() / time.Since(began).Seconds() / float64(rounds)
		stop()
		wg.Wait()
		if h.opened += int(a.opened.Load()); failed != nil {
			return h, failed
		}
		if err := s.recovers(ctx); err != nil {
			return h, err
		}
	}
	return h, nil
}

// recovers waits until the gateway has ended what the attacker left behind.
func (s *site) recovers(ctx context.Context) error {
	client := s.client(netip.MustParseAddr("127.0.0.1"), true, 10*time.Second)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 300 {
		if s.metrics(client)[`headgate_connections{listener="gateway"}`] <= 2 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return errors.New("the gateway holds connections of an attacker who has gone for 30 s")
}

// Descriptors of the gateway, and connections of the attacker, for the page.
const (
	heldDescriptors = 4096
	heldConnections = 10_000
	heldRounds      = 5
)

// holdAll measures every vector whose name has a text in it, each with a gateway of its own.
func (l *lab) holdAll(span time.Duration, only string, progress io.Writer) ([]held, error) {
	gateways, err := divide()
	if err != nil {
		return nil, err
	}
	var all []held
	for _, v := range vectors {
		if !strings.Contains(v.name, only) {
			continue
		}
		room, err := l.room()
		if err != nil {
			return nil, err
		}
		s, err := openSite(room, heldDescriptors, gateways, v.tls)
		if err != nil {
			room.close()
			return nil, err
		}
		h, err := s.measureHeld(l.ctx, v, heldConnections, heldRounds, span, true)
		room.close()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(progress, "%s: p99 %v quiet, %v attacked; of the API itself %v, %v; %d of %d failed, /healthz %v\n",
			v.name, h.quiet.p99s, h.attacked.p99s, h.alone.p99s, h.beside.p99s, h.attacked.failed,
			h.attacked.asked, h.health)
		all = append(all, h)
	}
	return all, nil
}

// heldTable is what stands on the page.
func heldTable(all []held) page.Table {
	t := page.Table{{"one client, that comes again when it is cut off", "connections it keeps trying",
		"opened a second", "held at most", "memory, MiB", "goroutines", "processors",
		"honest p99, quiet", "honest p99, attacked", "times", "of the API itself, quiet", "attacked",
		"honest requests that failed", "slowest /healthz"}}
	for _, h := range all {
		opened := float64(h.opened) / (float64(len(h.attacked.p99s)) * h.span.Seconds())
		t = append(t, []string{h.vector.name, fmt.Sprint(h.connections), fmt.Sprintf("%.0f", opened),
			fmt.Sprint(h.most), fmt.Sprintf("%.0f", max(0, h.memory)), fmt.Sprint(h.goroutines),
			fmt.Sprintf("%.2f", h.cpu),
			millis(h.quiet.p99()), millis(h.attacked.p99()), fmt.Sprintf("%.1f",
				float64(h.attacked.p99())/float64(h.quiet.p99())), millis(h.alone.p99()), millis(h.beside.p99()),
			fmt.Sprintf("%d of %d", h.attacked.failed, h.attacked.asked), millis(h.health)})
	}
	return t
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
