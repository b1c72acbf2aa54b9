//go:build unix && !linux

package mortal

import (
	"os/exec"
	"syscall"
)

// Start starts a process. Only Linux tells it when this one has ended.
func Start(cmd *exec.Cmd, _ syscall.Signal) error { return cmd.Start() }
