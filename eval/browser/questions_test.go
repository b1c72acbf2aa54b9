//go:build long

package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate-io/headgate/eval/harness"
)

// mostActions is how many clicks and inputs an answer may take.
const mostActions = 3

// Each of the six questions that the page is for is answered from its first view with three clicks
// and inputs at most; by a command or two; and as JSON.
func TestSixQuestions(t *testing.T) {
	g := gateway(t, "GET /v1/items/{id}\nPOST /v1/orders\n", []string{"default", "4/h"},
		[]string{"POST /v1/orders", "2/h"})
	ask(t, g.URL+"/v1/items/7", 24)
	b := open(t, g.Admin)
	slide := func() {
		b.until(`!!document.querySelector('input[type=range]')`)
		b.do(
			chromedp.Evaluate(
				`{ const s = document.querySelector('input[type=range]'); s.value = s.max; s.dispatchEvent(new Event('input')); }`, nil))
	}
	command := func(args ...string) string { return harness.Run(t, g.Dir, args...) }
	there := []string{"--server", g.Admin}
	for _, q := range []struct {
		question string
		actions  []func()
		answer   []string // what the page says then
		commands [][]string
		said     string // what a command says
		method   string
		path     string
		body     string
		member   string // and the JSON
	}{
		{"who is denied now?", []func(){func() { b.do(chromedp.Click(`input[type=checkbox]`, chromedp.ByQuery)) }},
			[]string{"127.0.0.1", "GET /v1/items/{id}"},
			[][]string{append([]string{"activity", "--reveal"}, there...)}, "127.0.0.1",
			"GET", "/v1/activity?reveal=true", "", `"address":"127.0.0.1"`},
		{"by which rule, and is it right?", []func(){func() { b.press("default") }},
			[]string{"4 per hour for each principal", "4 at once after a silence", "one every 15m"},
			[][]string{append([]string{"policy", "draw", "default"}, there...)}, "one every 15m",
			"POST", "/v1/explain", `{"method":"GET","target":"/v1/items/7"}`, `"rule":"default"`},
		{"what if the limit were ten times as high?", []func(){func() { b.press("What if") }, slide},
			[]string{"40 per hour", "−20"},
			[][]string{append([]string{"policy", "try", "default", "40/h"}, there...)}, "40 per 1h 0 ",
			"POST", "/v1/try", `{"rules":[{"endpoint":"default","limit":40,"per":"3600s"}]}`, `"no_longer_denied":20`},
		{"are store and fleet well?", []func(){func() { b.press("Health") }},
			[]string{"ready", "headgate_policy_reload_ok"},
			[][]string{append([]string{"ready"}, there...), append([]string{"fleet"}, there...)}, "ok",
			"GET", "/v1/fleet", "", `"state":"ok"`},
		{"what has that caller left?",
			[]func(){func() { b.do(chromedp.Click(`input[type=checkbox]`, chromedp.ByQuery)) },
				func() { b.press("127.0.0.1") }},
			[]string{"0 of 4"},
			[][]string{append([]string{"bucket", "inspect", "GET /v1/items/{id}", "--address", "127.0.0.1"}, there...)},
			"0",
			"POST", "/v1/budgets", `{"address":"127.0.0.1"}`, `"remaining":0`},
		{"what changed? undo it", []func(){func() { b.press("Changes") }, func() {
			b.until(`[...document.querySelectorAll('button')].some((e) => e.textContent.startsWith('Back to version'))`)
			b.do(
				chromedp.Evaluate(
					`[...document.querySelectorAll('button')].find((e) => e.textContent.startsWith('Back to version')).click()`, nil))
		}, func() { b.press("Go back") }},
			[]string{"rollback: 1 removed"},
			[][]string{append([]string{"policy", "history"}, there...)}, "rollback",
			"GET", "/v1/versions", "", `"action":"rollback"`},
	} {
		if len(q.actions) > mostActions {
			t.Errorf("%s takes %d clicks and inputs, want at most %d", q.question, len(q.actions), mostActions)
		}
		b.view("denied")
		b.until(`document.querySelector('main').innerText.includes('GET /v1/items/{id}')`)
		for _, action := range q.actions {
			action()
		}
		for _, answer := range q.answer {
			quoted, _ := json.Marshal(answer)
			b.until(fmt.Sprintf(`document.body.innerText.includes(%s)`, quoted))
		}
		var said string
		for _, args := range q.commands {
			said += command(args...)
		}
		if !strings.Contains(strings.Join(strings.Fields(said), " "), q.said) {
			t.Errorf("%s: the commands say\n%s\nwant %q", q.question, said, q.said)
		}
		r, err := http.NewRequest(q.method, g.Admin+q.path, strings.NewReader(q.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var object json.RawMessage
		if err := json.NewDecoder(answer.Body).Decode(&object); err != nil ||
			!strings.Contains(string(object), q.member) {
			t.Errorf("%s: %s %s = %d %s, %v; want %s", q.question, q.method, q.path, answer.StatusCode, object,
				err, q.member)
		}
		_ = answer.Body.Close()
	}
}

// Under each view stands a command that can be pasted, and says something when it is.
func TestCommandsOfViewsRun(t *testing.T) {
	g := gateway(t, "GET /v1/items/{id}\n", []string{"default", "4/h"},
		[]string{"GET /v1/items/{id}", "9/h", "--project", "it's"})
	ask(t, g.URL+"/v1/items/7", 6)
	binary := harness.Binary(t)
	b := open(t, g.Admin)
	for _, view := range []string{"denied", "rules", "try", "health", "caller?by=address&value=127.0.0.1", "changes"} {
		b.view(view)
		b.until(`document.querySelector('#same code')?.innerText.startsWith('headgate ')`)
		if strings.HasPrefix(view, "caller") {
			b.until(`document.querySelector('#same code').innerText.includes('127.0.0.1')`)
		}
		line := b.text("#same code")
		cmd := exec.Command("sh", "-c", `headgate() { "`+binary+`" "$@"; }; `+line)
		cmd.Dir = g.Dir
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("view %s: %s: %v\n%s", view, line, err, out)
		}
	}
}

// The command for another limit leaves all else of a rule as it is.
func TestTheCommandForALimitKeepsTheRule(t *testing.T) {
	g := gateway(t, "GET /v1/items/{id}\n", []string{"default", "4/h", "--burst", "4", "--algorithm", "sliding_log",
		"--name", "it's", "--refusal", "503 without fields", "--penalty", "10 in 1m0s for 15m0s"})
	ask(t, g.URL+"/v1/items/7", 6)
	b := open(t, g.Admin)
	b.view("try")
	b.until(`[...document.querySelectorAll('main code')].some((e) => e.textContent.startsWith('headgate policy set'))`)
	var line string
	b.do(chromedp.Evaluate(
		`[...document.querySelectorAll('main code')].find((e) => e.textContent.startsWith('headgate policy set')).textContent`,
		&line))
	for _, want := range []string{
		" --algorithm sliding_log", ` --name 'it'\''s'`, " --refusal '503 without fields'", " --penalty '10 in",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%s lacks %s", line, want)
		}
	}
	list := func() string { return harness.Run(t, g.Dir, "policy", "list") }
	before := list()
	line = strings.ReplaceAll(line, " --server "+g.Admin, "") // in the folder of the database
	cmd := exec.Command("sh", "-c", `headgate() { "`+harness.Binary(t)+`" "$@"; }; `+line)
	cmd.Dir = g.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	if after := list(); after != before {
		t.Errorf("after %s the rules are\n%s\nbefore\n%s", line, after, before)
	}
}
