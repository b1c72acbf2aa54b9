package operations

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/headgate-io/headgate/eval/harness"
)

// demonstration is `headgate demo` on a terminal, which an emulator reads as a person's would.
type demonstration struct {
	testing.TB
	cmd  *exec.Cmd
	tty  *os.File
	read chan struct{} // closed once all is read

	mu     sync.Mutex
	more   *sync.Cond
	screen vt10x.Terminal // guarded by mu
	raw    bytes.Buffer   // guarded by mu
	over   bool           // guarded by mu
}

func demonstrate(t *testing.T, columns, rows uint16, args ...string) *demonstration {
	t.Helper()
	args = append([]string{"demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
	d := &demonstration{
		TB: t, cmd: exec.Command(harness.Binary(t), args...), read: make(chan struct{}),
		screen: vt10x.New(vt10x.WithSize(int(columns), int(rows))),
	}
	d.more = sync.NewCond(&d.mu)
	d.cmd.Env = append(os.Environ(), "TMPDIR=/tmp") // one that is short enough for a line
	var err error
	if d.tty, err = pty.StartWithSize(d.cmd, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // if the test has failed
		<-d.read
		d.tty.Close()
	})
	go d.follow()
	return d
}

// follow gives the emulator what comes.
func (d *demonstration) follow() {
	defer close(d.read)
	part := make([]byte, 4096)
	for {
		n, err := d.tty.Read(part)
		d.mu.Lock()
		d.raw.Write(part[:n])
		_, _ = d.screen.Write(part[:n])
		d.over = err != nil // EIO, once nobody has the other end
		d.more.Broadcast()
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// drawn waits until the screen is whole, two frames after it had another size or none.
func (d *demonstration) drawn() {
	d.Helper()
	late := time.AfterFunc(time.Minute, func() { d.more.Broadcast() })
	defer late.Stop()
	began := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for from := d.raw.Len(); bytes.Count(d.raw.Bytes()[from:], []byte("\x1b[H")) < 3 || !d.whole(); {
		if columns, rows := d.screen.Size(); d.over || time.Since(began) > time.Minute {
			d.Fatalf("%d by %d is never whole; the screen shows\n%s", columns, rows, d.screen.String())
		}
		d.more.Wait()
	}
}

// resize does what a window does.
func (d *demonstration) resize(columns, rows uint16) {
	d.Helper()
	d.mu.Lock()
	d.screen.Resize(int(columns), int(rows))
	d.mu.Unlock()
	if err := pty.Setsize(d.tty, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		d.Fatal(err)
	}
}

// ended waits for the program, and returns all that it has written.
func (d *demonstration) ended() string {
	d.Helper()
	<-d.read
	if err := d.cmd.Wait(); err != nil {
		d.Errorf("the demonstration ends with %v, want success", err)
	}
	return d.raw.String()
}

// whole reports whether the screen has a frame and nothing else: it begins with the page's address and ends with the
// last line to try, shows each client and each line to try between them, and no line twice, broken, or left from
// another size.
func (d *demonstration) whole() bool {
	var lines []string
	for line := range strings.SplitSeq(d.screen.String(), "\n") {
		if line = strings.TrimRight(line, " "); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) < len(onEveryScreen) || !strings.Contains(lines[0], "/ui/") {
		return false
	}
	for _, line := range lines {
		known := func(begin string) bool { return strings.HasPrefix(line, begin) }
		if _, err := time.ParseDuration(strings.Fields(line)[0]); err != nil && // the time that heads the numbers
			!slices.ContainsFunc(onEveryScreen, known) && !slices.ContainsFunc(withRoom, known) {
			return false
		}
	}
	for _, begin := range onEveryScreen {
		if strings.Count("\n"+strings.Join(lines, "\n"), "\n"+begin) != 1 {
			return false
		}
	}
	_, rows := d.screen.Size()
	first := func(line string) bool { return strings.HasPrefix(line, withRoom[0]) }
	return rows < 24 || slices.ContainsFunc(lines, first)
}

// How the lines of a frame begin: those that no screen is too small for here, and those about what is shown.
var (
	onEveryScreen = []string{
		"http://127.0.0.1:", "polite ", "greedy ", "attacker ", "Try it from ", "  . /", "  curl -i -H ",
		"  curl -i $URL", "  curl -i --path-as-is ", "  headgate explain ",
		"  headgate policy ", "  curl -s $ADMIN/metrics ",
	}
	withRoom = []string{"  clients ─▶ gateway ", "The rule: ", "  polite ", "  greedy ", "  attacker "}
)

// On a terminal the demonstration has the other screen to itself in the size that it has, also after a resize, and
// leaves the first one as it was, with what became of the clients, however it is ended.
func TestDemonstrationOnATerminal(t *testing.T) {
	for name, end := range map[string]func(*demonstration) error{
		"Ctrl-C":  func(d *demonstration) error { _, err := d.tty.WriteString("\x03"); return err },
		"SIGTERM": func(d *demonstration) error { return d.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(d *demonstration) error { return d.cmd.Process.Signal(syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := demonstrate(t, 80, 24)
			d.drawn()
			d.mu.Lock()
			if d.screen.Mode()&vt10x.ModeAltScreen == 0 || d.screen.CursorVisible() {
				t.Error("it is not on the other screen, or the cursor is shown")
			}
			d.mu.Unlock()
			for _, size := range [][2]uint16{{60, 20}, {200, 50}, {80, 24}} {
				d.resize(size[0], size[1])
				d.drawn()
			}
			if err := end(d); err != nil {
				t.Fatal(err)
			}
			raw := d.ended()
			if d.screen.Mode()&vt10x.ModeAltScreen != 0 || !d.screen.CursorVisible() {
				t.Error("it leaves the other screen on, or the cursor hidden")
			}
			if n := strings.Count(raw, "\x1b[?1049h"); n != 1 || strings.Count(raw, "\x1b[?1049l") != 1 {
				t.Errorf("the other screen is entered %d times, and left %d, want once each", n,
					strings.Count(raw, "\x1b[?1049l"))
			}
			left := d.screen.String()
			if !strings.Contains(left, "stopped; the demonstration's database is removed") ||
				!strings.Contains(left, "attacker") || strings.Contains(left, "Try it from") {
				t.Errorf("the first screen is left with\n%s", left)
			}
		})
	}
}

// Lines are lines: on a terminal where they are asked for, and in a pipe.
func TestDemonstrationInLines(t *testing.T) {
	d := demonstrate(t, 80, 24, "--plain")
	if !harness.Eventually(time.Minute, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.over || strings.Contains(d.raw.String(), "passed/s")
	}) {
		t.Error("no numbers in a minute")
	}
	if _, err := d.tty.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	onTerminal := d.ended()
	// The first numbers come after a second; here the time is over before.
	cmd := exec.Command(harness.Binary(t), "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--for", "100ms")
	inPipe, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		errors.As(err, &failed)
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	for where, text := range map[string]string{"--plain": onTerminal, "a pipe": string(inPipe)} {
		if strings.Contains(text, "\x1b") || strings.Count(strings.ReplaceAll(text, "\r\n", "\n"), "\r") > 0 {
			t.Errorf("%s has escapes: %q", where, text)
		}
		if !strings.HasPrefix(text, "http://127.0.0.1:") || !strings.Contains(text, "stopped;") ||
			!strings.Contains(text, "passed") {
			t.Errorf("%s has\n%s", where, text)
		}
	}
}
