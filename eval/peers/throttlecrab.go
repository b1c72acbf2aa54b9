package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/headgate-io/headgate/eval/harness"
)

// Throttlecrab starts throttlecrab-server as it comes, with room for so many counters; it speaks the protocol of Redis.
// It returns nil where nobody has built it: that takes cargo a quarter of an hour.
func Throttlecrab(counters int) (*Server, error) {
	root, err := harness.Root()
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(root, "bin", "throttlecrab-server") // by scripts/install-throttlecrab
	if _, err := os.Stat(binary); err != nil {
		return nil, nil
	}
	at, err := Address()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "--redis", "--redis-host", "127.0.0.1", "--redis-port", port(at), "--store-capacity",
		strconv.Itoa(counters), "--log-level", "error")
	return launch(cmd, "throttlecrab-server", at, at)
}
