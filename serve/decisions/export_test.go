package decisions

import (
	"fmt"
	"io"
	"net/http"
)

// Kept is how many bytes of answers a door keeps.
func Kept(h http.Handler) int {
	k := &h.(*door).kept
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes
}

// ReadReview is what is read of an AdmissionReview, as one text.
func ReadReview(body io.Reader, groups []string) (string, error) {
	v, err := readReview(body, groups)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q", []any{v.version, v.kind, v.uid, v.group, v.resource, v.sub, v.space, v.operation, v.user,
		v.project, v.dry}), nil
}
