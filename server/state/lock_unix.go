//go:build unix

package state

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile makes this process the only one that has the file, until it is closed or the process ends.
func lockFile(setting, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil,
				fmt.Errorf("%s: %s is locked by another process, want a file of its own for each gateway", setting,
					path)
		}
		return nil, fmt.Errorf("%s: lock %s: %w", setting, path, err)
	}
	return f, nil
}
