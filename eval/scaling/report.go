package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// page is the part of the page that is measured.
func (p plan) page(cells []Cell, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make scaling"))
	fmt.Fprintf(&b, "A rule of %d per second, burst %[1]d; %.0f times as much is sent, for %v in each row.\n\n", p.limit, p.over, p.span)
	b.WriteString("| scope | gateways | traffic | most beyond the promise's burst and rate | bound | of the limit used | calls to the store, a second |\n|---|---:|---|---:|---:|---:|---:|\n")
	for _, c := range cells {
		scope, bound := "`"+c.Scope+"`", fmt.Sprint(c.Bound)
		if c.Bound < 0 {
			scope, bound = c.Scope, "none"
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %s | %.2f | %.0f |\n", scope, c.Replicas, c.Traffic, c.Excess, bound, c.Used, c.Messages)
	}
	return b.String()
}
