package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/freeport"
)

// site is a gateway before two servers.
type site struct {
	dir  string
	at   string // where the gateway listens
	gate *harness.Gateway
	apis [2]*api

	out io.Writer // what is wrong is said as it is seen

	reloads, changes, restarts, lost atomic.Int64

	mu     sync.Mutex
	faults map[string]int // guarded by mu: how often each was seen
}

// idle is how long the gateway keeps a connection that nothing comes on: at rest there are none.
const idle = 2 * time.Second

func start(engine string, out io.Writer) (*site, error) {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, out: out, faults: map[string]int{}}
	if err := s.begin(engine); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *site) begin(engine string) (err error) {
	for i := range s.apis {
		if s.apis[i], err = startAPI(""); err != nil {
			return err
		}
	}
	if err := errors.Join(s.configure(engine), s.route(0)); err != nil {
		return err
	}
	for _, rule := range [][]string{{"default", "10000000"}, {"GET /v1/spent", "1/d", "--burst", "1"}} {
		if err := harness.Command(s.dir, append([]string{"policy", "set", "--db", "sqlite:headgate.db"},
			rule...)...); err != nil {
			return err
		}
	}
	if s.gate, err = harness.Start(s.dir, "--config", "headgate.yaml"); err != nil {
		return err
	}
	s.at = strings.TrimPrefix(s.gate.URL, "http://")
	answer, err := http.Get(s.gate.URL + "/v1/spent")
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func (s *site) close() {
	if s.gate != nil {
		s.gate.Kill()
	}
	for _, a := range s.apis {
		if a != nil {
			_ = a.Close()
		}
	}
	_ = os.RemoveAll(s.dir)
}

func (s *site) configure(engine string) error {
	return os.WriteFile(filepath.Join(s.dir, "headgate.yaml"), fmt.Appendf(nil, `
upstream: http://api.internal
upstream_servers:
  - {address: %s}
  - {address: %s}
engine: %s
routes: [routes.txt]
clients: {idle_timeout: %v}
`, s.apis[0].at, s.apis[1].at, engine, idle), 0o600)
}

func (s *site) route(n int64) error {
	return os.WriteFile(filepath.Join(s.dir, "routes.txt"), fmt.Appendf(nil, "GET /v1/items/{item}\nPUT /v1/sums\n"+
		"GET /v1/spent\nGET /v1/large\nGET /v1/slow\nGET /v1/of/%d\n", n), 0o600)
}

// trouble changes settings, routes and rules, and has one server after the other begin anew, until ctx ends. No answer
// may be lost by any of it.
func (s *site) trouble(ctx context.Context) {
	for n := int64(1); ctx.Err() == nil; n++ {
		pause(ctx, time.Second)
		if err := s.route(n); err != nil {
			s.wrong("routes", err)
		}
		if err := s.reload(); err != nil {
			s.wrong("reload", err)
		}
		s.reloads.Add(1)
		if n%3 == 0 {
			if err := harness.Command(s.dir, "policy", "set", "--db", "sqlite:headgate.db", "default",
				fmt.Sprint(10_000_000+rand.IntN(1000))); err != nil {
				s.wrong("policy set", err)
			}
			s.changes.Add(1)
		}
		if n%2 == 0 {
			of := int(n/2) % len(s.apis)
			if err := s.apis[of].restart(); err != nil {
				s.wrong("restart of the API", err)
				return
			}
			s.restarts.Add(1)
		}
	}
}

func (s *site) reload() error {
	request, err := http.NewRequest(http.MethodPost, s.gate.Admin+"/v1/reload", nil)
	if err != nil {
		return err
	}
	request.Close = true // the listener ends idle connections, as the next POST may be on its way
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", answer.StatusCode, text)
	}
	return nil
}

// wrong notes what must not be.
func (s *site) wrong(who string, err error) {
	var of *net.OpError
	if errors.As(err, &of) { // without the ports
		err = fmt.Errorf("%s: %w", of.Op, of.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := who + ": " + err.Error()
	if s.faults[text] == 0 && len(s.faults) < 100 {
		fmt.Fprintf(s.out, "%s  wrong: %s\n", time.Now().UTC().Format(time.TimeOnly), text)
	}
	if len(s.faults) < 100 || s.faults[text] > 0 {
		s.faults[text]++
	}
}

func (s *site) counts() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "%s %d, ", k.name, k.done.Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wrong := 0
	for _, n := range s.faults {
		wrong += n
	}
	fmt.Fprintf(&b, "reloads %d, changes %d, restarts %d, uploads that a restart cost %d, wrong %d;",
		s.reloads.Load(), s.changes.Load(), s.restarts.Load(), s.lost.Load(), wrong)
	return b.String()
}

// verdict says what was wrong, and what did not happen.
func (s *site) verdict() error {
	var errs []error
	for _, k := range kinds {
		if k.done.Load() == 0 {
			errs = append(errs, fmt.Errorf("no client that is %s got anything done", k.name))
		}
	}
	if s.reloads.Load() == 0 || s.restarts.Load() == 0 {
		errs = append(errs, errors.New("nothing was reloaded, or no server began anew"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range slices.Sorted(maps.Keys(s.faults)) {
		errs = append(errs, fmt.Errorf("%d times: %s", s.faults[text], text))
	}
	return errors.Join(errs...)
}

// api is a server of the API.
type api struct {
	*http.Server
	at string
}

// startAPI starts one at an address, or at one that is free.
func startAPI(at string) (*api, error) {
	if at == "" {
		port, err := freeport.Pick() // which no connection takes while it is down
		if err != nil {
			return nil, err
		}
		at = fmt.Sprintf("127.0.0.1:%d", port)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	a := &api{&http.Server{Handler: http.HandlerFunc(serve)}, l.Addr().String()}
	go func() { _ = a.Serve(l) }()
	return a, nil
}

// restart ends it as a server ends that is asked to, and starts it again.
func (a *api) restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := a.Shutdown(ctx); err != nil {
		return err
	}
	next, err := startAPI(a.at)
	if err == nil {
		a.Server = next.Server
	}
	return err
}

// item is what the API says of one: some are long.
func item(n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "item %d\n", n), 1+n%64*(n%16))
}

func serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/sums":
		sum := sha256.New()
		if _, err := io.Copy(sum, r.Body); err == nil {
			fmt.Fprintf(w, "%x", sum.Sum(nil))
		}
	case "/v1/large":
		piece := make([]byte, 64<<10)
		for range 64 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	case "/v1/slow":
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second):
		}
	default:
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/v1/items/%d", &n)
		_, _ = w.Write(item(n))
	}
}
