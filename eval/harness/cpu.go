package harness

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPU is how long a process has worked so far, in its own code and in the kernel for it, to
// a hundredth of a second.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name of the program may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name, want 13 or more", pid, len(fields))
	}
	own, err := strconv.ParseInt(fields[11], 10, 64)
	kernel, errKernel := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(own+kernel) * (time.Second / 100), errors.Join(err, errKernel)
}
