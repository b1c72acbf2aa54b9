//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// outliveFileSize makes a file that may not grow any more, because of ulimit -f
// or a quota like it, an error like a full disk. By default it is a signal that
// ends the process, and with it every request under way.
func outliveFileSize() { signal.Ignore(syscall.SIGXFSZ) }
