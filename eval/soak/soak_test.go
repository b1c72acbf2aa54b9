package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestWhatSoakReports: what is wrong is said once, with how often, and what is held longer than before.
func TestWhatSoakReports(t *testing.T) {
	s := &site{out: io.Discard, faults: map[string]int{}}
	for range 3 {
		s.wrong("asking", &net.OpError{Op: "read", Err: errors.New("reset"), Addr: &net.TCPAddr{Port: 7}})
	}
	s.wrong("asking", &unexpected{502, 200})
	text := s.verdict().Error()
	for _, want := range []string{"3 times: asking: read: reset", "1 times: asking: an answer is 502, want 200",
		"nothing was reloaded"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	before := holds{goroutines: 30, descriptors: 20, live: 50 << 20, resident: 60 << 20}
	if err := before.leaks(holds{40, 90, 70 << 20, 150 << 20}); err != nil {
		t.Errorf("what is kept for the next time: %v", err)
	}
	err := before.leaks(holds{400, 900, 700 << 20, 1500 << 20})
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("what is held: %v, want four complaints", err)
	}
	for _, wrong := range [][]string{{"-for", "1s"}, {"-clients", "0"}, {"-no"}} {
		if err := run(t.Context(), wrong, new(bytes.Buffer)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
