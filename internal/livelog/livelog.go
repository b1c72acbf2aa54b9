// Package livelog is a log that a test reads while servers and processes write it.
package livelog

import (
	"bytes"
	"sync"
)

// Text keeps what was written. Its zero value is empty. It is safe for concurrent use.
type Text struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String is all that was written until now.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Len is the length of all that was written until now, in bytes.
func (t *Text) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Len()
}
