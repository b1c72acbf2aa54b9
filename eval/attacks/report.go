package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
	"github.com/headgate-io/headgate/eval/peers"
)

// report is what stands between the markers.
func report(found []outcome, span time.Duration, nginx string, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make attacks"))
	fmt.Fprintf(&b, "Limiters: this repository; github.com/go-chi/httprate %s with github.com/go-chi/chi/v5 %s; "+
		"github.com/didip/tollbooth/v8 %s; nginx %s. Besides: %s.\n",
		page.Version("github.com/go-chi/httprate"), page.Version("github.com/go-chi/chi/v5"),
		page.Version("github.com/didip/tollbooth/v8"), nginx, peers.Versions())
	fmt.Fprintf(&b, "Every attack lasts about %v and makes %d requests a second.\n\n", span, pace)
	fmt.Fprintf(&b, "### A1: who is shut out, and what it costs\n\n%s\n", lockoutTable(found))
	fmt.Fprintf(&b, "### A2 to A6: what was admitted\n\n%s\n", admittedTable(found))
	fmt.Fprintf(&b, "### Where each setup is documented\n\n%s", setupList(found))
	return b.String()
}

// reportHeld is the same of what a client can hold.
func reportHeld(holding []held, span time.Duration, now time.Time, command string) string {
	return fmt.Sprintf("%sThe gateway may open %d descriptors, with the defaults of `clients`. %d times, %v "+
		"without the attacker and as long with it; the figures for latency are medians of these.\n\n%s",
		page.Conditions(now, command), heldDescriptors, heldRounds, span, heldTable(holding))
}

func lockoutTable(found []outcome) page.Table {
	head := []string{"limiter, as its documentation says"}
	for _, k := range armies {
		head = append(head, fmt.Sprintf("%d %s", k, plural(k, "address", "addresses")))
	}
	t := page.Table{append(head, "addresses that shut the victim out", "requests a second it takes")}
	for _, o := range found {
		if o.lockout == nil {
			continue
		}
		row := []string{bold(o)}
		for _, s := range o.lockout.steps {
			row = append(row, fmt.Sprintf("%.0f %%, %.1f/s", 100*s.victim, s.guesses))
		}
		needed, cost := fmt.Sprintf("more than %d", armies[len(armies)-1]), "–"
		if k := o.lockout.needed(); k > 0 {
			needed = fmt.Sprint(k)
			for _, s := range o.lockout.steps {
				if s.addresses == k {
					cost = fmt.Sprintf("%.0f", s.guesses)
				}
			}
		}
		t = append(t, append(row, needed, cost))
	}
	return t
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func admittedTable(found []outcome) page.Table {
	t := page.Table{{"attack", "limiter, as its documentation says", "sent", "envelope", "admitted", "factor",
		"beyond", "note"}}
	for _, o := range found {
		if o.lockout == nil {
			t = append(t, []string{o.attack, bold(o), fmt.Sprint(o.sent), fmt.Sprintf("%.1f", o.envelope),
				fmt.Sprint(o.admitted),
				fmt.Sprintf("%.2f", o.factor()), fmt.Sprint(o.beyond), cell(o.note)})
		}
	}
	return t
}

// setupList says where the documentation of each limiter shows what was set up.
func setupList(found []outcome) string {
	var b strings.Builder
	listed := map[string]bool{}
	for _, o := range found {
		if !listed[o.setup.String()] {
			listed[o.setup.String()] = true
			fmt.Fprintf(&b, "- %s: %s\n", cell(o.setup.String()), cell(o.setup.source))
		}
	}
	return b.String()
}

// cell is a text that does not end its cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "$", `\$`, "<", "&lt;").Replace(s)
}

func bold(o outcome) string {
	if o.setup.ours() {
		return "**" + cell(o.setup.String()) + "**"
	}
	return cell(o.setup.String())
}

// chart shows the factors, one panel for each attack.
func chart(found []outcome) page.Chart {
	c := page.Chart{Title: "Admitted, relative to the limit (logarithmic; the line is the limit)"}
	highest := 2.0
	for _, o := range found {
		highest = max(highest, o.factorOrNone())
	}
	for _, o := range found {
		if o.lockout != nil {
			continue
		}
		if len(c.Panels) == 0 || c.Panels[len(c.Panels)-1].Title != o.attack {
			c.Panels = append(c.Panels, page.Panel{Title: o.attack, Log: true, Mark: 1, From: 0.1, To: highest})
		}
		p := &c.Panels[len(c.Panels)-1]
		p.Bars = append(p.Bars, page.Bar{
			Label: short(o.setup),
			Value: o.factor(),
			Text:  fmt.Sprintf("%.2f ×", o.factor()),
			Ours:  o.setup.ours(),
		})
	}
	return c
}

func (o outcome) factorOrNone() float64 {
	if o.lockout != nil {
		return 0
	}
	return o.factor()
}

// short is a label that fits the chart.
func short(s setup) string {
	text := strings.NewReplacer("nginx limit_req", "nginx", " (deprecated)", "", "ClientIPFromXFF and ", "",
		"ClientIPFromXFF", "XFF",
		"KeyByEndpoint and chi's", "chi's", "an endpoint for every resource", "every resource", "by address and $",
		"address, $", "by $http_apikey, keys", "key", "HAProxy stick table", "HAProxy", "X-Forwarded-For", "XFF",
		"a trusted hop", "a hop", "AWS WAF, a model", "WAF model",
		"a header as the key", "header as key").Replace(s.String())
	if runes := []rune(text); len(runes) > 28 {
		return string(runes[:27]) + "…"
	}
	return text
}
