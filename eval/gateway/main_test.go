package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/eval/peers"
)

// Every proxy is started, and passes on and refuses what it should: each has a figure for each load.
func TestEveryProxy(t *testing.T) {
	var out, progress bytes.Buffer
	args := []string{"-dry", "-rounds", "1", "-sample", "100ms", "-idle", "100", "-rest", "1ms"}
	if err := run(args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, name := range []string{nginxRow, "HAProxy", "Envoy", "| Headgate |", engineRow, netHTTPRow} {
		rows := 0
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, name) && !strings.Contains(line, "| 0.0 |") {
				rows++
			}
		}
		want := len(loads) + 1 // how late answers are
		if name == "Envoy" {
			want -= 2 // it is not set up for TLS
		}
		if rows < want {
			t.Errorf("%s has %d rows with figures, want %d:\n%s", name, rows, want, out.String())
		}
	}
}

// For a request that is admitted the kernel is asked for two writes, and for a read of what each side says. One more
// read finds that a client has said nothing yet; the one that would find so of the server is saved.
func TestReadsAndWrites(t *testing.T) {
	s := &site{dir: t.TempDir()}
	t.Cleanup(s.close)
	api, err := peers.API(s.folder("api"))
	if err != nil {
		t.Fatal(err)
	}
	s.servers = append(s.servers, api)
	g, err := s.headgate("headgate", api.At, "engine: fast", "1000000", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	readsBefore, writesBefore := calls(t, g.PID())
	const requests = 2000
	for range requests {
		if _, err := io.WriteString(conn, "GET /v1/items/7 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if status, err := readAnswer(in); status != http.StatusOK || err != nil {
			t.Fatal(status, err)
		}
	}
	reads, writes := calls(t, g.PID())
	if reads -= readsBefore; float64(reads) > 3.1*requests {
		t.Errorf("%d reads for %d requests, want 3.1 for one at most", reads, requests)
	}
	if writes -= writesBefore; float64(writes) > 2.1*requests {
		t.Errorf("%d writes for %d requests, want 2.1 for one at most", writes, requests)
	}
}

// calls is how often a process has called read and write, or what is like them for files and sockets.
func calls(t *testing.T, pid int) (reads, writes int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err == nil {
		_, rest, _ := strings.Cut(string(text), "syscr:")
		_, err = fmt.Sscanf(rest, "%d\nsyscw: %d", &reads, &writes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return reads, writes
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
