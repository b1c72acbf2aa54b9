package main

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/redistest"
)

// exampleRedis is how pages write the server that gateways share buckets on.
const exampleRedis = "redis.internal:6379"

// exampleStore starts the server that a page names, and reports what to
// replace by what, in commands and in what they print.
func exampleStore(t *testing.T, page string) (there, back []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), exampleRedis) {
		return nil, nil
	}
	real := redistest.StartOnPort(t).Address()
	return []string{exampleRedis, real}, []string{real, exampleRedis}
}
