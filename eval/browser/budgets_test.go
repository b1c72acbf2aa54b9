//go:build long

package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate-io/headgate/eval/harness"
)

// budgets opens the page of those who call the API.
func (b *tab) budgets(s *scene) {
	b.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.URL+"/.headgate"))
	b.until(`!!document.querySelector('input[type=password]')`)
}

// signIn shows a credential.
func (b *tab) signIn(credential string) {
	b.Helper()
	b.fill(`input[type=password]`, credential)
	b.press("Look")
}

// A developer with a key sees what is left and the last hour drawn, asks for more, and sees what
// was decided. Nothing of it is kept, and nobody else's is shown.
func TestADeveloperAsksForMore(t *testing.T) {
	s := newScene(t)
	b := open(t, s.Admin)
	b.budgets(s)
	b.signIn("hg_nonsense")
	b.until(`document.querySelector('main .bad')?.innerText.includes('malformed')`)
	b.signIn(s.keys["acme"])
	b.until(`document.querySelector('main').innerText.includes('of project acme')`)
	b.until(`document.querySelector('main').innerText.includes('0 of 10')`)
	b.until(`document.querySelectorAll('svg.hour rect.denied').length > 0 && document.querySelectorAll('svg.hour rect.admitted').length > 0`)
	if text := b.text("main"); strings.Contains(text, "orchard") || strings.Contains(text, "lighthouse") {
		t.Errorf("the page shows what is others':\n%s", text)
	}
	b.do(chromedp.Click(`button[aria-label="Ask for more than GET /v1/books/{id}"]`, chromedp.ByQuery))
	b.fill(`.panel form label:nth-of-type(4) input`, "launch on Friday")
	b.press("Ask for it")
	b.until(`document.querySelector('main').innerText.includes('launch on Friday')`)
	list := harness.Run(t, s.Dir, "request", "list", "--json")
	_, id, _ := strings.Cut(list, `"id": "`)
	id, _, _ = strings.Cut(id, `"`)
	harness.Run(t, s.Dir, "request", "approve", id, "--note", "enjoy")
	b.budgets(s)
	b.signIn(s.keys["acme"])
	b.until(`document.querySelector('main').innerText.includes('approved') && document.querySelector('main').innerText.includes('enjoy')`)
	b.until(`document.querySelector('main').innerText.includes('60 per hour')`)
	var kept string
	b.do(chromedp.Evaluate(`document.cookie + sessionStorage.length + localStorage.length + location.href`, &kept))
	if kept != "00"+s.URL+"/.headgate" {
		t.Errorf("the page keeps %q, want nothing", kept)
	}
}
