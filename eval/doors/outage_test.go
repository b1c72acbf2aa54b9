//go:build unix

package doors

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
)

// Each listener has a list of those who may ask, where it is given one.
func TestListsOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "GET /a\n")
	write(t, filepath.Join(dir, "headgate.yaml"), "listen: none\nroutes: [routes.txt]\ndecisions: {listen: "+
		"'127.0.0.1:0', grpc: '127.0.0.1:0', resp: '127.0.0.1:0', spoe: '127.0.0.1:0', "+
		"from: [10.9.9.9], resp_from: [127.0.0.1], spoe_from: [10.9.9.8]}\n")
	g := harness.Serve(t, dir, "--config", "headgate.yaml", "--listen", "none")
	answer, err := http.Get(g.Decisions + "/forward")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("over HTTP: %d, want 403", answer.StatusCode)
	}
	if said, err := redistest.Dial(g.RESP).Do(time.Now().Add(time.Minute), "PING"); said != "PONG" {
		t.Errorf("a client of Redis that may ask: %v, %v", said, err)
	}
	if !ended(t, g.SPOE) {
		t.Error("SPOE: a connection of a stranger stays")
	}
	conn, err := grpc.NewClient(g.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := auth.NewAuthorizationClient(conn).Check(t.Context(),
		&auth.CheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger over gRPC: %v, want that its connection is closed", err)
	}
	write(t, filepath.Join(dir, "headgate.yaml"),
		strings.ReplaceAll("listen: none\nroutes: [routes.txt]\ndecisions: {listen: 'L', grpc: 'L', resp: 'L', "+
			"spoe: 'L', resp_from: [10.9.9.9]}\n", "L", "127.0.0.1:0"))
	harness.Run(t, dir, "reload", "--server", g.Admin)
	if !harness.Eventually(time.Minute, func() bool {
		said, err := redistest.Dial(g.RESP).Do(time.Now().Add(time.Minute), "PING")
		return err != nil && said == nil
	}) {
		t.Error("a list that was reloaded is not in force")
	}
}

// ended reports whether a server ends a connection at once.
func ended(t *testing.T, at string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	for buffer := make([]byte, 1024); ; {
		if _, err := conn.Read(buffer); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// Envoy's filter for rate limits lets nothing pass while Headgate hangs, or is gone.
func TestOutageOfDescriptors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "limits.yaml"),
		"domain: shop\ndescriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 100000}}]\n")
	write(t, filepath.Join(dir, "headgate.yaml"),
		"listen: none\ndecisions: {grpc: '127.0.0.1:0', ratelimit: [limits.yaml]}\n")
	w := &world{api: newAPI(t)}
	w.headgate = harness.Serve(t, dir, "--config", "headgate.yaml", "--listen", "none")
	w.at = run(t, proxy{"Envoy", "envoy", []string{"bin/garden/venv/bin/envoy", "-c", "ratelimit.yaml", "--concurrency",
		"2", "-l", "off", "--disable-hot-restart"}, 503, 503}, asWritten, w.api.Listener.Addr().String(), w.headgate)
	refused := func(when string) {
		t.Helper()
		before, _ := w.api.last()
		for range 3 {
			if response, _ := send(t, w.at, "GET", "/any", ""); response.StatusCode != 503 {
				t.Errorf("%s: %d, want 503", when, response.StatusCode)
			}
		}
		if after, _ := w.api.last(); after != before {
			t.Errorf("%s: the API was asked", when)
		}
	}
	passes(t, w.at)
	if err := w.headgate.Freeze(); err != nil {
		t.Fatal(err)
	}
	refused("while it hangs")
	if err := w.headgate.Thaw(); err != nil {
		t.Fatal(err)
	}
	passes(t, w.at)
	w.headgate.Kill()
	refused("while it is gone")
}
