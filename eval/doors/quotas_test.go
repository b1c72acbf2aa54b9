//go:build unix

package doors

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

var quotaEnvoy = proxy{"Envoy", "envoy", []string{"bin/garden/venv/bin/envoy", "-c", "rate_limit_quota.yaml",
	"--concurrency", "2", "-l", "off", "--disable-hot-restart"}, 429, 429}

// Envoy decides by itself, by its filter rate_limit_quota, and by no call a request; limits change
// while it runs; it refuses once what it was lent has ended, while Headgate stands still and while
// it is gone, and goes on once it is back.
func TestQuotas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits := func(perHour int) string {
		return fmt.Sprintf("domain: shop\ndescriptors:\n- {key: remote_address, rate_limit: {unit: hour, "+
			"requests_per_unit: %d}}\n- {key: api, value: reports, rate_limit: {unit: hour, requests_per_unit: "+
			"2}}\n", perHour)
	}
	write(t, filepath.Join(dir, "limits.yaml"), limits(5))
	write(t, filepath.Join(dir, "headgate.yaml"),
		"listen: none\ndecisions: {grpc: '127.0.0.1:0', ratelimit: [limits.yaml], quota_ttl: 4s}\n")
	w := &world{api: newAPI(t)}
	w.headgate = harness.Serve(t, dir, "--config", "headgate.yaml", "--listen", "none")
	w.at = run(t, quotaEnvoy, forLong, w.api.Listener.Addr().String(), w.headgate)
	// until as many are, and then until what was refused has been reported
	served := func(path, limit string, want int) (n int) {
		t.Helper()
		reported, reports := "", 0
		harness.Eventually(time.Minute, func() bool {
			response, _ := send(t, w.at, "GET", path, "")
			if response.StatusCode == 200 {
				n++
			} else if response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" {
				t.Errorf("%s: %d, Retry-After %q, want 429 and 1", path, response.StatusCode,
					response.Header.Get("Retry-After"))
			}
			if n < want {
				return false
			}
			if now := w.headgate.Metric(t, fmt.Sprintf("headgate_quota_requests_total{limit=%q,result=\"denied\"}",
				limit)); now != reported {
				reported, reports = now, reports+1
			}
			return reports > 1
		})
		return n
	}
	if n := served("/any", "shop/remote_address", 5); n != 5 {
		t.Errorf("%d of a limit of 5 were served", n)
	}
	if n := served("/v1/reports?x=1", "shop/api=reports", 2); n != 2 {
		t.Errorf("%d of a limit of 2 were served", n)
	}
	write(t, filepath.Join(dir, "limits.yaml"), limits(9))
	if !w.headgate.Says("the limits of descriptors were loaded") {
		t.Fatal("no word of limits that changed")
	}
	if n := served("/any", "shop/remote_address", 4); n != 4 {
		t.Errorf("%d were served with 9 in the place of 5 that were used up, want 4", n)
	}
	if n := w.headgate.Metric(t,
		`headgate_quota_requests_total{limit="shop/remote_address",result="allowed"}`); n != "9" {
		t.Errorf("%s were reported, want 9", n)
	}

	write(t, filepath.Join(dir, "limits.yaml"), limits(100_000))
	serves := func(want int, when string) {
		t.Helper()
		if !harness.Eventually(time.Minute, func() bool {
			response, _ := send(t, w.at, "GET", "/any", "")
			return response.StatusCode == want
		}) {
			t.Fatalf("%s: no %d in a minute", when, want)
		}
	}
	serves(200, "with a limit that is never reached")
	if err := w.headgate.Freeze(); err != nil {
		t.Fatal(err)
	}
	serves(429, "while Headgate does not answer")
	before, _ := w.api.last()
	response, _ := send(t, w.at, "GET", "/new", "")
	if after, _ := w.api.last(); response.StatusCode != 429 || after != before {
		t.Errorf("after what was lent has ended: %d, want 429", response.StatusCode)
	}
	if err := w.headgate.Thaw(); err != nil {
		t.Fatal(err)
	}
	serves(200, "once it does again")
	w.headgate.Kill()
	serves(429, "while Headgate is gone")
}
