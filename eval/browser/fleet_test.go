//go:build long

package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate-io/headgate/eval/harness"
)

// With several gateways on one database the page of each says so. What a gateway decided is on its
// own page; rules, what changed, and how all of them are is on every page; and a change by one page
// holds at all of them.
func TestSeveralGateways(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "routes.txt"), []byte("GET /v1/items/{id}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"east", "west"} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"),
			[]byte("replica_name: "+name+"\nroutes: [routes.txt]\nreplica_interval: 1s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "set", "default", "4/h")
	api := harness.NewUpstream(t).URL
	east := harness.Serve(t, dir, "--upstream", api, "--config", "east.yaml")
	west := harness.Serve(t, dir, "--upstream", api, "--config", "west.yaml")
	ask(t, east.URL+"/v1/items/7", 9)
	ask(t, west.URL+"/v1/items/7", 2)

	b := open(t, east.Admin)
	b.view("denied")
	b.until(`document.querySelector('main').innerText.includes('one of 2')`)
	b.until(`document.querySelector('main').innerText.includes('GET /v1/items/{id}')`)
	b.view("health")
	b.until(`document.querySelector('main').innerText.includes('east') && document.querySelector('main').innerText.includes('west')`)
	b.view("rules?rule=default")
	b.until(`!!document.querySelector('main .panel a')`)
	b.press("What if the limit were another?")
	b.until(`!!document.querySelector('input[type=range]')`)
	if text := b.text("main"); !strings.Contains(text, "of 9 requests denied") || !strings.Contains(text, "one of 2") {
		t.Errorf("a trial on one gateway's page is of its own 9 requests, and the page says\n%s", text)
	}
	b.do(chromedp.Evaluate(`{ const s = document.querySelector('input[type=range]'); s.value = s.max; s.dispatchEvent(new Event('input')); }`, nil))
	b.press("Plan this change")
	b.press("Put it in force")
	b.until(`location.hash.startsWith('#/changes')`)
	for _, g := range []*harness.Gateway{east, west} {
		if !harness.Eventually(patience, func() bool { return ask(t, g.URL+"/v1/items/7", 1) == 0 }) {
			t.Errorf("%s does not obey what was changed on the other's page", g.URL)
		}
	}

	b.at = west.Admin + "/ui/"
	b.view("denied")
	b.until(`document.querySelector('main').innerText.includes('Nobody was denied')`)
	b.view("changes")
	b.until(`document.querySelector('main').innerText.includes('Version') && document.querySelectorAll('main tbody tr').length === 3`)
}
