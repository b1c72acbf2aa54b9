package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
)

// Who holds connections has a process of its own: its thousands of goroutines would share a
// scheduler and a collector with the honest client that is measured. An attacker brings a machine
// of its own besides. So for figures the gateway has half of the processors for itself, and the
// attacker runs on the other half, last of all; what the kernel does for it is
// not spared. In tests it runs as all do: on a busy machine it would not attack at all.

// divide gives this process, and those that it starts, the first half of the processors, and
// returns the other half, which is for gateways. On a single one it divides nothing.
func divide() (gateways string, err error) {
	all := runtime.NumCPU()
	half := all / 2
	if half == 0 {
		return "", nil
	}
	runtime.GOMAXPROCS(half)
	out, err := exec.Command("taskset", "-apc", fmt.Sprintf("0-%d", half-1), strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("keep off the gateway's processors: %w\n%s", err, out)
	}
	return fmt.Sprintf("%d-%d", half, all-1), nil
}

// holdEnv says in the environment that a process is one of these, and what it holds.
const holdEnv = "HEADGATE_EVAL_HOLD"

type holding struct {
	Vector      string
	To          string
	From        netip.Addr
	Connections int
}

// underWay is what that process says once half as many connections were opened as it is to keep.
const underWay = "under way"

// attackApart is attack in a process of its own.
func (h *holder) attackApart(n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	what, err := json.Marshal(holding{h.vector.name, h.to, h.from, n})
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	if h.yields {
		cmd = exec.Command("chrt", "--other", "0", "nice", "-n", "19", self)
	}
	cmd.Env, cmd.Stderr = append(os.Environ(), holdEnv+"="+string(what)), os.Stderr
	until, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(h.ctx, func() { _ = until.Close() })
	defer stop()
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	last := ""
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if last = lines.Text(); last == underWay {
			h.under()
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("hold connections: %w", err)
	}
	opened, err := strconv.ParseInt(last, 10, 64)
	h.opened.Store(opened)
	return err
}

// holdApart is what such a process does until its input ends: false in all others.
func holdApart() bool {
	text := os.Getenv(holdEnv)
	if text == "" {
		return false
	}
	var what holding
	err := json.Unmarshal([]byte(text), &what)
	i := slices.IndexFunc(vectors, func(v vector) bool { return v.name == what.Vector })
	if err != nil || i < 0 {
		fmt.Fprintf(os.Stderr, "%s is %q, want a vector: %v\n", holdEnv, text, err)
		os.Exit(1)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	h := &holder{ctx: ctx, vector: vectors[i], to: what.To, from: what.From,
		enough: int64(what.Connections+1) / 2, under: func() { fmt.Println(underWay) }}
	h.attack(what.Connections)
	fmt.Println(h.opened.Load())
	return true
}
