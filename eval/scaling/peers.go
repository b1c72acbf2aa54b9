package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/peers"
)

// The other limiters of the paper's Table 1, each set up as it is where several run. Those that
// count alone have no way to share; a model of AWS WAF is one service, however many ask.

// beside starts the ith of a kind of proxies in a folder, which is to count all its clients together.
type beside struct {
	name  string
	start func(f *field, p peers.Place) (*peers.Server, error)
}

var besides = []beside{
	{"Envoy, local", func(_ *field, p peers.Place) (*peers.Server, error) { return peers.EnvoyLocal(p, 0) }},
	{"Envoy, global", func(f *field, p peers.Place) (*peers.Server, error) {
		return peers.EnvoyGlobal(p, f.global.At)
	}},
	{"nginx limit_req", func(_ *field, p peers.Place) (*peers.Server, error) { return peers.Nginx(p) }},
	{"HAProxy stick table", func(_ *field, p peers.Place) (*peers.Server, error) { return peers.HAProxy(p, "1k") }},
}

// peers measures k of each kind, for every k.
func (f *field) peers(binary string) (cells []Cell, err error) {
	dir, err := os.MkdirTemp("", "headgate-peers-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	global := filepath.Join(dir, "global")
	f.global, err = peers.StartRateLimit(binary, global, f.store.address,
		fmt.Sprintf("- {key: cell, rate_limit: {unit: second, requests_per_unit: %d}}\n", f.limit))
	if err != nil {
		return nil, err
	}
	defer f.global.Stop()
	for i, kind := range besides {
		more, err := f.kind(filepath.Join(dir, strconv.Itoa(i)), kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		cells = append(cells, more...)
	}
	for _, k := range f.replicas {
		cell, err := f.redisCell(k)
		if err != nil {
			return nil, fmt.Errorf("redis-cell: %w", err)
		}
		cells = append(cells, cell)
	}
	cell, err := f.waf()
	return append(cells, cell), err
}

func (f *field) kind(dir string, kind beside) (cells []Cell, err error) {
	var all []*peers.Server
	defer func() {
		for _, s := range all {
			s.Stop()
		}
	}()
	path := "/" + strings.ReplaceAll(kind.name, " ", "-")
	for _, k := range f.replicas {
		for len(all) < k {
			own := filepath.Join(dir, strconv.Itoa(len(all)))
			if err := os.MkdirAll(own, 0o755); err != nil {
				return nil, err
			}
			s, err := kind.start(f, peers.Place{
				Dir:      own,
				API:      f.api.Listener.Addr().String(),
				Limit:    peers.Limit{Rate: f.limit, Burst: f.limit},
				Together: true,
			})
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
		time.Sleep(time.Second + 200*time.Millisecond) // until all are full
		var ways []way
		for _, s := range all[:k] {
			ways = append(ways, func() (bool, error) { return get(f.client, s.URL()+path) })
		}
		cell, err := f.cell(kind.name, ways, traffics[0], path, nil)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// redisCell measures callers of CL.THROTTLE, each with a connection of its own.
func (f *field) redisCell(k int) (Cell, error) {
	const path = "/redis-cell"
	key := "cell" + strconv.Itoa(k)
	var ways []way
	for range k {
		cell, err := peers.NewCell(f.store.address)
		if err != nil {
			return Cell{}, err
		}
		defer cell.Close()
		ways = append(ways, func() (bool, error) {
			if ok, err := cell.Allowed(context.Background(), key,
				peers.Limit{Rate: f.limit, Burst: f.limit}); err != nil || !ok {
				return false, err
			}
			return get(f.client, f.api.URL+path)
		})
	}
	return f.cell("redis-cell", ways, traffics[0], path, nil)
}

// waf measures the model of AWS WAF.
func (f *field) waf() (Cell, error) {
	const path = "/waf"
	waf := peers.NewWAF(peers.Limit{Rate: f.limit}, time.Now)
	return f.cell("AWS WAF, a model", []way{func() (bool, error) {
		if !waf.Allowed("all") {
			return false, nil
		}
		return get(f.client, f.api.URL+path)
	}}, traffics[0], path, nil)
}
