package demo

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// screen draws the clients: a bar of what passed in the last second against what was refused, and the totals. On a
// terminal a frame is the whole screen, drawn anew each time in the size that it has then.
type screen struct {
	o       Options
	gate    *daemon.Daemon
	conf    config.Config
	clients []*client
	about   string // file that has the addresses and the key, for a shell

	started time.Time
	last    time.Time
	before  []totals // at last
	rows    []row
}

type totals struct{ passed, refused int64 }

type row struct{ passed, refused float64 } // per second

func newScreen(o Options, gate *daemon.Daemon, conf config.Config, about string, clients []*client) *screen {
	now := time.Now()
	return &screen{
		o: o, gate: gate, conf: conf, about: about, clients: clients, started: now, last: now,
		before: make([]totals, len(clients)), rows: make([]row, len(clients)),
	}
}

// interval is how often draw wants to be called. Without a terminal it writes
// a line a second.
func (s *screen) interval() time.Duration {
	if s.o.Size != nil {
		return 250 * time.Millisecond
	}
	return time.Second
}

// The other screen of a terminal is left as it was found.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l"
	backAgain   = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K"
	restBelow   = "\x1b[J"
)

func (s *screen) intro() {
	if s.o.Size != nil {
		_, _ = io.WriteString(s.o.Out, otherScreen)
		return
	}
	fmt.Fprintln(s.o.Out, strings.Join(append(s.title(), s.hints()...), "\n"))
}

func (s *screen) outro() {
	if s.o.Size != nil {
		_, _ = io.WriteString(s.o.Out, backAgain)
	}
	for i, c := range s.clients {
		t := s.totals(i)
		fmt.Fprintf(s.o.Out, "%-9s %d passed, %d refused\n", c.name, t.passed, t.refused)
	}
	fmt.Fprintln(s.o.Out, "stopped; the demonstration's database is removed")
}

func (s *screen) title() []string {
	lines := []string{
		"http://" + s.gate.Admin().String() + "/ui/ shows the Headgate demonstration in a browser.",
		"",
		"  clients ─▶ gateway http://" + s.gate.Gateway().String() + " ─▶ API " + s.conf.Upstream,
		"",
		"The rule: GET /v1/books/{book}, 5 a second for each caller, burst 10.",
	}
	for _, c := range s.clients {
		lines = append(lines, fmt.Sprintf("  %-9s %s", c.name, c.story))
	}
	return append(lines, "")
}

// hints are what to try.
func (s *screen) hints() []string {
	return []string{
		"Try it from another terminal; Ctrl-C ends the demonstration.",
		"  . " + s.about,
		`  curl -i -H "X-Api-Key: $KEY" $URL/v1/books/7`,
		"  curl -i $URL/v1/no/such/endpoint",
		"  curl -i --path-as-is -H 'X-Forwarded-For: 6.6.6.6' $URL/v1/./%62ooks/7",
		"  headgate explain GET /v1/books/7 --server $ADMIN  # why one is refused",
		"  headgate policy set 'GET /v1/books/{book}' 2/s --server $ADMIN",
		"  curl -s $ADMIN/metrics | grep ^headgate_",
	}
}

// writeAbout writes the file that a shell reads before the hints: it sets URL, ADMIN and KEY, and calls this program
// by its name.
func writeAbout(dir, program, gate, admin, key string) (path string, err error) {
	path = filepath.Join(dir, "env")
	text := fmt.Sprintf("URL=http://%s\nADMIN=http://%s\nKEY=%s\n", gate, admin, key)
	if filepath.Base(program) != program { // else the shell finds it
		if program, err = filepath.Abs(program); err != nil {
			return "", err
		}
		text += fmt.Sprintf("headgate() { '%s' \"$@\"; }\n", strings.ReplaceAll(program, "'", `'\''`))
	}
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// draw shows the state now. An error says that nobody looks any more.
func (s *screen) draw() error {
	now := time.Now()
	if elapsed := now.Sub(s.last).Seconds(); elapsed >= 0.99 {
		s.measure(elapsed)
		s.last = now
	}
	if s.o.Size == nil {
		_, err := fmt.Fprintln(s.o.Out, strings.Join(s.frame(now, 80), "\n"))
		return err
	}
	columns, rows := s.o.Size()
	lines := append(s.title(), s.frame(now, columns)...)
	lines = append(append(lines, ""), s.hints()...)
	if over := len(lines) - rows; over > 0 { // the page and the clients are what one has come for
		lines = append(lines[:1], lines[min(1+over, len(s.title())):]...)
	}
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines[:min(len(lines), max(rows, 1))] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, columns) + restOfLine)
	}
	b.WriteString(restBelow)
	_, err := io.WriteString(s.o.Out, b.String())
	return err
}

// cut is as much of a line as a terminal has columns. Colours have none.
func cut(line string, columns int) string {
	n := 0
	escape := false
	for i, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case n == columns:
			return line[:i] + "\x1b[0m"
		default:
			n++
		}
	}
	return line
}

func (s *screen) totals(i int) totals {
	c := s.clients[i]
	return totals{c.admitted.Load(), c.limited.Load() + c.refused.Load() + c.failed.Load()}
}

func (s *screen) measure(elapsed float64) {
	for i := range s.clients {
		t := s.totals(i)
		s.rows[i] = row{
			passed:  float64(t.passed-s.before[i].passed) / elapsed,
			refused: float64(t.refused-s.before[i].refused) / elapsed,
		}
		s.before[i] = t
	}
}

// numbersWidth is how many columns a frame has besides the bar.
const numbersWidth = 51

func (s *screen) frame(now time.Time, columns int) []string {
	width := max(4, min(25, columns-numbersWidth))
	legend := ""
	if width >= len("█ passed ░ refused")-4 {
		legend = "█ passed ░ refused"
	}
	lines := []string{fmt.Sprintf("%-10s %-*s %9s %10s %8s %9s",
		now.Sub(s.started).Truncate(time.Second), width, legend, "passed/s", "refused/s", "passed", "refused")}
	for i, c := range s.clients {
		r, t := s.rows[i], s.totals(i)
		lines = append(lines, fmt.Sprintf("%-10s %s %9.0f %10.0f %8d %9d", c.name, s.bar(r, width), r.passed, r.refused,
			t.passed, t.refused))
	}
	return lines
}

// most is how many requests a second fill a bar.
const most = 50

// bar draws what passed and what was refused in a second.
func (s *screen) bar(r row, width int) string {
	cells := func(n float64) int { return int(n*float64(width)/most + 0.5) }
	passed := min(width, cells(r.passed))
	refused := min(width-passed, cells(r.refused))
	solid, shade, rest := strings.Repeat("█", passed), strings.Repeat("░", refused),
		strings.Repeat(" ", width-passed-refused)
	if s.o.Size == nil {
		return solid + shade + rest
	}
	return "\x1b[32m" + solid + "\x1b[31m" + shade + "\x1b[0m" + rest
}
