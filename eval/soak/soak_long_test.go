//go:build long

package main

import (
	"bytes"
	"testing"
)

// TestSoak runs all of it for a moment, by each engine.
func TestSoak(t *testing.T) {
	for _, engine := range []string{"fast", "net/http"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-for", "5s", "-clients", "2", "-engine", engine}, &out); err != nil {
			t.Errorf("%s: %v\n%s", engine, err, out.String())
		}
	}
}
