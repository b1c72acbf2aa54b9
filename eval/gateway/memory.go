package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// memory is a table of what fresh gateways hold of memory while n connections that had an answer are idle, and so long
// after a request came on all of them at once.
func (s *site) memory(n int, rest time.Duration) (string, error) {
	table := page.Table{{fmt.Sprintf("%d idle connections", n), "MiB before",
		fmt.Sprintf("MiB %v after the last answer", rest), fmt.Sprintf("MiB %v after a burst", rest)}}
	for i, own := range []struct{ name, setting string }{
		{fastRow, "engine: auto"}, {engineRow, "engine: net/http"},
	} {
		most := strconv.Itoa(n + 400)
		g, err := s.headgate(fmt.Sprint("idle", i), s.api, own.setting+"\nclients:\n  max_connections: "+most+
			"\n  max_connections_per_address: "+most+"\n  max_requests_per_address: "+most, "1000000", nil)
		if err != nil {
			return "", err
		}
		if err := pin(1, g.PID()); err != nil {
			return "", err
		}
		row, err := idle(g.PID(), strings.TrimPrefix(g.URL, "http://"), n, rest)
		if err != nil {
			return "", fmt.Errorf("%s: %w", own.name, err)
		}
		table = append(table, append([]string{own.name}, row...))
	}
	return table.String() + "\n", nil
}

// idle returns what a process holds before, during and after, in MiB.
func idle(pid int, at string, n int, rest time.Duration) (row []string, err error) {
	look := func() {
		if err == nil {
			var mib float64
			mib, err = resident(pid)
			row = append(row, fmt.Sprintf("%.0f", mib))
		}
	}
	look()
	conns := make([]net.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	request := []byte("GET /v1/items/7 HTTP/1.1\r\nHost: " + at + "\r\n\r\n")
	for i := range conns {
		if conns[i], err = net.Dial("tcp", at); err != nil {
			return nil, err
		}
		if err := answered(conns[i], request); err != nil {
			return nil, err
		}
	}
	time.Sleep(rest)
	look()
	failed := make(chan error, n)
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() {
			if err := answered(c, request); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return nil, err
	}
	time.Sleep(rest)
	look()
	return row, err
}

// answered asks once on a connection.
func answered(c net.Conn, request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	_, err := readAnswer(bufio.NewReaderSize(c, 1<<10))
	return err
}

// resident is what a process has in memory, in MiB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, fmt.Errorf("/proc/%d/statm: %w", pid, err)
	}
	return float64(pages*int64(os.Getpagesize())) / (1 << 20), nil
}
