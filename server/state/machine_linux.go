package state

import (
	"time"

	"golang.org/x/sys/unix"
)

// machine is the Clock of this machine.
func machine() (wall, boot int64) {
	var at unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) == nil {
		boot = at.Nano()
	}
	return time.Now().UnixNano(), boot
}
