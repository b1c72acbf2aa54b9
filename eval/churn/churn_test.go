package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// The attacks of the page in small, with the race detector in seconds.
const (
	slots = 2048
	span  = 40 * time.Second
)

func attackOn(t *testing.T, a attack, c contender) outcome {
	t.Helper()
	s, err := c.open(slots)
	if err != nil {
		t.Fatal(err)
	}
	return a.run(s, slots, span)
}

// TestHeadgateAdmitsNobodyMoreThanTheLimit is attack A4 on the table: over-admission under every
// attack is nothing, to the token.
func TestHeadgateAdmitsNobodyMoreThanTheLimit(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			o := attackOn(t, a, contenders[0])
			if o.target > 1 || o.pinned > 1 {
				t.Errorf("targets were admitted %.4f, drained keys %.4f of their limit, want at most 1",
					o.target, o.pinned)
			}
			if o.target < 0.9 || a.pinned > 0 && o.pinned < 0.9 {
				t.Errorf("targets were admitted %.4f, drained keys %.4f of their limit: they lost tokens of their own",
					o.target, o.pinned)
			}
			if a.pinned > 1 && o.lossy == 0 {
				t.Error("nothing was evicted in debt: this shows nothing")
			}
			if denied := o.falseDenials(); a.pinned <= 1.2 && denied > 0.01 {
				t.Errorf("%.2f %% of the takes of legitimate keys were denied, want at most 1 %%", 100*denied)
			}
			if a.pinned == 0 && o.falseDenials() > 0 {
				t.Errorf("%d victims and %d newcomers were denied by one-shot keys, want nobody", o.victims.denied,
					o.newcomers.denied)
			}
		})
	}
}

// TestTheAttacksBreakOthers shows that the attacks are strong enough to find what they look for.
func TestTheAttacksBreakOthers(t *testing.T) {
	for _, c := range contenders[1:] {
		for i, atLeast := range map[int]float64{3: 10, 6: 10} {
			t.Run(c.name+"/"+attacks[i].name, func(t *testing.T) {
				t.Parallel()
				if o := attackOn(t, attacks[i], c); o.target < atLeast {
					t.Errorf("targets were admitted %.2f of their limit, and were known to be admitted %.0f: the "+
						"attack is too weak", o.target, atLeast)
				}
			})
		}
	}
}

// TestNobodyIsStarvedByAnotherLimit is the attack on newcomers, with several limits in one table:
// those of limits that nobody crowds are served, and nobody is denied again who obeyed Retry-After
// once.
func TestNobodyIsStarvedByAnotherLimit(t *testing.T) {
	for i, c := range crowds[:2] {
		for _, over := range overs[1-i : 3-i] {
			t.Run(fmt.Sprintf("%s/%v", c.name, over), func(t *testing.T) {
				t.Parallel()
				o, err := c.run(1<<12, over, 300)
				if err != nil {
					t.Fatal(err)
				}
				if o.admitted > 1 || o.admitted < 0.8 {
					t.Errorf("drained keys were admitted %.3f of their limit", o.admitted)
				}
				for limit := range mixed {
					first, again := o.denied(limit)
					if !crowded(limit) && (first > 0.01 || again > 0) ||
						crowded(limit) && over <= 2.5 && first > 0.01 || o.first[limit].takes < 300 {
						t.Errorf("%+v: of %d newcomers %.2f %% were denied, %.2f %% again", mixed[limit],
							o.first[limit].takes, 100*first, 100*again)
					}
					if estimated := o.estimated[limit]; math.Abs(first-estimated) > 0.02 {
						t.Errorf("%+v: %.2f %% of newcomers were denied, %.2f %% by the table's estimate", mixed[limit],
							100*first, 100*estimated)
					}
				}
			})
		}
	}
}

func TestPageSaysEverything(t *testing.T) {
	p := plan{slots: 256, span: 2 * time.Second, keys: 1 << 12, newcomers: 10}
	results, err := p.attackAll(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	growths, err := growAll(p.keys, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	several, err := p.mixAll(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	text := p.page(results, several, growths, time.Unix(0, start))
	for _, want := range []string{"Measured on 20 November 2026 by `make churn`",
		"2.4 times the slots kept drained | LRU twin", "throttled, LRU", "go-limiter |", "of 512 slots |",
		"logins, all within 20 s | 2.5 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	dec := xml.NewDecoder(bytes.NewReader(chart(results).SVG()))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the chart is no XML: %v", err)
		}
	}
}
