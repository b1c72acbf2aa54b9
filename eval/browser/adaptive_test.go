//go:build long

package browser

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate-io/headgate/eval/harness"
)

// While the API fails, the page says to what part of the rules rates are lowered, and how many requests may be under
// way, in its view of health and where it explains a request.
func TestTheHealthViewShowsLoweredLimits(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer api.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "GET /v1/items/{id}\nGET /v1/slow\n",
		"headgate.yaml": "routes: [routes.txt]\nadaptive:\n" +
			"  - {endpoints: [\"GET /v1/items/{id}\"], slo: 200ms, floor: 0.1, at_once: true}\n" +
			"  - {endpoints: [GET /v1/slow], slo: 200ms, floor: 0.1}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "set", "default", "1000/s")
	harness.Run(t, dir, "policy", "set", "GET /v1/items/{id}", "100", "--subject", "in_flight:principal",
		"--algorithm", "concurrency", "--per", "30s")
	g := harness.Serve(t, dir, "--upstream", api.URL, "--config", "headgate.yaml")
	b := open(t, g.Admin)
	b.view("health")
	row := func(endpoint string) string {
		return `[...document.querySelectorAll('tr')].find((r) => r.innerText.startsWith('` + endpoint +
			`'))?.innerText.replace(/\s+/g, ' ')`
	}
	b.until(row("GET /v1/items/{id}") + ` === 'GET /v1/items/{id} 100.0 % – 100.0 %'`)
	b.until(row("GET /v1/slow") + ` === 'GET /v1/slow 100.0 % – –'`)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if answer, err := http.Get(g.URL + "/v1/items/7"); err == nil {
				_ = answer.Body.Close()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	b.until(`/^GET .v1.items..id. \d\d\.\d % – \d\d\.\d %$/.test(` + row("GET /v1/items/{id}") + `)`)
	b.view("rules")
	b.until(`!!document.querySelector('form input[size="28"]')`)
	b.do(chromedp.SetValue(`form input[size="28"]`, "/v1/items/7", chromedp.ByQuery))
	b.press("Explain")
	b.until(`/Rates are \d\d\.\d % of what the rules say, how many may be under way \d\d\.\d %: /.test(` +
		`document.querySelector('main').innerText)`)
}
