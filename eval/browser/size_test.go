//go:build long

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate-io/headgate/eval/harness"
)

// With 10,000 rules, 600 endpoints and 1,000 projects the page is as small as ever, shows what it can, and
// finds the rest. How soon something is painted is printed: -v.
func TestManyRules(t *testing.T) {
	dir := t.TempDir()
	var routes, rules strings.Builder
	for i := range 600 {
		fmt.Fprintf(&routes, "GET /v1/things-%d/{id}\n", i)
	}
	rules.WriteString("rules:\n  - {endpoint: default, limit: 100}\n  - {endpoint: UNKNOWN, limit: 10}\n")
	for i := range 9998 {
		fmt.Fprintf(&rules, "  - {endpoint: \"GET /v1/things-%d/{id}\", project: customer-%d, limit: %d}\n",
			(i*7+i/600)%600, i%1000, 5+i%50)
	}
	for name, text := range map[string]string{"routes.txt": routes.String(), "rules.yaml": rules.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "import", "rules.yaml", "--routes", "routes.txt")
	g := harness.Serve(t, dir, "--upstream", harness.NewUpstream(t).URL, "--routes", "routes.txt")
	for i := range 50 {
		ask(t, fmt.Sprintf("%s/v1/things-%d/1", g.URL, i), 3)
	}
	b := open(t, g.Admin)
	// Beside it a page of one line, as what the browser needs by itself is most of it.
	line := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>A line</title><p>A line")
	}))
	t.Cleanup(line.Close)
	paints := map[string][]float64{}
	for range 15 {
		for _, at := range []string{line.URL + "/", b.at + "#/denied"} {
			b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(at))
			b.until(`performance.getEntriesByName('first-contentful-paint').length === 1`)
			var paint float64
			b.do(chromedp.Evaluate(`performance.getEntriesByName('first-contentful-paint')[0].startTime`, &paint))
			paints[at] = append(paints[at], paint)
		}
		b.until(`typeof uPlot === 'function'`) // the last of what is loaded
		var bytes float64
		b.do(chromedp.Evaluate(
			`performance.getEntriesByType('resource').filter((e) => e.name.includes('/ui/')).reduce((n, e) => n + e.decodedBodySize, performance.getEntriesByType('navigation')[0].decodedBodySize)`, &bytes))
		if bytes > 150<<10 || bytes < 50<<10 {
			t.Errorf("the page is %v bytes, want at most 150 KiB, and all of it", bytes)
		}
	}
	for at, all := range paints {
		slices.Sort(all)
		t.Logf("%s: first paint after %.0f ms, the median of %d; the fastest %.0f, the slowest %.0f", at,
			all[len(all)/2], len(all), all[0], all[len(all)-1])
	}

	b.view("rules")
	b.until(`document.querySelector('main').innerText.includes('9,800 more')`)
	var nodes int
	b.do(chromedp.Evaluate(`document.querySelectorAll('*').length`, &nodes))
	if nodes > 5000 {
		t.Errorf("the rules take %d elements, want at most 5000", nodes)
	}
	b.do(chromedp.Evaluate(`{ const s = document.querySelector('input[type=search]'); s.value = 'customer-997'; s.dispatchEvent(new Event('input')); }`, nil))
	b.until(`document.querySelectorAll('main tbody tr').length === 10`)
	// of a rule beyond the first thousand
	b.do(chromedp.Evaluate(`document.querySelector('main tbody button').click()`, nil))
	b.press("What if the limit were another?")
	b.until(`document.querySelectorAll('select option').length === 1000 && document.querySelector('select').selectedOptions[0].text.includes('customer-997')`)
	b.until(`document.querySelector('main').innerText.includes('requests denied')`)
	b.view("caller?by=user&value=ann&project=customer-7")
	b.until(`document.querySelectorAll('main tbody tr').length > 9`)
}
