package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// Every proxy is started, and passes on and refuses what it should: each has a figure for each load.
func TestEveryProxy(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run([]string{"-dry", "-rounds", "1", "-sample", "200ms"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, name := range []string{nginxRow, "HAProxy", "Envoy", "| Headgate |", fastRow, netHTTPRow} {
		rows := 0
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, name) && !strings.Contains(line, "| 0.0 |") {
				rows++
			}
		}
		if rows < len(loads) {
			t.Errorf("%s has %d rows with figures, want %d:\n%s", name, rows, len(loads), out.String())
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-sample", "1ms"}, {"-nothing"}} {
		if err := run(args, new(bytes.Buffer), new(bytes.Buffer)); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	for _, text := range []string{"", "HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 2xx OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1"} {
		if _, err := readAnswer(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%q is read as an answer", text)
		}
	}
}
