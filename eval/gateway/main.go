// Command gateway measures what a request costs that goes through a gateway, in processor time of the process
// that passes it on or refuses it, beside other proxies that limit, and writes the page about it.
//
//	go run ./gateway          all of it, and the page: nine minutes
//	go run ./gateway -dry     on standard output
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/peers"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "how often each proxy is measured with each load, in turn")
	span := flags.Duration("sample", time.Second, "how long a sample lasts")
	idle := flags.Int("idle", 9000, "how many connections are idle where memory is measured")
	rest := flags.Duration("rest", 10*time.Second, "how long after a burst memory is measured")
	dry := flags.Bool("dry", false, "print the page instead of writing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *span < 100*time.Millisecond {
		return errors.New("want -rounds of 1 or more and a -sample of 100ms or more")
	}
	dir, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &site{dir: dir}
	defer s.close()
	if err := s.start(); err != nil {
		return err
	}
	found := make([][][]float64, len(loads)) // µs a request, by load, proxy and round
	for l := range loads {
		found[l] = make([][]float64, len(s.proxies))
	}
	late := make([][]lateness, len(s.proxies))
	nginx := slices.IndexFunc(s.proxies, func(p proxy) bool { return p.name == nginxRow })
	half := 0.0 // requests a second
	for round := range *rounds {
		for l, load := range loads {
			for i := range s.proxies {
				at := (i + round) % len(s.proxies) // nobody is always first
				p := &s.proxies[at]
				if p.at[load.way].pid == 0 {
					continue
				}
				each, rate, err := p.measure(load, s.trusts, *span)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, load.name, err)
				}
				if at == nginx && l == 0 && round == 0 {
					half = rate / 2
				}
				fmt.Fprintf(stderr, "round %d of %d  %-32s %-38s %8.2f µs\n",
					round+1, *rounds, load.name, p.name, each)
				found[l][at] = append(found[l][at], each)
			}
		}
		for i := range s.proxies {
			at := (i + round) % len(s.proxies)
			took, err := s.proxies[at].lateness(half, *span)
			if err != nil {
				return fmt.Errorf("%s, at half load: %w", s.proxies[at].name, err)
			}
			fmt.Fprintf(stderr, "round %d of %d  %-32s %-38s %8.0f µs p99\n", round+1, *rounds, "half load",
				s.proxies[at].name, took.p99)
			late[at] = append(late[at], took)
		}
	}
	memory, err := s.memory(*idle, *rest)
	if err != nil {
		return err
	}
	text := report(s.proxies, found) + reportLateness(s.proxies, late, half) + memory
	return page.Publish("gateway", text, nil, *dry, stdout, stderr)
}

// connections is how many clients ask at once, each for the next answer when it has the last.
const connections = 64

// way is how a proxy is set up.
type way uint8

const (
	passing  way = iota // it lets everything pass
	refusing            // it refuses nearly everything
	secured             // it lets everything pass, and speaks TLS
	ways                // how many there are
)

// load is what is asked for.
type load struct {
	name, path, fields string
	way                way
	want               int  // the status; default 200
	key, token         bool // with an API key or a token that Headgate knows, and the others pass on
	fresh              bool // each on a new connection
}

func (l *load) status() int { return cmp.Or(l.want, http.StatusOK) }

var loads = []load{
	{name: "admitted", path: "/v1/items/7"},
	{name: "admitted, a browser's head", path: "/v1/items/7", fields: browser},
	{name: "admitted, an API key", path: "/v1/items/7", key: true},
	{name: "admitted, a token", path: "/v1/items/7", token: true},
	{name: "admitted, TLS", path: "/v1/items/7", way: secured},
	{name: "admitted, TLS, a handshake each", path: "/v1/items/7", way: secured, fresh: true},
	{name: "admitted, answer of 16 KiB", path: "/large"},
	{name: "admitted, answer of 1 MiB", path: "/stream"},
	{name: "refused by 429", path: "/v1/items/7", way: refusing, want: http.StatusTooManyRequests},
	{name: "refused by 404", path: "/nowhere", want: http.StatusNotFound},
}

const browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: " +
	"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n" +
	"Accept-Language: en-GB,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nReferer: " +
	"https://shop.example/items?page=3\r\nCookie: session=4f1c0a9e7d2b4f6c8a3e5d7f9b1c3e5a; theme=dark\r\n" +
	"Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n" +
	"Upgrade-Insecure-Requests: 1\r\nPriority: u=0, i\r\n"

// proxy is one that is measured.
type proxy struct {
	name       string
	at         [ways]place
	key, token string // of the one that passes; any for those who know none
}

// place is where a process answers; none where a proxy is not set up so.
type place struct {
	address string
	pid     int
}

// site is all that runs.
type site struct {
	dir     string
	servers []*peers.Server
	gates   []*harness.Gateway
	proxies []proxy
	api     string // its address
	pem     string // a file with a certificate and its key
	trusts  *tls.Config
	token   string // that gateways know
}

func (s *site) close() {
	for _, p := range s.servers {
		p.Stop()
	}
	for _, g := range s.gates {
		g.Kill()
	}
}

const (
	nginxRow   = "nginx, limit_req"
	fastRow    = "Headgate"
	engineRow  = "Headgate, `engine: net/http`"
	netHTTPRow = "Headgate, `engine` and `upstream_client: net/http`"
)

func (s *site) start() error {
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil { // of what is started: each has one thread's worth
		return err
	}
	api, err := peers.API(s.folder("api"))
	if err != nil {
		return err
	}
	s.servers, s.api = append(s.servers, api), api.At
	if err := pin(0, os.Getpid()); err != nil {
		return err
	}
	if err := pin(0, api.PID()); err != nil {
		return err
	}
	if err := s.credentials(); err != nil {
		return err
	}
	others := []struct {
		name  string
		start func(peers.Place) (*peers.Server, error)
		tls   bool
	}{
		{nginxRow, peers.Nginx, true},
		{"HAProxy, stick table", func(p peers.Place) (*peers.Server, error) { return peers.HAProxy(p, "1m") }, true},
		{"Envoy, local_ratelimit",
			func(p peers.Place) (*peers.Server, error) { return peers.EnvoyLocal(p, 1000) }, false},
	}
	for i, o := range others {
		made := proxy{name: o.name, key: strings.Repeat("0", 43), token: s.token}
		for w := range ways {
			if w == secured && !o.tls {
				continue
			}
			at := peers.Place{Dir: s.folder(fmt.Sprint("peer", i, w)), API: api.At, Limit: roomy}
			switch w {
			case refusing:
				at.Limit = peers.Limit{Rate: 1, Burst: 2}
			case secured:
				at.Certificate = s.pem
			}
			one, err := o.start(at)
			if err != nil {
				return err
			}
			s.servers = append(s.servers, one)
			made.at[w] = place{one.At, one.PID()}
		}
		s.proxies = append(s.proxies, made)
	}
	for i, own := range []struct{ name, setting string }{
		{fastRow, "engine: auto"},
		{engineRow, "engine: net/http"},
		{netHTTPRow, "engine: net/http\nupstream_client: net/http"},
	} {
		made := proxy{name: own.name, token: s.token}
		for w := range ways {
			limit, setting := "1000000", own.setting
			switch w {
			case refusing:
				limit = "1"
			case secured:
				setting += "\ntls:\n  cert_file: " + s.pem + "\n  key_file: " + s.pem
			}
			var key *string
			if w == passing {
				key = &made.key
			}
			g, err := s.headgate(fmt.Sprint("headgate", i, w), api.At, setting, limit, key)
			if err != nil {
				return err
			}
			_, address, _ := strings.Cut(g.URL, "://")
			made.at[w] = place{address, g.PID()}
		}
		s.proxies = append(s.proxies, made)
	}
	for _, p := range s.proxies {
		for _, at := range p.at {
			if at.pid == 0 {
				continue
			}
			if err := pin(1, at.pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// roomy is a limit that nobody meets.
var roomy = peers.Limit{Rate: 1_000_000, Burst: 1_000_000}

// headgate starts one with a setting and a limit before an API, and makes an API key if there is a place for it.
func (s *site) headgate(name, api, setting, limit string, key *string) (*harness.Gateway, error) {
	dir := s.folder(name)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "routes.txt"), []byte("GET /v1/items/{id}\nGET /large\nGET /stream\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "headgate.yaml"),
			[]byte("upstream: http://"+api+"\n"+setting+"\nroutes: [routes.txt]\n"+s.tokens()), 0o644),
		harness.Command(dir, "policy", "set", "default", limit, "--db", "sqlite:headgate.db"),
	); err != nil {
		return nil, err
	}
	if key != nil {
		var err error
		if *key, err = newKey(dir); err != nil {
			return nil, err
		}
	}
	g, err := harness.Start(dir, "--config", "headgate.yaml")
	if err == nil {
		s.gates = append(s.gates, g)
	}
	return g, err
}

// newKey is an API key for the gateway in dir.
func newKey(dir string) (string, error) {
	told, err := harness.Output(dir, "key", "create", "--project", "acme", "--name", "reader", "--db",
		"sqlite:headgate.db")
	words := strings.Fields(told)
	if err == nil && len(words) == 0 {
		err = errors.New("headgate key create says nothing")
	}
	if err != nil {
		return "", err
	}
	return words[len(words)-1], nil
}

func (s *site) folder(name string) string {
	dir := filepath.Join(s.dir, name)
	// nginx's worker is somebody else where this is root.
	_ = errors.Join(os.Chmod(s.dir, 0o755), os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777))
	return dir
}

// pin keeps a process, its threads and its children to one processor, so that nobody's requests are passed on by two.
func pin(processor, pid int) error {
	if runtime.NumCPU() < 2 {
		return nil
	}
	of, err := family(pid)
	if err != nil {
		return err
	}
	for _, one := range of {
		if out, err := exec.Command("taskset", "-a", "-c", "-p", strconv.Itoa(processor),
			strconv.Itoa(one)).CombinedOutput(); err != nil {
			return fmt.Errorf("taskset: %w: %s", err, out)
		}
	}
	return nil
}

// parent is the process that started another one.
func parent(pid int) (of int, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold anything
	var state string
	if _, err := fmt.Sscan(rest, &state, &of); err != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return of, nil
}

// family is a process and its children.
func family(pid int) (pids []int, err error) {
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, path := range found {
		one, _ := strconv.Atoi(filepath.Base(path))
		if of, err := parent(one); err == nil && (one == pid || of == pid) { // others may end meanwhile
			pids = append(pids, one)
		}
	}
	return pids, nil
}

func cpu(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		one, err := harness.CPU(pid)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// measure returns the processor time of a request in microseconds, after a warm-up of a fifth of the span, and how many
// were answered in a second.
func (p *proxy) measure(l load, trusts *tls.Config, span time.Duration) (each, rate float64, err error) {
	pids, err := family(p.at[l.way].pid)
	if err != nil {
		return 0, 0, err
	}
	a := p.asks(l, trusts)
	var before, after, took time.Duration
	var errAfter error
	var from, to int64
	err = a.during(func() {
		time.Sleep(span / 5)
		from = a.done.Load()
		before, err = cpu(pids)
		began := time.Now()
		for range patience {
			time.Sleep(span)
			after, errAfter = cpu(pids)
			if to = a.done.Load(); to > from && after > before {
				break
			}
		}
		took = time.Since(began)
	})
	n := max(1, to-from)
	return float64((after - before).Nanoseconds()) / 1000 / float64(n), float64(n) / took.Seconds(),
		errors.Join(err, errAfter)
}

// patience is how many spans a sample may take until it has something to show, on a machine that is busy with others.
const patience = 50

// asks are clients of one proxy.
type asks struct {
	load
	at      string
	request []byte
	trusts  *tls.Config // nil without TLS

	pause func() // before each request; nil for none
	took  func(time.Duration)

	done, other atomic.Int64 // answers, and those that are not as they should be
}

func (p *proxy) asks(l load, trusts *tls.Config) *asks {
	a := &asks{load: l, at: p.at[l.way].address}
	switch {
	case l.key:
		a.fields = "X-Api-Key: " + p.key + "\r\n"
	case l.token:
		a.fields = "Authorization: Bearer " + p.token + "\r\n"
	}
	a.request = []byte("GET " + l.path + " HTTP/1.1\r\nHost: " + a.at + "\r\n" + a.fields + "\r\n")
	if l.way == secured {
		a.trusts = trusts
	}
	return a
}

// during has the clients ask while look runs.
func (a *asks) during(look func()) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	failed := make(chan error, connections)
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			if err := a.ask(ctx); err != nil {
				failed <- err
			}
		})
	}
	look()
	stop()
	all.Wait()
	close(failed)
	if n := a.done.Load(); a.other.Load() > n/10 {
		return fmt.Errorf("%d of %d answers are not %d", a.other.Load(), n, a.status())
	}
	return <-failed
}

// ask asks on one connection, or on one after the other, until ctx ends.
func (a *asks) ask(ctx context.Context) error {
	for {
		if err := a.converse(ctx); err != nil || !a.fresh || ctx.Err() != nil {
			return err
		}
	}
}

// converse asks on one connection until ctx ends, or once.
func (a *asks) converse(ctx context.Context) error {
	conn, err := net.Dial("tcp", a.at)
	if err != nil {
		return err
	}
	defer conn.Close()
	if a.trusts != nil {
		conn = tls.Client(conn, a.trusts)
	}
	in := bufio.NewReaderSize(conn, 32<<10)
	for ctx.Err() == nil {
		if a.pause != nil {
			a.pause()
		}
		begin := time.Now()
		if _, err := conn.Write(a.request); err != nil {
			return err
		}
		status, err := readAnswer(in)
		if err != nil {
			return err
		}
		if a.took != nil {
			a.took(time.Since(begin))
		}
		if status != a.status() {
			a.other.Add(1)
		}
		a.done.Add(1)
		if a.fresh {
			return nil
		}
	}
	return nil
}

// readAnswer reads an answer with Content-Length, and looks at no more of it than that: who asks is to cost little.
func readAnswer(in *bufio.Reader) (status int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("an answer begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := -1
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("an answer has no Content-Length")
	}
	_, err = in.Discard(length)
	return status, err
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
}

// report is the page: for each load and proxy the median, and that of what it is of nginx's in the same round.
func report(proxies []proxy, found [][][]float64) string {
	var b strings.Builder
	b.WriteString(page.Conditions(time.Now(), "make gateway") + "\n")
	fmt.Fprintf(&b, "Others: %s.\n\n", peers.Versions())
	nginx := slices.IndexFunc(proxies, func(p proxy) bool { return p.name == nginxRow })
	for l, load := range loads {
		table := page.Table{{load.name, "µs a request", "spread", "× nginx", "spread"}}
		for i, p := range proxies {
			if len(found[l][i]) == 0 {
				continue // it is not set up so
			}
			var beside []float64
			for round, each := range found[l][i] {
				beside = append(beside, each/found[l][nginx][round])
			}
			table = append(table, []string{
				p.name, fmt.Sprintf("%.1f", median(found[l][i])),
				fmt.Sprintf("%.1f–%.1f", slices.Min(found[l][i]), slices.Max(found[l][i])),
				fmt.Sprintf("%.2f", median(beside)), fmt.Sprintf("%.2f–%.2f", slices.Min(beside), slices.Max(beside)),
			})
		}
		fmt.Fprintf(&b, "%s\n", table)
	}
	return b.String()
}
