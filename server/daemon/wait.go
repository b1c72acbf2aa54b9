package daemon

import "time"

// longestWait is max_wait as httplimit has it, where 0 is the default and less
// than that means that nobody waits.
func longestWait(configured time.Duration) time.Duration {
	if configured == 0 {
		return -1
	}
	return configured
}
