//go:build unix

package hold

import "syscall"

// Descriptors returns how many descriptors this process may have open (ulimit
// -n). The Go runtime raises the soft limit to the hard one at the start.
func Descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return defaultDescriptors
	}
	return int(min(uint64(limit.Cur), 1<<24))
}
