//go:build long

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headgate-io/headgate/eval/harness"
)

// patience is how long a busy machine may take for what a view shows.
const patience = time.Minute

// tab is a page of a headless Chromium.
type tab struct {
	testing.TB
	ctx context.Context
	at  string // URL of the page
}

// open starts a browser with one tab, which ends with the test.
func open(t testing.TB, admin string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1440, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-dev-shm-usage", true))
	browser, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	// of events that it does not know
	ctx, _ := chromedp.NewContext(browser, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits for it, and takes away what it has written
	if err := chromedp.Run(ctx); err != nil {      // now, so that no deadline of a later step ends the browser
		t.Fatal(err)
	}
	return &tab{t, ctx, admin + "/ui/"}
}

func (b *tab) do(actions ...chromedp.Action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body ? document.body.innerText : ''`, &text))
		b.Fatalf("%v; the page shows\n%.2000s", err, text)
	}
}

// view shows a view.
func (b *tab) view(name string) {
	b.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.at+"#/"+name))
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.Helper()
	var ok bool
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	poll := chromedp.Poll(expression, &ok, chromedp.WithPollingInterval(50*time.Millisecond),
		chromedp.WithPollingTimeout(patience))
	err := chromedp.Run(ctx, poll)
	for err != nil && strings.Contains(err.Error(), "Cannot find context") && ctx.Err() == nil {
		err = chromedp.Run(ctx, poll) // it was the context of the page before this one
	}
	if err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		b.Fatalf("%s never came true: %v; the page shows\n%.3000s", expression, err, text)
	}
}

// fill types a text into an input, and waits until it is there: keys that come later would go to the page.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.do(chromedp.SendKeys(selector, text, chromedp.ByQuery))
	where, _ := json.Marshal(selector)
	what, _ := json.Marshal(text)
	b.until(fmt.Sprintf(`document.querySelector(%s).value === %s`, where, what))
}

// press clicks the button, or the link, with a text.
func (b *tab) press(text string) {
	b.Helper()
	quoted, _ := json.Marshal(text)
	find := fmt.Sprintf(`[...document.querySelectorAll('button, a')].find((e) => e.textContent === %s && !e.disabled)`, quoted)
	b.until(`!!` + find)
	b.do(chromedp.Evaluate(find+`.click()`, nil))
}

func (b *tab) text(selector string) (text string) {
	b.Helper()
	b.do(chromedp.Text(selector, &text, chromedp.ByQuery))
	return text
}

// gateway is a gateway with rules, and an API behind it.
func gateway(t testing.TB, routes string, rules ...[]string) *harness.Gateway {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "routes.txt"), []byte(routes), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		harness.Run(t, dir, append([]string{"policy", "set"}, rule...)...)
	}
	return harness.Serve(t, dir, "--upstream", harness.NewUpstream(t).URL, "--routes", "routes.txt",
		"--unknown", "limit")
}

// ask sends n requests and reports how many were denied.
func ask(t testing.TB, url string, n int) (denied int) {
	t.Helper()
	for range n {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusTooManyRequests {
			denied++
		}
	}
	return denied
}

// An operator sees who is denied and by which rule, slides the limit, puts another one in force, sees that the gateway
// obeys, and goes back.
func TestAnOperatorChangesALimit(t *testing.T) {
	g := gateway(t, "GET /v1/items/{id}\n", []string{"default", "4/h"})
	if denied := ask(t, g.URL+"/v1/items/7", 24); denied != 20 {
		t.Fatalf("%d of 24 requests were denied, want 20", denied)
	}
	b := open(t, g.Admin)

	b.view("denied")
	b.until(`document.querySelector('main').innerText.includes('GET /v1/items/{id}')`)
	if text := b.text("main"); strings.Contains(text, "127.0.0.1") {
		t.Errorf("the view shows who the caller is before anybody asked:\n%s", text)
	}
	b.do(chromedp.Click(`input[type=checkbox]`, chromedp.ByQuery))
	b.until(`document.querySelector('main').innerText.includes('127.0.0.1')`)

	b.press("default") // the rule
	b.until(`!!document.querySelector('main .panel')`)
	b.press("What if the limit were another?")
	b.until(`!!document.querySelector('input[type=range]')`)
	text := b.text("main")
	if !strings.Contains(text, "of 24 requests denied") || !strings.Contains(text, "83.3 %") {
		t.Errorf("the present limit denies 20 of 24, and the view says\n%s", text)
	}
	// Ten times as much, which is the last step.
	b.do(chromedp.Evaluate(`{ const s = document.querySelector('input[type=range]'); s.value = s.max; s.dispatchEvent(new Event('input')); }`, nil))
	b.until(`document.querySelector('main').innerText.includes('40 per hour')`)
	b.until(`document.querySelector('main').innerText.includes('−20')`)
	b.press("Plan this change")
	b.until(`document.querySelector('dialog[open]')?.innerText.includes('4 per hour → 40 per hour')`)
	b.fill(`dialog input`, "too tight")
	b.press("Put it in force")
	b.until(`location.hash.startsWith('#/changes')`)
	b.until(`document.querySelector('main').innerText.includes('too tight')`)
	if denied := ask(t, g.URL+"/v1/items/7", 10); denied != 0 {
		t.Errorf("%d of 10 requests were denied under the new limit, want 0", denied)
	}

	before := strings.Fields(harness.Run(t, g.Dir, "policy", "list"))
	b.do(chromedp.Evaluate(`[...document.querySelectorAll('button')].find((e) => e.textContent.startsWith('Back to version')).click()`, nil))
	b.press("Go back")
	b.until(`document.querySelector('main').innerText.includes('rollback')`)
	if after := strings.Fields(harness.Run(t, g.Dir, "policy", "list")); strings.Join(after,
		" ") == strings.Join(before, " ") {
		t.Errorf("after going back the rules are still %q", after)
	}
}

// The chart of the last hour and the numbers above it move while requests come, and a warning that begins is told.
func TestTheChartMoves(t *testing.T) {
	s := newScene(t)
	b := open(t, s.Admin)
	b.view("denied")
	b.until(`document.querySelector('main').innerText.includes('in use.')`) // acme is near its limit, since newScene
	const drawn = `[1, 2].map((i) => (document.querySelector('.chart').plot?.data[i] ?? []).reduce((a, n) => a + n, 0))`
	b.until(drawn + `[0] > 0`)
	var before, after []float64
	b.do(chromedp.Evaluate(drawn, &before))
	s.at(t, "lighthouse", "GET", "/v1/books/7", 30) // 10 pass
	quoted, _ := json.Marshal(before)
	b.until(fmt.Sprintf(`%s.every((n, i) => n > %s[i])`, drawn, quoted))
	b.do(chromedp.Evaluate(drawn, &after))
	if after[0] <= before[0] || after[1] <= before[1] {
		t.Errorf("the chart showed %v and shows %v after 10 requests were admitted and 20 denied", before, after)
	}
}

// The other views show what they are for, and a bucket can be filled.
func TestAnOperatorLooksAtACaller(t *testing.T) {
	g := gateway(t, "GET /v1/items/{id}\n", []string{"default", "5/h"})
	ask(t, g.URL+"/v1/items/7", 9)
	b := open(t, g.Admin)
	b.view("health")
	b.until(`document.querySelector('main').innerText.includes('headgate_policy_reload_ok')`)
	b.until(`document.querySelector('main b').textContent === 'ready'`)
	b.view("caller?by=address&value=127.0.0.1")
	b.until(`document.querySelector('main').innerText.includes('0 of 5')`)
	b.press("Reset")
	b.press("Fill it")
	b.until(`document.querySelector('main').innerText.includes('5 of 5') || document.querySelector('main').innerText.includes('all of it')`)
	if denied := ask(t, g.URL+"/v1/items/7", 5); denied != 0 {
		t.Errorf("%d of 5 requests were denied after the bucket was filled, want 0", denied)
	}
	b.do(chromedp.Evaluate(`document.querySelector('button[aria-label^="Grant"]').click()`, nil))
	b.do(chromedp.SetValue(`dialog input[type=number]`, "2", chromedp.ByQuery))
	b.fill(`dialog input[type=text]`, "ann")
	b.press("Grant them")
	b.until(`document.querySelector('main').innerText.includes('2 of 5')`)
	if audit := harness.Run(t, g.Dir, "audit"); !strings.Contains(audit, "ann") {
		t.Errorf("the audit does not say who granted:\n%s", audit)
	}
	if denied := ask(t, g.URL+"/v1/items/7", 3); denied != 1 {
		t.Errorf("%d of 3 requests were denied after two were granted, want 1", denied)
	}
	b.view("rules")
	b.do(chromedp.SetValue(`form input:nth-of-type(1)`, "GET", chromedp.ByQuery))
	b.do(chromedp.Evaluate(`{ const f = document.querySelector('main form'); f.querySelectorAll('input')[1].value = '/v1/items/9'; f.requestSubmit(); }`, nil))
	b.until(`document.querySelector('main').innerText.includes('over limit')`)
}

// Names that people and clients choose are shown as what they are.
func TestHostileNamesAreTexts(t *testing.T) {
	hostile := `<script>window.taken = 1</script><img src=x onerror="window.taken = 1">`
	turning := "acme\u202egold"       // right to left from there
	long := strings.Repeat("x", 7900) // with the rest, as long as a template may be
	// An endpoint that is a script, one that is read from right to left, one of 8 KB.
	endpoints := []string{"GET /v1/<script>window.taken=1/{id}", "GET /v1/%E2%80%AE" + "dlog/{id}",
		"GET /v1/" + long + "/{id}"}
	g := gateway(t, "GET /v1/items/{id}\nGET /v1/\"onmouseover=\"alert(1)\n"+strings.Join(endpoints, "\n")+"\n",
		[]string{"default", "1/h", "--name", hostile[:60]},
		[]string{"GET /v1/items/{id}", "2/h", "--project", hostile},
		[]string{"GET /v1/items/{id}", "3/h", "--project", turning})
	ask(t, g.URL+"/v1/items/"+url.PathEscape(hostile)+long, 5)
	b := open(t, g.Admin)
	b.view("denied")
	for path, name := range map[string]string{
		"/v1/%3Cscript%3Ewindow.taken=1/7": "<script>window.taken=1/{id}",
		"/v1/%E2%80%AEdlog/7":              "dlog/{id}",
		"/v1/" + long + "/7":               long + "/{id}",
	} {
		if denied := ask(t, g.URL+path, 4); denied != 3 {
			t.Errorf("%.60s: %d of 4 requests were denied, want 3", path, denied)
		}
		quoted, _ := json.Marshal(name)
		// the last one that was asked for
		b.until(fmt.Sprintf(`document.querySelector('main').innerText.includes(%s)`, quoted))
	}
	for _, view := range []string{"denied?reveal=true", "rules", "try", "changes",
		"caller?by=user&value=" + url.QueryEscape(hostile) + "&project=" + url.QueryEscape(turning)} {
		b.view(view)
		b.until(`document.querySelector('main').innerText.length > 30`)
		b.until(`document.readyState === 'complete'`)
		var taken bool
		var scripts, images int
		var turns, wide bool
		b.do(chromedp.Evaluate(`!!window.taken`, &taken), chromedp.Evaluate(`document.scripts.length`, &scripts),
			chromedp.Evaluate(`document.images.length`, &images),
			chromedp.Evaluate(`document.body.innerText.includes('\u202e')`, &turns),
			chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth + 1`, &wide))
		if taken || scripts != 4 || images != 0 || turns {
			t.Errorf("view %s: a name ran: %v, %d scripts, %d images, turned: %v; want none, the page's own 4, "+
				"none and not", view, taken, scripts, images, turns)
		}
		if wide {
			t.Errorf("view %s: a name makes the page wider than the window", view)
		}
	}
	b.view("rules")
	b.until(`document.querySelector('main').innerText.includes('<script>window.taken')`)
}

// A gateway that wants a token asks for it, keeps it in the tab alone, and shows a reader no names.
func TestATokenIsKeptInTheTab(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "routes.txt"), []byte("GET /v1/items/{id}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "admin.token"), []byte("a-token-that-people-chose\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, dir, "policy", "set", "default", "1/h")
	said := strings.Fields(harness.Run(t, dir, "admin", "token", "create", "reader", "--role", "read"))
	token := said[len(said)-1]
	g := harness.Serve(t, dir, "--upstream", harness.NewUpstream(t).URL, "--routes", "routes.txt", "--admin-token-file",
		"admin.token")
	ask(t, g.URL+"/v1/items/7", 3)
	b := open(t, g.Admin)
	b.view("denied")
	b.until(`!!document.querySelector('dialog[open] input[type=password]')`)
	b.fill(`dialog input`, token)
	b.press("Use it")
	b.until(`document.querySelector('main').innerText.includes('GET /v1/items/{id}')`)
	var cookies string
	var kept int
	b.do(chromedp.Evaluate(`document.cookie`, &cookies), chromedp.Evaluate(`localStorage.length`, &kept))
	if cookies != "" || kept != 0 {
		t.Errorf("the page keeps %q and %d things beyond the tab, want nothing", cookies, kept)
	}
	b.do(chromedp.Click(`input[type=checkbox]`, chromedp.ByQuery))
	b.until(`document.body.innerText.includes('lacks')`)
	if text := b.text("main"); strings.Contains(text, "127.0.0.1") {
		t.Errorf("a reader sees who callers are:\n%s", text)
	}
}

// No view has a fault that axe-core (Deque) finds, wide and narrow, light and dark. Pictures of all of them are left in
// bin/browser.
func TestViewsCanBeReadByEverybody(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	axe, err := os.ReadFile(filepath.Join(root, "bin", "garden", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("%v; `make deps` installs it", err)
	}
	pictures := filepath.Join(root, "bin", "browser")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		t.Fatal(err)
	}
	g := newScene(t)
	_, id, _ := strings.Cut(harness.Run(t, g.Dir, "key", "list", "--project", "acme", "--json"), `"id": "`)
	id, _, _ = strings.Cut(id, `"`)
	b := open(t, g.Admin)
	for _, width := range []int64{1440, 375} {
		for _, scheme := range []string{"light", "dark"} {
			b.do(emulation.SetDeviceMetricsOverride(width, 900, 1, false),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
					Value: scheme}}))
			for _, view := range []struct{ name, address, shows string }{
				{"denied", "denied", "GET /v1/books/{id}"},
				{"rules", "rules", "contract of October"},
				{"rule", "rules?rule=GET+/v1/books/{id}", "10 at once after a silence"},
				{"try", "try?rule=GET+/v1/books/{id}", "requests denied"},
				{"health", "health", "headgate_policy_reload_ok"},
				{"caller", "caller?by=key&value=" + id, "Key server"},
				{"changes", "changes", "contract of October"},
			} {
				if view.name == "rules" {
					view.shows = "orders placed"
				}
				b.view(view.address)
				want, _ := json.Marshal(view.shows)
				b.until(fmt.Sprintf(`document.querySelector('main').innerText.includes(%s)`, want))
				b.look(filepath.Join(pictures, fmt.Sprintf("%s-%d-%s.png", view.name, width, scheme)), string(axe))
			}
			b.budgets(g)
			b.look(filepath.Join(pictures, fmt.Sprintf("sign-in-%d-%s.png", width, scheme)), string(axe))
			b.signIn(g.keys["acme"])
			b.until(`!!document.querySelector('svg.hour')`)
			b.look(filepath.Join(pictures, fmt.Sprintf("budgets-%d-%s.png", width, scheme)), string(axe))
			b.do(chromedp.Click(`button[aria-label="Ask for more than GET /v1/books/{id}"]`, chromedp.ByQuery))
			b.until(`!!document.querySelector('.panel form')`)
			b.look(filepath.Join(pictures, fmt.Sprintf("more-%d-%s.png", width, scheme)), string(axe))
		}
	}
}

// look leaves a picture of what is shown, and complains of what axe-core finds and of what is wider than the window.
func (b *tab) look(picture, axe string) {
	b.Helper()
	var found []struct {
		ID    string   `json:"id"`
		Help  string   `json:"help"`
		Nodes []string `json:"nodes"`
	}
	var beyond bool
	var shot []byte
	b.until(`document.getAnimations().length === 0`)
	b.do(chromedp.Evaluate(axe+"\n;true", nil),
		chromedp.Evaluate(
			`axe.run().then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.map((n) => n.html.slice(0, 200))})))`, &found, awaited),
		chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth + 1`, &beyond),
		chromedp.FullScreenshot(&shot, 100))
	if err := os.WriteFile(picture, shot, 0o644); err != nil {
		b.Fatal(err)
	}
	for _, v := range found {
		b.Errorf("%s: %s (%s): %s", filepath.Base(picture), v.ID, v.Help, strings.Join(v.Nodes, "\n"))
	}
	if beyond {
		b.Errorf("%s is wider than the window", filepath.Base(picture))
	}
}

// awaited has an expression's promise awaited.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
