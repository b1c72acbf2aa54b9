package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/mortal"
)

// The service that many run beside Envoy. It is no dependency of this module: it is built as it is,
// with what its own go.mod wants.
const (
	rateLimitModule  = "github.com/envoyproxy/ratelimit"
	rateLimitVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// buildRateLimit builds the service, unless it was built before, and returns where it is.
func buildRateLimit() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "headgate-eval", "ratelimit-"+rateLimitVersion)
	binary := filepath.Join(dir, "service_cmd")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	cmd := exec.Command("go", "install", rateLimitModule+"/src/service_cmd@"+rateLimitVersion)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s@%s, which wants Go 1.25.6 or later and a proxy of modules: %w\n%s", rateLimitModule, rateLimitVersion, err, out)
	}
	return binary, nil
}

// rateLimit is one instance of the service.
type rateLimit struct {
	*asker
	cmd *exec.Cmd
}

// startRateLimit starts an instance on a store, in a folder of its own. It counts every value of
// the key "cell" against perSecond, and of "key" against a million a second. Its statistics are
// off, as they cost it more than its decisions do.
func startRateLimit(binary, store string, perSecond int64, settings ...string) (r *rateLimit, err error) {
	dir, err := os.MkdirTemp("", "headgate-ratelimit-")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit", "config"), 0o755); err != nil {
		return nil, err
	}
	rules := fmt.Sprintf("domain: %s\ndescriptors:\n  - key: cell\n    rate_limit: {unit: second, requests_per_unit: %d}\n"+
		"  - key: key\n    rate_limit: {unit: second, requests_per_unit: 1000000}\n", domain, perSecond)
	if err := os.WriteFile(filepath.Join(dir, "ratelimit", "config", "rules.yaml"), []byte(rules), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	r = &rateLimit{asker: newAsker(address), cmd: exec.Command(binary)}
	r.cmd.Dir = dir
	r.cmd.Env = append([]string{
		"HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + port,
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + store, "REDIS_POOL_SIZE=64",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
	}, settings...)
	var said bytes.Buffer
	r.cmd.Stdout, r.cmd.Stderr = &said, &said
	if err := mortal.Start(r.cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	if !harness.Eventually(30*time.Second, func() bool { _, err = r.allowed("key", "first"); return err == nil }) {
		r.stop()
		return nil, fmt.Errorf("%s does not answer: %w\n%s", rateLimitModule, err, said.String())
	}
	return r, nil
}

func (r *rateLimit) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.client.CloseIdleConnections()
	_ = os.RemoveAll(r.cmd.Dir)
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
		"limits.yaml":   fmt.Sprintf("domain: %s\ndescriptors:\n- {key: key, rate_limit: {unit: second, requests_per_unit: 1000000}}\n", domain),
		"secret":        strings.Repeat("0123456789abcdef", 4) + "\n",
		"headgate.yaml": fmt.Sprintf("decisions: {grpc: '127.0.0.1:0', ratelimit: [limits.yaml], scope: %s}\nstore: {redis: ['%s'], secret_file: secret, prefix: descriptors, deadline: 1s, lease_ttl: 1s}\n", scope, store),
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
				return nil, fmt.Errorf("%s with %d instances, %s: %w", rateLimitModule, k, spread.name, err)
			}
			cells = append(cells, cell)
		}
	}
	return cells, nil
}
