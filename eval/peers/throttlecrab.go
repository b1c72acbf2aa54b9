package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/mortal"
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
	var said bytes.Buffer
	cmd := exec.Command(binary, "--redis", "--redis-host", "127.0.0.1", "--redis-port", port(at), "--store-capacity",
		strconv.Itoa(counters), "--log-level", "error")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := mortal.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	s := &Server{at, cmd}
	if !harness.Eventually(20*time.Second, func() bool { return listens(at) }) {
		s.Stop()
		return nil, fmt.Errorf("throttlecrab-server does not listen: %s", said.String())
	}
	return s, nil
}
