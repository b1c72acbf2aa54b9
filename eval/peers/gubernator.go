package peers

import (
	"fmt"
	"os"
	"os/exec"
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
	return launch(cmd, GubernatorModule, at[0], at[1]) // the last that it does
}
