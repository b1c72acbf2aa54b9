package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// screen draws the clients: a bar of what was admitted in the last second
// against what was sent, and the totals.
type screen struct {
	o       Options
	gate    *daemon.Daemon
	conf    config.Config
	key     string
	clients []*client

	started time.Time
	last    time.Time
	before  []totals // at last
	rows    []row
	drawn   bool // a frame, to be drawn over
}

type totals struct{ admitted, denied int64 }

type row struct{ admitted, denied float64 } // per second

func newScreen(o Options, gate *daemon.Daemon, conf config.Config, key string, clients []*client) *screen {
	now := time.Now()
	return &screen{
		o: o, gate: gate, conf: conf, key: key, clients: clients, started: now, last: now,
		before: make([]totals, len(clients)), rows: make([]row, len(clients)),
	}
}

// interval is how often draw wants to be called. Without a terminal it writes
// a line a second.
func (s *screen) interval() time.Duration {
	if s.o.Terminal {
		return 250 * time.Millisecond
	}
	return time.Second
}

func (s *screen) intro() {
	fmt.Fprintf(s.o.Out, `Headgate demonstration

  clients ──▶ gateway %s ──▶ API %s
              admin   %s     (policy API, metrics)
              rules   %s

  The rule: GET /v1/books/{book}, 5 per second for each caller, burst 10.
`, "http://"+s.gate.Gateway().String(), s.conf.Upstream, "http://"+s.gate.Admin().String(), s.conf.DB)
	for _, c := range s.clients {
		fmt.Fprintf(s.o.Out, "  %-9s %s\n", c.name, c.story)
	}
	fmt.Fprintln(s.o.Out)
	s.hints()
}

func (s *screen) outro() {
	fmt.Fprintln(s.o.Out, "\nstopped; the demonstration's database is removed")
}

// hints prints what to try.
func (s *screen) hints() {
	gate, admin := s.gate.Gateway(), s.gate.Admin()
	fmt.Fprintf(s.o.Out, `Try it from another terminal; Ctrl-C ends the demonstration.

  curl -i -H 'X-Api-Key: %[1]s' http://%[2]s/v1/books/7
  for i in $(seq 15); do curl -s -o /dev/null -w '%%{http_code} ' -H 'X-Api-Key: %[1]s' http://%[2]s/v1/books/$i; done; echo
  curl -i http://%[2]s/v1/no/such/endpoint
  curl -i --path-as-is -H 'X-Forwarded-For: 6.6.6.6' http://%[2]s/v1/./%%62ooks/7
  %[3]s explain GET '/v1/./%%62ooks/7' --header 'X-Forwarded-For: 6.6.6.6' --server http://%[4]s
  %[3]s policy set 'GET /v1/books/{book}' 2 --db %[5]s
  curl -s http://%[4]s/metrics | grep ^headgate_

`, s.key, gate, s.o.Program, admin, s.conf.DB)
}

// draw shows the state now.
func (s *screen) draw() {
	now := time.Now()
	if elapsed := now.Sub(s.last).Seconds(); elapsed >= 0.99 {
		s.measure(elapsed)
		s.last = now
	}
	lines := s.frame(now)
	if !s.o.Terminal {
		fmt.Fprintln(s.o.Out, strings.Join(lines, "\n"))
		return
	}
	var b strings.Builder
	if s.drawn {
		fmt.Fprintf(&b, "\x1b[%dA", len(lines)) // over the last frame
	}
	for _, line := range lines {
		b.WriteString("\x1b[2K" + line + "\n")
	}
	s.drawn = true
	fmt.Fprint(s.o.Out, b.String())
}

func (s *screen) measure(elapsed float64) {
	for i, c := range s.clients {
		t := totals{c.admitted.Load(), c.limited.Load() + c.refused.Load() + c.failed.Load()}
		s.rows[i] = row{
			admitted: float64(t.admitted-s.before[i].admitted) / elapsed,
			denied:   float64(t.denied-s.before[i].denied) / elapsed,
		}
		s.before[i] = t
	}
}

// barWidth is how many cells 50 requests a second fill. A frame's lines stay
// within 80 columns: a line that wraps cannot be drawn over.
const barWidth = 25

func (s *screen) frame(now time.Time) []string {
	lines := []string{fmt.Sprintf("%-10s last second: █ in ░ out    %7s %7s  %9s %9s",
		now.Sub(s.started).Truncate(time.Second), "in/s", "out/s", "admitted", "denied")}
	for i, c := range s.clients {
		r := s.rows[i]
		denied := c.limited.Load() + c.refused.Load() + c.failed.Load()
		lines = append(lines, fmt.Sprintf("%-10s %s  %7.1f %7.1f  %9d %9d",
			c.name, s.bar(r), r.admitted, r.denied, c.admitted.Load(), denied))
	}
	return lines
}

// bar draws admitted and denied requests a second, two to a cell.
func (s *screen) bar(r row) string {
	admitted := min(barWidth, int(r.admitted/2+0.5))
	denied := min(barWidth-admitted, int(r.denied/2+0.5))
	solid, shade := strings.Repeat("█", admitted), strings.Repeat("░", denied)
	rest := strings.Repeat(" ", barWidth+2-admitted-denied)
	if !s.o.Terminal {
		return solid + shade + rest
	}
	return "\x1b[32m" + solid + "\x1b[31m" + shade + "\x1b[0m" + rest
}
