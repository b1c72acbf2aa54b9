package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The service that many run beside Envoy. It is no dependency of this module: it is built as it is,
// with what its own go.mod wants.
const (
	RateLimitModule  = "github.com/envoyproxy/ratelimit"
	RateLimitVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// BuildRateLimit builds the service, unless it was built before, and returns where it is.
func BuildRateLimit() (string, error) {
	return install(RateLimitModule, RateLimitVersion, "src/service_cmd")
}

// install builds a program of a module, unless it was built before, and returns where it is.
func install(module, version, program string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "headgate-eval", filepath.Base(strings.TrimSuffix(module, "/v2"))+"-"+version)
	binary := filepath.Join(dir, filepath.Base(program))
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	cmd := exec.Command("go", "install", module+"/"+program+"@"+version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s@%s, which wants Go 1.25.6 or later and a proxy of modules: %w\n%s", module,
			version, err, out)
	}
	return binary, nil
}

// StartRateLimit starts an instance on a store, host:port, in a folder of its own, with descriptors
// in its notation for the domain "eval". Its statistics are off, as they cost it more than its
// decisions do. It may take a moment more until it answers.
func StartRateLimit(binary, dir, store, descriptors string, settings ...string) (*Server, error) {
	config := filepath.Join(dir, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "rules.yaml"), []byte("domain: eval\ndescriptors:\n"+descriptors),
		0o600); err != nil {
		return nil, err
	}
	at, err := Address()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1",
		"GRPC_PORT=" + port(at),
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + store, "REDIS_POOL_SIZE=64",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
	}, settings...)
	return launch(cmd, RateLimitModule, at, at)
}
