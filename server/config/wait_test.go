package config_test

import (
	"strings"
	"testing"
	"time"
)

func TestWaiting(t *testing.T) {
	for text, want := range map[string]struct {
		wait    time.Duration
		waiters int
	}{
		"":                                   {10 * time.Second, 1024},
		"max_wait: 0s":                       {0, 1024},
		"max_wait: 1h\nmax_waiters: 1048576": {time.Hour, 1 << 20},
		"max_waiters: 1":                     {10 * time.Second, 1},
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err != nil || c.MaxWait != want.wait || c.MaxWaiters != want.waiters {
			t.Errorf("%q: %v and %d with %v, want %+v", text, c.MaxWait, c.MaxWaiters, err, want)
		}
	}
}

func TestWaitingFaults(t *testing.T) {
	for text, want := range map[string]string{
		"max_wait: -1s":                 `max_wait is "-1s", want 0s to 1h0m0s`,
		"max_wait: 61m":                 `max_wait is "1h1m0s", want 0s to 1h0m0s`,
		"max_waiters: 0":                `max_waiters is "0", want 1 to 1048576`,
		"max_waiters: 1048577":          `max_waiters is "1048577", want 1 to 1048576`,
		"max_waiters: -9":               `max_waiters is "-9", want 1 to 1048576`,
		"max_wait: -1s\nmax_waiters: 0": `max_waiters is "0", want 1 to 1048576`,
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Complete = %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"max_wait: 10", "max_wait: soon", "max_waiters: many"} {
		if _, err := read(t, whole+text+"\n"); err == nil {
			t.Errorf("%s is read without an error", text)
		}
	}
}
