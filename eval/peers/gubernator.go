package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/mortal"
)

// A service of its own protocol that keeps its counters itself, built as RateLimitModule is.
const (
	GubernatorModule  = "github.com/gubernator-io/gubernator/v2"
	GubernatorVersion = "v2.13.0"
)

// BuildGubernator builds it, unless it was built before, and returns where it is.
func BuildGubernator() (string, error) {
	return install(GubernatorModule, GubernatorVersion, "cmd/gubernator")
}

// StartGubernator starts one node, which is its only peer, with room for so many counters. At is where it answers
// over gRPC.
func StartGubernator(binary string, counters int) (*Server, error) {
	var at [3]string
	for i := range at {
		var err error
		if at[i], err = Address(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "GUBER_GRPC_ADDRESS="+at[0], "GUBER_ADVERTISE_ADDRESS="+at[0],
		"GUBER_HTTP_ADDRESS="+at[1], "GUBER_MEMBERLIST_BIND_ADDRESS="+at[2],
		"GUBER_MEMBERLIST_ADVERTISE_ADDRESS="+at[2],
		"GUBER_MEMBERLIST_KNOWN_NODES="+at[2], fmt.Sprint("GUBER_CACHE_SIZE=", counters), "GUBER_LOG_LEVEL=error")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := mortal.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	s := &Server{at[0], cmd}
	if !harness.Eventually(30*time.Second, func() bool { return listens(at[1]) }) { // the last that it does
		s.Stop()
		return nil, fmt.Errorf("%s does not listen\n%s", GubernatorModule, said.String())
	}
	return s, nil
}
