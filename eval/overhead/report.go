package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// The rows. Numbers are those of the table in the paper that this one is made after; letters tell its cases apart.
const (
	rowMatch      = "1a normalise endpoint: match"
	rowDirty      = "1b normalise endpoint: match, escapes and dot segments"
	rowMiss       = "2 normalise endpoint: no match"
	rowToken      = "3a identity: bearer token, seen before"
	rowTokenFirst = "3b identity: bearer token, first time (ES256)"
	rowKey        = "4a identity: API key, one of 1,000 in use"
	rowKeys       = "4b identity: API key, one of all at random"
	rowPeer       = "5a identity: peer address"
	rowHops       = "5b identity: X-Forwarded-For, 3 hops"
	rowLookup     = "6 policy look-up"
	rowReload     = "7 policy reload: read, compile, swap"
	rowHot        = "8a bucket: one key"
	rowContended  = "8b bucket: one key, 2 goroutines"
	rowMany       = "8c bucket: many keys at random"
	rowChurn      = "8d bucket: a new key, table full of debtors"
	rowCheckPeer  = "9a whole decision: address"
	rowCheckKey   = "9b whole decision: API key"
	rowCheckToken = "9c whole decision: bearer token"
	rowHandler    = "9d net/http handler with both header fields, address"
	rowWithout    = "HTTP request over loopback, without the limiter"
	rowWith       = "HTTP request over loopback, with it"
	rowAdded      = "9e added to an HTTP request: the difference"
)

// floors is what the work of a row costs at least, in µs, and what that is: measured on a two-core
// virtual machine before the first line of Headgate was written, without anything around it.
var floors = map[string]struct {
	us   float64
	what string
}{
	rowMatch:      {0.07, "one scan of 40 bytes, one walk over them"},
	rowMiss:       {0.03, "a walk that ends early"},
	rowToken:      {0.45, "SHA-256 of 596 bytes, one map"},
	rowTokenFirst: {70, "one ECDSA verification"},
	rowKey:        {0.19, "HMAC-SHA-256, one map"},
	rowPeer:       {0.042, "netip.ParseAddrPort"},
	rowHops:       {0.12, "three netip.ParseAddr"},
	rowLookup:     {0.038, "one map of pairs of integers"},
	rowHot:        {0.035, "clock, hash, mutex, integers"},
	rowContended:  {0.050, "the cache line moves between two cores"},
	rowMany:       {0.17, "one cache and TLB miss"},
	rowCheckPeer:  {0.25, "the sum of its stages"},
}

// labels are the rows' names as far as they fit beside a bar.
var labels = map[string]string{
	rowMatch: "1a endpoint: clean path", rowDirty: "1b endpoint: dirty path", rowMiss: "2 endpoint: no match",
	rowToken: "3a token, seen before", rowTokenFirst: "3b token, first time", rowKey: "4a API key, one of 1,000",
	rowKeys: "4b API key, one of all", rowPeer: "5a peer address", rowHops: "5b three proxies",
	rowLookup: "6 policy look-up",
	rowHot:    "8a bucket, one key", rowContended: "8b the same, two goroutines", rowMany: "8c bucket, many keys",
	rowChurn:     "8d bucket, new key",
	rowCheckPeer: "9a decision, address", rowCheckKey: "9b decision, API key", rowCheckToken: "9c decision, token",
	rowHandler: "9d net/http handler", rowWithout: "HTTP request, no limiter", rowWith: "HTTP request, limiter",
	rowAdded: "9e the difference",
}

// page is what stands between the markers.
func (p plan) page(found [][]Row, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make overhead"))
	fmt.Fprintf(&b, "%d runs, each a process of its own; %d calls of a stage in a run; %d rules of %d projects, %d "+
		"API keys, %d keys of buckets; "+
		"%d requests a second served meanwhile.\n\n", p.runs, p.samples, p.rules, tenants, p.keys, p.buckets, p.load)
	b.WriteString("Microseconds: median of the runs [least–most].\n\n")
	t := page.Table{{"stage", "P50", "P95", "P99", "floor", "the floor is"}}
	for i, r := range found[0] {
		cell := func(of func(Row) float64) string {
			values := across(found, i, of)
			return fmt.Sprintf("%s [%s–%s]", micro(values[len(values)/2]), micro(values[0]),
				micro(values[len(values)-1]))
		}
		floor, what := "", ""
		if f, ok := floors[r.Name]; ok {
			floor, what = micro(1000*f.us), f.what
		}
		t = append(t, []string{r.Name, cell(func(r Row) float64 { return r.P50 }),
			cell(func(r Row) float64 { return r.P95 }),
			cell(func(r Row) float64 { return r.P99 }), floor, what})
	}
	b.WriteString(t.String())
	return b.String()
}

// across returns one figure of one row in all runs, sorted.
func across(found [][]Row, i int, of func(Row) float64) []float64 {
	values := make([]float64, len(found))
	for run, rows := range found {
		values[run] = of(rows[i])
	}
	slices.Sort(values)
	return values
}

// micro writes nanoseconds as microseconds with three digits or so.
func micro(ns float64) string {
	switch us := ns / 1000; {
	case us >= 100 || us <= -100:
		return fmt.Sprintf("%.0f", us)
	case us >= 10 || us <= -10:
		return fmt.Sprintf("%.1f", us)
	case us >= 1 || us <= -1:
		return fmt.Sprintf("%.2f", us)
	default:
		return fmt.Sprintf("%.3f", us)
	}
}

// chart shows the medians of P50, and how far P99 goes.
func chart(found [][]Row) page.Chart {
	panel := page.Panel{Title: "Microseconds: P50, and a line as far as P99 (logarithmic)", Log: true}
	for i, r := range found[0] {
		p50 := across(found, i, func(r Row) float64 { return r.P50 })
		p99 := across(found, i, func(r Row) float64 { return r.P99 })
		middle, far := p50[len(p50)/2]/1000, p99[len(p99)/2]/1000
		if middle <= 0 || r.Name == rowReload { // a reload is no request's
			continue
		}
		panel.Bars = append(panel.Bars, page.Bar{
			Label: labels[r.Name],
			Value: middle,
			Low:   middle,
			High:  far,
			Text:  micro(1000*middle) + " µs",
			Ours:  true,
		})
	}
	return page.Chart{Title: "What each stage of a request costs inside a running process", Panels: []page.Panel{panel}}
}
