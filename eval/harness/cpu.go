package harness

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is how long a process has worked so far, in its own code and in the kernel for it.
func CPU(pid int) (time.Duration, error) {
	const scheduled = 2 // what the kernel's scheduler counted of all threads; see clock_getcpuclockid(3)
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		return 0, fmt.Errorf("the processor time of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}
