package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/headgate-io/headgate/eval/peers"
)

// The limiters of the paper's Table 1 that stand beside an API as Headgate does.

// place is where a peer is put: behind the operator's proxy, or not.
func (l *lab) place(lim limit, hop bool) (peers.Place, error) {
	dir, err := l.folder()
	return peers.Place{
		Dir:   dir,
		API:   strings.TrimPrefix(l.api.URL, "http://"),
		Limit: peers.Limit{Rate: lim.rate, Burst: lim.burst},
		Hop:   hop,
	}, err
}

func peerSetup(limiter, name, source string, hop bool, start func(l *lab, p peers.Place) (*peers.Server, error)) setup {
	return setup{limiter, name, source, func(l *lab, lim limit) (string, error) {
		p, err := l.place(lim, hop)
		if err != nil {
			return "", err
		}
		s, err := start(l, p)
		if err != nil {
			return "", err
		}
		l.atEnd(s.Stop)
		return s.URL(), nil
	}}
}

func envoyLocal(name string, hop bool, most int) setup {
	return peerSetup("Envoy local", name, "“Local rate limit”, “Rate limit filter with dynamic descriptors”", hop,
		func(_ *lab, p peers.Place) (*peers.Server, error) {
			return peers.EnvoyLocal(p, most)
		})
}

// envoyGlobal has a service and a Redis of its own.
func envoyGlobal(name string, hop bool) setup {
	return peerSetup("Envoy global", name, "“Rate limit”, and the README of envoyproxy/ratelimit", hop,
		func(l *lab, p peers.Place) (*peers.Server, error) {
			binary, err := peers.BuildRateLimit()
			if err != nil {
				return nil, err
			}
			store, err := l.redisCell()
			if err != nil {
				return nil, err
			}
			dir, err := l.folder()
			if err != nil {
				return nil, err
			}
			service, err := peers.StartRateLimit(binary, dir, store,
				fmt.Sprintf("- {key: remote_address, rate_limit: {unit: second, requests_per_unit: %d}}\n", p.Rate))
			if err != nil {
				return nil, err
			}
			l.atEnd(service.Stop)
			return peers.EnvoyGlobal(p, service.At)
		})
}

func haproxy(name string, hop bool, size string) setup {
	return peerSetup("HAProxy stick table", name, "“Four examples of HAProxy rate limiting”, sliding window", hop,
		func(_ *lab, p peers.Place) (*peers.Server, error) {
			return peers.HAProxy(p, size)
		})
}

// redisCell starts a Redis with redis-cell, and returns where it listens.
func (l *lab) redisCell() (string, error) {
	dir, err := l.folder()
	if err != nil {
		return "", err
	}
	s, err := peers.Redis(dir)
	if err != nil {
		return "", err
	}
	l.atEnd(s.Stop)
	return s.At, nil
}

// asking is a proxy that asks by the client's address, which it finds by chi's ClientIPFromXFF.
func (l *lab) asking(allowed func(r *http.Request, address string) (bool, error),
	address func(*http.Request) string) (string, error) {
	next := goProxy(l)
	return l.serve(middleware.ClientIPFromXFF(proxy.String() +
		"/32")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch ok, err := allowed(r, address(r)); {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case !ok:
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			next.ServeHTTP(w, r)
		}
	})))
}

var redisCell = setup{"redis-cell", "ClientIPFromXFF", "README, “Usage”", func(l *lab, lim limit) (string, error) {
	at, err := l.redisCell()
	if err != nil {
		return "", err
	}
	cell, err := peers.NewCell(at)
	if err != nil {
		return "", err
	}
	l.atEnd(cell.Close)
	return l.asking(func(r *http.Request, address string) (bool, error) {
		return cell.Allowed(r.Context(), address, peers.Limit{Rate: lim.rate, Burst: lim.burst})
	}, func(r *http.Request) string { return middleware.GetClientIP(r.Context()) })
}}

// wafSetup is the model of AWS WAF, before the same proxy.
func wafSetup(name string, address func(*http.Request) string) setup {
	return setup{"AWS WAF, a model", name,
		"AWS WAF Developer Guide, “Rate-based rule caveats”, “Using forwarded IP addresses”",
		func(l *lab, lim limit) (string, error) {
			waf := peers.NewWAF(peers.Limit{Rate: lim.rate, Burst: lim.burst}, time.Now)
			return l.asking(func(_ *http.Request, a string) (bool, error) { return waf.Allowed(a), nil }, address)
		}}
}

var (
	envoyAddr      = envoyLocal("by address", false, 10_000)
	envoyHop       = envoyLocal("by address, a trusted hop", true, 10_000)
	envoyDefault   = envoyLocal("a trusted hop, 20 descriptors", true, 0)
	envoyGlobally  = envoyGlobal("by address", false)
	envoyGlobalHop = envoyGlobal("by address, a trusted hop", true)
	haproxyAddr    = haproxy("by src", false, "100k")
	haproxyHop     = haproxy("by X-Forwarded-For", true, "100k")
	haproxySmall   = haproxy("by X-Forwarded-For, size 1k", true, "1k")
	wafAddr        = wafSetup("by source address", func(r *http.Request) string {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return host
	})
	wafForwarded = wafSetup("by X-Forwarded-For", func(r *http.Request) string { // the first address in it
		first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ",")
		if a, err := netip.ParseAddr(strings.TrimSpace(first)); err == nil {
			return a.String()
		}
		return "" // which its fallback behaviour decides over; here it counts as one
	})

	byAddress = []setup{envoyAddr, envoyGlobally, haproxyAddr, redisCell, wafAddr}
)
