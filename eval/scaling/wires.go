package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// weather is what becomes of what one gateway sends to another.
type weather struct {
	cut           bool    // nothing passes
	loss          float64 // of packets, 0 to 1
	delay, jitter time.Duration
}

// wires are the ways between gateways that tell each other what they admitted. Before each stands a front of this
// program, whose address the others are told. Who sends is told by the port that it sends from: of a packet it is
// the one where its sender is heard, of a connection that of a socket which its sender holds.
type wires struct {
	ends  []*end
	most  int                                        // percent of a limit that one may claim
	sky   atomic.Pointer[func(from, to int) weather] // of gateways by their numbers; -1 is somebody else
	going sync.WaitGroup
}

// end is one gateway, and what stands before it.
type end struct {
	front, behind string // HOST:PORT
	packets       *net.UDPConn
	streams       net.Listener
	pid           atomic.Int64
}

// newWires makes fronts for so many gateways, which pass everything on.
func newWires(gateways int) (*wires, error) {
	w := &wires{most: 100}
	w.clear()
	for range gateways {
		e := &end{}
		w.ends = append(w.ends, e)
		var err error
		if e.behind, err = freeAddress(); err == nil {
			err = e.listen()
		}
		if err != nil {
			w.close()
			return nil, err
		}
	}
	for i := range w.ends {
		w.going.Go(func() { w.carryPackets(i) })
		w.going.Go(func() { w.carryStreams(i) })
	}
	return w, nil
}

func (e *end) listen() (err error) {
	if e.front, err = freeAddress(); err != nil {
		return err
	}
	if e.streams, err = net.Listen("tcp", e.front); err != nil {
		return err
	}
	at, err := net.ResolveUDPAddr("udp", e.front)
	if err == nil {
		e.packets, err = net.ListenUDP("udp", at)
	}
	return err
}

func (w *wires) close() {
	for _, e := range w.ends {
		if e.streams != nil {
			_ = e.streams.Close()
		}
		if e.packets != nil {
			_ = e.packets.Close()
		}
	}
	w.going.Wait()
}

// set says what becomes of what one sends to another, from now on.
func (w *wires) set(sky func(from, to int) weather) { w.sky.Store(&sky) }

func (w *wires) clear() { w.set(func(_, _ int) weather { return weather{} }) }

// fronts are the addresses that gateways know each other by.
func (w *wires) fronts() (all []string) {
	for _, e := range w.ends {
		all = append(all, e.front)
	}
	return all
}

// settings are those of gossip, of one of the gateways: it is heard behind its front, and calls all others.
func (w *wires) settings(i int) string {
	return fmt.Sprintf("{listen: %q, advertise: %q, join: [%s], secret_file: %s, most_percent: %d}",
		w.ends[i].behind, w.ends[i].front, strings.Join(w.fronts(), ", "), secretName, w.most)
}

func (w *wires) carryPackets(to int) {
	e := w.ends[to]
	behind, err := net.ResolveUDPAddr("udp", e.behind)
	if err != nil {
		return // it is one of ours
	}
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := e.packets.ReadFromUDP(buffer)
		if err != nil {
			return
		}
		now := (*w.sky.Load())(w.heardAt(from.Port), to)
		if now.cut || rand.Float64() < now.loss {
			continue
		}
		packet := append([]byte(nil), buffer[:n]...)
		pass := func() { _, _ = e.packets.WriteToUDP(packet, behind) }
		if now.delay+now.jitter == 0 {
			pass()
			continue
		}
		time.AfterFunc(now.delay+time.Duration(rand.Int64N(int64(now.jitter)+1)), pass)
	}
}

// heardAt is the gateway that is heard at a port, or -1.
func (w *wires) heardAt(port int) int {
	for i, e := range w.ends {
		if strings.HasSuffix(e.behind, ":"+strconv.Itoa(port)) {
			return i
		}
	}
	return -1
}

// carryStreams refuses connections where either way is cut: what is sent over one needs both.
func (w *wires) carryStreams(to int) {
	e := w.ends[to]
	for {
		c, err := e.streams.Accept()
		if err != nil {
			return
		}
		go func() {
			from := w.holds(c.RemoteAddr().(*net.TCPAddr).Port)
			there, back := (*w.sky.Load())(from, to), (*w.sky.Load())(to, from)
			if there.cut || back.cut {
				_ = c.Close()
				return
			}
			time.Sleep(there.delay)
			behind, err := net.Dial("tcp", e.behind)
			if err != nil {
				_ = c.Close()
				return
			}
			go func() {
				_, _ = io.Copy(behind, c)
				_ = behind.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(c, behind)
			_, _ = c.Close(), behind.Close()
		}()
	}
}

// holds is the gateway whose socket is bound to a local port, or -1.
func (w *wires) holds(port int) int {
	inode := inodeOf(port)
	if inode == "" {
		return -1
	}
	for i, e := range w.ends {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", e.pid.Load()))
		for _, fd := range open {
			if what, err := os.Readlink(fd); err == nil && what == "socket:["+inode+"]" {
				return i
			}
		}
	}
	return -1
}

// inodeOf is that of the connection which begins at a port of 127.0.0.1, "" if there is none.
func inodeOf(port int) string {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	local := fmt.Sprintf("0100007F:%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == local {
			return fields[9]
		}
	}
	return ""
}
