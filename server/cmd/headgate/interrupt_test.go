//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
)

// A start that waits for what nobody writes ends when it is asked to: by the configuration, and by a document that it
// names.
func TestAStartIsInterruptedThatReadsAFIFO(t *testing.T) {
	dir := t.TempDir()
	for doing, args := range map[string][]string{
		"reading": {"serve", "--config"},
		"starting": {"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9",
			"--db", "sqlite:" + filepath.Join(dir, "headgate.db"), "--openapi"},
	} {
		fifo := filepath.Join(dir, doing)
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, fifo)
		ctx, interrupt := context.WithCancel(context.Background())
		var stdout, stderr livelog.Text
		done := make(chan int, 1)
		go func() { done <- run(ctx, args, &stdout, &stderr) }()
		writes, err := os.OpenFile(fifo, os.O_WRONLY, 0) // once it is read
		if err != nil {
			t.Fatal(err)
		}
		interrupt()
		select {
		case code := <-done:
			if code != exitFailure || !strings.Contains(stderr.String(), "interrupted while "+doing) {
				t.Errorf("headgate %q = %d, %s, want it interrupted while %s", args, code, stderr.String(), doing)
			}
		case <-time.After(time.Minute):
			t.Errorf("headgate %q goes on", args)
		}
		_ = writes.Close() // who reads it still is let go
	}
}
