//go:build !linux

package state

import "time"

// machine is the Clock of this machine.
func machine() (wall, boot int64) { return time.Now().UnixNano(), 0 }
