package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/peers"
)

// rateLimit is one instance of the service that many run beside Envoy.
type rateLimit struct {
	*asker
	server *peers.Server
	dir    string
}

// startRateLimit starts an instance on a store, in a folder of its own. It counts every value of
// the key "cell" against perSecond, and of "key" against a million a second.
func startRateLimit(binary, store string, perSecond int64, settings ...string) (r *rateLimit, err error) {
	dir, err := os.MkdirTemp("", "headgate-ratelimit-")
	if err != nil {
		return nil, err
	}
	rules := fmt.Sprintf("- {key: cell, rate_limit: {unit: second, requests_per_unit: %d}}\n- {key: key, "+
		"rate_limit: {unit: second, requests_per_unit: 1000000}}\n", perSecond)
	server, err := peers.StartRateLimit(binary, dir, store, rules, settings...)
	if err != nil {
		return nil, err
	}
	r = &rateLimit{newAsker(server.At), server, dir}
	if !harness.Eventually(30*time.Second, func() bool { _, err = r.allowed("key", "first"); return err == nil }) {
		r.stop()
		return nil, fmt.Errorf("%s does not answer: %w", peers.RateLimitModule, err)
	}
	return r, nil
}

func (r *rateLimit) stop() {
	r.server.Stop()
	r.client.CloseIdleConnections()
	_ = os.RemoveAll(r.dir)
}

// descriptors is Headgate's rate limit service, with limits in the same notation.
type descriptors struct {
	*asker
	gateway *harness.Gateway
}

func startDescriptors(scope, store string) (*descriptors, error) {
	dir, err := os.MkdirTemp("", "headgate-descriptors-")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"limits.yaml": fmt.Sprintf(
			"domain: %s\ndescriptors:\n- {key: key, rate_limit: {unit: second, requests_per_unit: 1000000}}\n", domain),
		"secret": strings.Repeat("0123456789abcdef", 4) + "\n",
		"headgate.yaml": fmt.Sprintf("decisions: {grpc: '127.0.0.1:0', ratelimit: [limits.yaml], scope: %s}\n"+
			"store: {redis: ['%s'], secret_file: secret, prefix: descriptors, deadline: 1s, lease_ttl: 1s}\n",
			scope, store),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	g, err := harness.Start(dir, "--config", "headgate.yaml", "--listen", "none")
	if err != nil {
		return nil, err
	}
	d := &descriptors{newAsker(g.GRPC), g}
	if _, err := d.allowed("key", "first"); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (d *descriptors) stop() {
	d.gateway.Kill()
	d.client.CloseIdleConnections()
	_ = os.RemoveAll(d.gateway.Dir)
}

// rateLimits measures k instances of the service, for every k. A caller asks its instance for every
// request, and sends to the API what is allowed: so nothing but the service stands between, which a
// proxy that costs time would.
func (f *field) rateLimits(binary string) (cells []Cell, err error) {
	var instances []*rateLimit
	defer func() {
		for _, r := range instances {
			r.stop()
		}
	}()
	for _, k := range f.replicas {
		for len(instances) < k {
			r, err := startRateLimit(binary, f.store.address, f.limit)
			if err != nil {
				return nil, err
			}
			instances = append(instances, r)
		}
		for _, spread := range f.traffics {
			if spread.name == "skewed" {
				continue // every instance asks the store each time, whoever is asked
			}
			value, path := strconv.Itoa(k)+spread.name, "/ratelimit"
			var ways []way
			for _, r := range instances[:k] {
				ways = append(ways, func() (bool, error) {
					if ok, err := r.allowed("cell", value); err != nil || !ok {
						return false, err
					}
					return get(f.client, f.api.URL+path)
				})
			}
			cell, err := f.cell("envoyproxy/ratelimit", ways, spread, path, nil)
			if err != nil {
				return nil, fmt.Errorf("%s with %d instances, %s: %w", peers.RateLimitModule, k, spread.name, err)
			}
			cells = append(cells, cell)
		}
	}
	return cells, nil
}
