package identity_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

func TestForwarded(t *testing.T) {
	for _, c := range []struct {
		value, want string
		stop        identity.Stop
	}{
		{`for=1.1.1.1`, "1.1.1.1", identity.StopUntrusted},
		{`FOR="1.1.1.1"`, "1.1.1.1", identity.StopUntrusted},
		{`for="1.1.1.1:_port"`, "1.1.1.1", identity.StopUntrusted},
		{`for="[2001:db8::7]"`, "2001:db8::7", identity.StopUntrusted},
		{`for="[2001:db8::7]:_p"`, "2001:db8::7", identity.StopUntrusted},
		{`for="[::ffff:1.1.1.1]"`, "1.1.1.1", identity.StopUntrusted},
		{`for="\1.1.1.1"`, "1.1.1.1", identity.StopUntrusted},
		{`;for=1.1.1.1;`, "1.1.1.1", identity.StopUntrusted},
		{`for=1.1.1.1 ; proto=https`, "1.1.1.1", identity.StopUntrusted},
		{`proto=https;by="a,b;c=\"d\",";for=1.1.1.1;x=y`, "1.1.1.1", identity.StopUntrusted},
		{`for=1.1.1.1;secret="\\", for=10.0.0.2;secret="\\\""`, "1.1.1.1", identity.StopUntrusted},
		{`for=1.1.1.1, for=10.0.0.2;host="a,b", for=10.0.0.3`, "1.1.1.1", identity.StopUntrusted},
		{"for=1.1.1.1\nfor=10.0.0.2\nfor=10.0.0.3", "1.1.1.1", identity.StopUntrusted},
		{`for=10.0.0.2`, "10.0.0.2", identity.StopAllTrusted},

		{``, "10.0.0.1", identity.StopEmpty},
		{`for=1.1.1.1,`, "10.0.0.1", identity.StopEmpty},
		{`for=1.1.1.1, proto=https`, "10.0.0.1", identity.StopEmpty},
		{`for=1.1.1.1, for=unknown`, "10.0.0.1", identity.StopUnknown},
		{`for=1.1.1.1, for="unknown:80"`, "10.0.0.1", identity.StopUnknown},
		{`for=1.1.1.1, for="_x"`, "10.0.0.1", identity.StopObfuscated},
		{`for=1.1.1.1, for=`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1, for=""`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1, 2.2.2.2`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1:80`, "10.0.0.1", identity.StopMalformed},
		{`for=[2001:db8::7]`, "10.0.0.1", identity.StopMalformed},
		{`for="2001:db8::7"`, "10.0.0.1", identity.StopMalformed},
		{`for="[1.1.1.1]"`, "10.0.0.1", identity.StopMalformed},
		{`for =1.1.1.1`, "10.0.0.1", identity.StopMalformed},
		{`for= 1.1.1.1`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1;for=1.1.1.1`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1;proto=a;Proto=b`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1 proto=a`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1;proto`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1;@=x`, "10.0.0.1", identity.StopMalformed},
		{`for=" 1.1.1.1"`, "10.0.0.1", identity.StopMalformed},
		{`for="1.1.1.1`, "10.0.0.1", identity.StopMalformed},
		{`for="1.1.1.1\"`, "10.0.0.1", identity.StopMalformed},
		{`for="1.1.1.1\`, "10.0.0.1", identity.StopMalformed},
		{`for=1.1.1.1"`, "10.0.0.1", identity.StopMalformed},
		{"for=\"1.1.1.1\x7f\"", "10.0.0.1", identity.StopMalformed},
		{"for=1.1.1.1;by=\"\x00\"", "10.0.0.1", identity.StopMalformed},
		{"for=1.1.1.1;by=\"\\\x00\"", "10.0.0.1", identity.StopMalformed},
		{"for=\"1.1.1.1\\\x00\"", "10.0.0.1", identity.StopMalformed},
	} {
		who := newResolver(t, identity.Options{TrustedProxies: proxies, ForwardedHeader: "Forwarded"})
		h := http.Header{"Forwarded": strings.Split(c.value, "\n")}
		p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: h})
		if text(p.Client) != c.want || p.Hop.Stop != c.stop {
			t.Errorf("Forwarded: %s: client %v, %s; want %s, %s", c.value, p.Client, p.Hop.Stop, c.want, c.stop)
		}
	}
}

// TestClientCannotHideBehindItsProxy: an open quote of the client's makes
// nothing of what the proxy appended unreadable, so that the client would be
// taken for the proxy.
func TestClientCannotHideBehindItsProxy(t *testing.T) {
	who := newResolver(t, identity.Options{TrustedProxies: proxies, ForwardedHeader: "Forwarded"})
	for _, sent := range []string{`for="`, `for="6.6.6.6`, `"`, `\`, `\"`, `for="\`, `for="a\\"`, `for="x";y="`, `,`,
		`;`, "\xff", `for="a", by="`} {
		for _, appended := range []string{`for=1.1.1.1`, `for="1.1.1.1:80"`, `for=1.1.1.1;host="a,b"`,
			`host="\"";for=1.1.1.1`} {
			h := http.Header{"Forwarded": {sent + ", " + appended}}
			p := who.Resolve(t.Context(), identity.Evidence{Peer: netip.MustParseAddr("10.0.0.1"), Header: h})
			if text(p.Client) != "1.1.1.1" {
				t.Errorf("Forwarded: %s: client is %v (%s), want 1.1.1.1", h["Forwarded"][0], p.Client, p.Hop)
			}
		}
	}
}

func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{
		"", "for=1.1.1.1", `for="[2001:db8::7]:443", for=10.0.0.2;by="a,b"`, `for="1.1.1.1\"`, `for="`, `for=_x`,
		`for=unknown`, "for=1.1.1.1\nfor=10.0.0.2",
		`for="\1.1.1.1"`, `;;for=1.1.1.1;;`, `for=1.1.1.1;for=2.2.2.2`, `x="\\\"\\",for="[fe80::1%z]"`,
	} {
		f.Add(seed)
	}
	addCorpus(f, func(line string) { f.Add(line) })
	who := newResolver(f, identity.Options{TrustedProxies: proxies, ForwardedHeader: "Forwarded"})
	peer := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, value string) {
		lines := strings.Split(value, "\n")
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: http.Header{"Forwarded": lines}})
		checkClient(t, who, p, peer)
		if p.Hop.Stop != identity.StopTooLong {
			if got, want := identity.ForwardedElements(lines...), leftToRight(lines); want != nil &&
				!slices.Equal(got, want) {
				t.Errorf("Forwarded: %q: elements are %v, want %v", lines, got, want)
			}
		}
		for _, appended := range []string{"for=203.0.113.99", `for="[2001:db8::99]:443"`,
			`for=203.0.113.99;host="\\,\"";by=_a`} {
			last := slices.Clone(lines)
			last[len(last)-1] += ", " + appended
			for _, lines := range [][]string{last, append(lines, appended)} {
				p := who.Resolve(t.Context(), identity.Evidence{Peer: peer, Header: http.Header{"Forwarded": lines}})
				if p.Hop.Index != 1 || p.Hop.Stop != identity.StopUntrusted ||
					!strings.HasSuffix(text(p.Client), "99") {
					t.Errorf("Forwarded: %q: client is %v (%s), want what the proxy appended", lines, p.Client, p.Hop)
				}
			}
		}
	})
}

// leftToRight splits lines at their commas from the left, as a grammar reads,
// and returns the address of each element by itself; nil if quotes are not
// where the grammar allows them or do not pair up, where reading from the
// right is meant to differ.
func leftToRight(lines []string) (all []netip.Addr) {
	for _, line := range lines {
		begin, quoted := 0, false
		for i := 0; i < len(line); i++ {
			switch c := line[i]; {
			case c == '\\' && !quoted, c == '"' && !quoted && (i == 0 || line[i-1] != '='):
				return nil
			case c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case c == ',' && !quoted:
				all = append(all, identity.ForwardedElements(line[begin:i])...)
				begin = i + 1
			}
		}
		if quoted {
			return nil
		}
		all = append(all, identity.ForwardedElements(line[begin:])...)
	}
	return all
}
