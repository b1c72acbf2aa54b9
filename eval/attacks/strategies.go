package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate/server/attack"
)

// The ways in which Headgate finds the client behind proxies, as docs/addresses.md has them.

func addressSetup(name, settings string) setup {
	return setup{"Headgate", name, "[addresses](../addresses.md)", func(l *lab, lim limit) (string, error) {
		return gateWith(l, settings, routes, [][]string{lim.rule("default"), lim.rule("UNKNOWN")})
	}}
}

var (
	headgateCount = addressSetup("trusted_count", `
client_address:
  strategy: trusted_count
  proxies: 1
`)
	headgateSingle = addressSetup("single_header", `
client_address:
  strategy: single_header
  header: X-Real-IP
`)
	headgateBalancer = addressSetup("proxy_protocol", fmt.Sprintf(`
proxy_protocol:
  from: [%s]
`, balancer))
)

// preface is a PROXY header, version 1, that says for whom a connection is.
func preface(client netip.Addr) string {
	return fmt.Sprintf("PROXY TCP4 %s 192.0.2.1 40000 80\r\n", client)
}

// spoofBalanced claims another address in every request, over connections that a balancer announces truly.
func spoofBalanced(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	announced := func(r attack.Request) shot {
		return shot{Request: r, from: balancer, preface: preface(netip.MustParseAddr("203.0.113.7"))}
	}
	return search(l, url, lim, span, attack.Headers.Families, announced, always), nil
}

// spoofPreface announces another client on every connection, and is no balancer.
func spoofPreface(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	r := l.fire(barrage{url, count(span), pace, func(i int) shot {
		return shot{
			Request: plain,
			from:    attacker,
			preface: preface(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})),
		}
	}})
	return judge(r, lim, always), nil
}
