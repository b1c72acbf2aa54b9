package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// holds is what the gateway's process holds.
type holds struct {
	goroutines  int
	descriptors int
	live        int64 // bytes of objects that the last collection left: it waits until there are as many again
	resident    int64 // bytes
}

func (h holds) String() string {
	return fmt.Sprintf("goroutines %d, descriptors %d, live %.1f MB, resident %.1f MB", h.goroutines, h.descriptors,
		float64(h.live)/1e6, float64(h.resident)/1e6)
}

// look reads what the process holds at this moment.
func (s *site) look() (h holds, err error) {
	answer, err := http.Get(s.gate.Admin + "/metrics")
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		f, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			h.goroutines = int(f)
		case "go_memstats_next_gc_bytes":
			h.live = int64(f / 2)
		}
	}
	own := fmt.Sprintf("/proc/%d", s.gate.PID())
	open, err := filepath.Glob(own + "/fd/*")
	h.descriptors = len(open)
	status, errStatus := os.ReadFile(own + "/status")
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, errScan := fmt.Sscan(rest, &h.resident)
	h.resident *= 1 << 10
	if h.goroutines == 0 || h.live == 0 {
		err = errors.Join(err, errors.New("the metrics say nothing of goroutines, or of collections"))
	}
	return h, errors.Join(err, errStatus, errScan)
}

// rest is what the process holds once nothing has happened for a while: the least of what is seen, since metrics are
// read over a connection themselves.
func (s *site) rest() (least holds, err error) {
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(idle + 3*time.Second)
	for i := range 5 {
		h, err := s.look()
		if err != nil {
			return h, err
		}
		if i == 0 {
			least = h
		}
		least.goroutines, least.descriptors = min(least.goroutines, h.goroutines), min(least.descriptors, h.descriptors)
		least.live, least.resident = min(least.live, h.live), min(least.resident, h.resident)
		http.DefaultClient.CloseIdleConnections()
		time.Sleep(time.Second)
	}
	return least, nil
}

// leaks says what of it is more than it was, beyond what a process keeps for the next time: connections to the API and
// their goroutines, and pools.
func (h holds) leaks(after holds) error {
	var errs []error
	more := func(what string, before, after, may int64) {
		if after > before+may {
			errs = append(errs, fmt.Errorf("%s: %d at the end, %d before, want %d at most", what, after, before,
				before+may))
		}
	}
	more("goroutines", int64(h.goroutines), int64(after.goroutines), 20)
	more("descriptors", int64(h.descriptors), int64(after.descriptors), 100)
	more("live bytes", h.live, after.live, 32<<20)
	more("resident bytes", h.resident, after.resident, 150<<20)
	return errors.Join(errs...)
}
