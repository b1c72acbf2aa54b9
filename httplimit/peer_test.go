package httplimit_test

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/httplimit"
)

// Peer reads what net/http writes as package netip does, whether it has a way of its own for it or not.
func TestPeerIsWhatNetipReads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	addresses := []string{
		"192.0.2.1:443", "0.0.0.0:0", "255.255.255.255:65535", "10.0.0.9:1", "[2001:db8::1]:80", "[fe80::1%eth0]:80",
		"[::ffff:192.0.2.1]:80", "256.1.1.1:80", "1.1.1.300:80", "01.1.1.1:80", "1.00.1.1:80", "1.1.1.1:65536",
		"1.1.1.1:080", "1.1.1.1:", "1.1.1.1", "1.1.1:80", "1.1.1.1.1:80", "1..1.1:80", ":80", "", "@", "1.1.1.1:80:80",
		"1.1.1:1.80", "1:1.1.1.80", "1.1.1.1:8o", "-1.1.1.1:80", "1.1.1.1:+80", "99999999999999999999.1.1.1:80",
		"1.1.1.1:18446744073709551616", "1.1.1.1:18446744073709551696",
	}
	for range 20_000 {
		at := addresses[rng.IntN(30)]
		if n := rng.IntN(4); n > 0 && at != "" { // and what is nearly one
			cut := rng.IntN(len(at))
			at = at[:cut] + string("0123456789.:[]% "[rng.IntN(16)]) + strings.Repeat(at[cut:cut+1], n-1) + at[cut+n/3:]
		}
		addresses = append(addresses, at)
	}
	for _, at := range addresses {
		want, err := netip.ParseAddrPort(at)
		if err != nil && strings.Contains(at, ":") && (at[0] == '[' || strings.Count(at, ":") == 1) {
			want = netip.AddrPort{}
		} else if err != nil {
			alone, _ := netip.ParseAddr(at)
			want = netip.AddrPortFrom(alone, 0)
		}
		if got := httplimit.Peer(&http.Request{RemoteAddr: at}); got != want.Addr() {
			t.Errorf("Peer of %q is %v, want %v", at, got, want.Addr())
		}
	}
}

func BenchmarkPeer(b *testing.B) {
	for _, at := range []string{"203.0.113.254:54321", "[2001:db8::1]:54321"} {
		b.Run(at, func(b *testing.B) {
			r := &http.Request{RemoteAddr: at}
			for b.Loop() {
				_ = httplimit.Peer(r)
			}
		})
	}
}
