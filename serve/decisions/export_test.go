package decisions

import "net/http"

// Kept is how many bytes of answers a door keeps.
func Kept(h http.Handler) int {
	k := &h.(*door).kept
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes
}
