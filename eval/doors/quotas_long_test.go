//go:build unix && long

package doors

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/simulate"
)

// Eight real Envoys report to two Headgates with one store. Whatever the number of Envoys among
// which three times a limit is spread, the API receives no more than is published, and most of the
// limit; also while one Headgate is frozen, and after it was killed.
func TestQuotasOfManyEnvoys(t *testing.T) {
	const perSecond, ttl, phase = 50, 4 * time.Second, 15 * time.Second
	shape, err := rate.Compile(rate.Limit{Tokens: perSecond, Per: time.Second, Burst: perSecond})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	began, received := time.Now(), map[string]*simulate.Envelope{} // by client
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		client := r.Header.Get("Client")
		if received[client] == nil {
			received[client] = &simulate.Envelope{Shape: shape}
		}
		received[client].Admit(time.Since(began), 1)
	}))
	t.Cleanup(api.Close)
	store := redistest.Start(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "limits.yaml"),
		fmt.Sprintf(
			"domain: shop\ndescriptors:\n- {key: remote_address, rate_limit: {unit: second, requests_per_unit: "+
				"%d}}\n", perSecond))
	write(t, filepath.Join(dir, "secret"), strings.Repeat("0123456789abcdef", 4)+"\n")
	var gateways [2]*harness.Gateway
	for i := range gateways {
		own := t.TempDir()
		write(t, filepath.Join(own, "headgate.yaml"), fmt.Sprintf(
			"decisions: {grpc: '127.0.0.1:0', ratelimit: [%[1]s/limits.yaml], quota_ttl: %[3]v, scope: strict}\n"+
				"store: {redis: ['%[2]s'], secret_file: %[1]s/secret, deadline: 1s, lease_ttl: 5s}\n", dir,
			store.Socket, ttl))
		gateways[i] = harness.Serve(t, own, "--config", "headgate.yaml", "--listen", "none")
	}
	var envoys [8]string
	for i := range envoys {
		envoys[i] = run(t, quotaEnvoy, forLong, api.Listener.Addr().String(), gateways[i%2])
	}
	load := func(k int, client string) {
		ticker := time.NewTicker(time.Second * time.Duration(k) / (3 * perSecond))
		defer ticker.Stop()
		over := time.After(phase)
		var callers sync.WaitGroup
		defer callers.Wait()
		from := &http.Transport{
			MaxIdleConnsPerHost: 64,
			DialContext:         (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}).DialContext,
		}
		defer from.CloseIdleConnections()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			for i := range k {
				callers.Go(func() {
					r, _ := http.NewRequest("GET", "http://"+envoys[i]+"/any", nil)
					r.Header.Set("Client", client)
					if response, err := from.RoundTrip(r); err == nil {
						_, _ = io.Copy(io.Discard, response.Body)
						_ = response.Body.Close()
					}
				})
			}
		}
	}
	most := int64(perSecond * (ttl + time.Second).Seconds())
	measure := func(k int, client, what string, used float64) {
		t.Helper()
		load(k, client)
		mu.Lock()
		defer mu.Unlock()
		e := received[client]
		if e == nil {
			e = &simulate.Envelope{Shape: shape}
		}
		part := float64(e.Admitted) / (perSecond * phase.Seconds())
		t.Logf("%d Envoys, %s: %d received, %.2f of rate·time, %d above burst and rate", k, what, e.Admitted,
			part, e.Excess())
		if e.Excess() > most || part < used {
			t.Errorf("%d Envoys, %s: %d above burst and rate in some interval, want %d at most; %.2f of the limit "+
				"used, want %.2f", k, what, e.Excess(), most, part, used)
		}
	}
	for i, k := range []int{1, 2, 4, 8} {
		measure(k, fmt.Sprintf("127.0.1.%d", i+1), "all well", 0.3)
	}
	if err := gateways[0].Freeze(); err != nil {
		t.Fatal(err)
	}
	measure(8, "127.0.1.5", "one of two Headgates frozen", 0.2)
	if err := gateways[0].Thaw(); err != nil {
		t.Fatal(err)
	}
	gateways[0].Kill()
	measure(8, "127.0.1.6", "and killed", 0.2)
}
