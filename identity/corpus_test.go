package identity_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

// The corpora of others, run against Resolve. Where we answer otherwise, the
// case is listed with the reason, and a listed case that no longer differs is
// an error too.

// difference is our answer where a corpus has another one.
type difference struct {
	client string
	why    string
}

const (
	strictGrammar = "RFC 7239 wants colons and brackets quoted, and IPv6 in brackets: the element is malformed, " +
		"so the client is the hop that reported it"
	lastGood      = "a client is always named: the last address known to be true, where they have none"
	neverLeftmost = "the leftmost hop is what the client chose to send; ours is the one that the trusted peer wrote"
	zoneless      = "zones are removed"
	emptyEndsWalk = "an empty hop was written by a proxy that knew no address; skipping it would believe what " +
		"stands left of it"
	noPeerNoHeader = "without a peer address nothing is trusted; a door on a Unix socket passes a loopback address"
)

// privateRanges are what the frameworks compared here trust by default.
var privateRanges = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16",
	"::1/128", "fc00::/7", "fe80::/10")

// proxy is the trusted peer of cases that name none.
const proxy = "192.0.2.254"

func readTestdata(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// expect compares the client with the corpus, unless a difference is listed.
func expect(t *testing.T, name string, p identity.Principal, theirs string, listed map[string]difference) {
	t.Helper()
	got := "none"
	if p.Client.IsValid() {
		got = p.Client.String()
	}
	want := theirs
	if d, differs := listed[name]; differs {
		if sameAddress(d.client, theirs) {
			t.Errorf("%s: listed as a difference, but %s is what they have", name, theirs)
		}
		want = d.client
		delete(listed, name)
	}
	if !sameAddress(got, want) {
		t.Errorf("%s: client is %s (%s), want %s", name, got, p.Hop, want)
	}
}

// allMet complains about listed differences of cases that are not there.
func allMet(t *testing.T, listed map[string]difference) {
	t.Helper()
	for name := range listed {
		t.Errorf("%s: listed as a difference, but no case has that name", name)
	}
}

func sameAddress(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return a == b || err1 == nil && err2 == nil && x == y
}

// peerAddr reads the peer as a door would.
func peerAddr(text string) netip.Addr {
	if text == "" {
		return netip.MustParseAddr(proxy)
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr()
	}
	a, _ := netip.ParseAddr(text)
	return a
}

func trust(more ...netip.Prefix) []netip.Prefix {
	return append(more, netip.MustParsePrefix(proxy+"/32"))
}

func TestRealclientipCases(t *testing.T) {
	var corpus struct {
		Cases []struct {
			Strategy, Name, Peer, Expected string
			Headers                        map[string][]string
			ExpectConfigError              bool   `json:"expect_config_error"`
			HeaderName                     string `json:"headerName"`
			TrustedRanges                  any    `json:"trustedRanges"`
			TrustedCount                   int    `json:"trustedCount"`
		}
	}
	readTestdata(t, "realclientip.json", &corpus)
	listed := map[string]difference{
		"remote_addr/IPv6 with zone and no port": {"fe80::1111", zoneless},
		"remote_addr/IPv6 with zone and port":    {"fe80::2222", zoneless},

		"rightmost_trusted_range/Many kinds of ranges":                        {proxy, strictGrammar},
		"rightmost_trusted_range/Peer Unix socket: walks header as normal":    {"none", noPeerNoHeader},
		"rightmost_trusted_range/Peer unspecified IP: walks header as normal": {"none", noPeerNoHeader},
		"rightmost_trusted_range/Fail: rightmost non-trusted IP invalid":      {"2.2.2.2", lastGood},

		"rightmost_non_private/IPv6 with port and zone":             {"2607:f8b0:4004:83f::18", zoneless},
		"rightmost_non_private/IPv4-mapped IPv6 in IPv6 (hex) form": {proxy, strictGrammar},
		"rightmost_non_private/Fail: XFF: none acceptable":          {proxy, lastGood},
		"rightmost_non_private/Fail: Forwarded: none acceptable":    {proxy, lastGood},
		"rightmost_non_private/Fail: XFF: no header":                {"9.9.9.9", "an untrusted peer is the client"},

		"rightmost_trusted_count/Fail: bad value at count index": {proxy, lastGood},

		"single_ip_header/Fail: missing header": {proxy, lastGood},
		"single_ip_header/Fail: zero IP":        {proxy, lastGood},

		"leftmost_non_private/IPv4 with no port":                   {"6.6.6.6", neverLeftmost},
		"leftmost_non_private/IPv6 with port":                      {"4.4.4.4", neverLeftmost},
		"leftmost_non_private/IPv6 with no port":                   {proxy, strictGrammar},
		"leftmost_non_private/IPv6 with port and zone":             {"6.6.6.6", neverLeftmost},
		"leftmost_non_private/IPv6 with port and zone, no quotes":  {"6.6.6.6", neverLeftmost},
		"leftmost_non_private/IPv4-mapped IPv6 in IPv6 (hex) form": {"6.6.6.6", neverLeftmost},
		"leftmost_non_private/XFF: leftmost not desirable":         {"5.5.5.5", neverLeftmost},
		"leftmost_non_private/Forwarded: leftmost not desirable":   {proxy, strictGrammar},
		"leftmost_non_private/Fail: XFF: none acceptable":          {proxy, lastGood},
		"leftmost_non_private/Fail: Forwarded: none acceptable":    {proxy, lastGood},
		"leftmost_non_private/Fail: XFF: no header":                {proxy, lastGood},
	}
	strategies := map[string]int{}
	for _, c := range corpus.Cases {
		strategies[c.Strategy]++
		trusted := trust()
		o := identity.Options{ForwardedHeader: c.HeaderName}
		switch c.Strategy {
		case "remote_addr":
			trusted = nil
		case "rightmost_non_private":
			trusted = trust(privateRanges...)
		case "rightmost_trusted_range":
			if c.ExpectConfigError {
				continue // an empty header name, which is our default
			}
			switch ranges := c.TrustedRanges.(type) {
			case string: // CLOUDFLARE_PUBLISHED_RANGES
				trusted = trust(prefixes("103.21.244.0/22", "104.16.0.0/13", "162.158.0.0/15", "2400:cb00::/32",
					"2606:4700::/32")...)
			case []any:
				for _, r := range ranges {
					text := r.(string)
					if !strings.Contains(text, "/") {
						text += "/32"
					}
					trusted = append(trusted, netip.MustParsePrefix(text))
				}
			}
		case "rightmost_trusted_count":
			o.Strategy, o.ProxyCount = identity.TrustedCount, c.TrustedCount
			if c.Name == "Error: negative trustedCount" {
				o.ProxyCount = -999 // the corpus has lost its sign
			}
		case "single_ip_header":
			o.Strategy, o.ClientHeader, o.ForwardedHeader = identity.SingleHeader, c.HeaderName, ""
		case "leftmost_non_private": // no strategy of ours; its vectors are read as they should be
		default:
			t.Fatalf("the corpus has strategy %q", c.Strategy)
		}
		o.TrustedProxies = trusted
		if c.ExpectConfigError {
			if c.HeaderName == "" && o.Strategy != identity.SingleHeader {
				continue // our default
			}
			if _, err := identity.New(o); err == nil {
				t.Errorf("%s/%s: New accepts it, want an error", c.Strategy, c.Name)
			}
			continue
		}
		who := newResolver(t, o)
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peerAddr(c.Peer), Header: header(c.Headers)})
		theirs := c.Expected
		if theirs == "" {
			theirs = "none"
		}
		expect(t, c.Strategy+"/"+c.Name, p, theirs, listed)
	}
	allMet(t, listed)
	if strategies["rightmost_trusted_range"] != 9 || strategies["remote_addr"] != 11 ||
		strategies["rightmost_non_private"] != 8 {
		t.Errorf("the corpus has %v cases by strategy, want 9 by range, 11 by peer, 8 non-private", strategies)
	}
	if strategies["rightmost_trusted_count"] != 4 || strategies["single_ip_header"] != 8 ||
		strategies["leftmost_non_private"] != 12 {
		t.Errorf("the corpus has %v cases by strategy, want 4 by count, 8 with a single header, 12 leftmost",
			strategies)
	}

	// The case that fails for its grammar, in the grammar.
	who := newResolver(t, identity.Options{ForwardedHeader: "Forwarded", TrustedProxies: trust(prefixes(
		"2.2.2.2/32", "2607:f8b0:4004:83f::200e/128", "3.3.0.0/16", "2001:db7::/64", "::ffff:4.4.4.4/124",
		"64:ff9b::188.0.2.128/112")...)})
	p := who.Resolve(t.Context(), identity.Evidence{Peer: peerAddr(""), Header: http.Header{"Forwarded": {
		`For=99.99.99.99, For=4.4.4.8, For="[2607:f8b0:4004:83f::200e]:4747"`,
		`For="2.2.2.2:8883", For="[64:ff9b::188.0.2.200]", For=3.3.5.5, For="[2001:db7::abcd]"`,
	}}})
	expect(t, "Many kinds of ranges, quoted", p, "99.99.99.99", nil)
}

func header(values map[string][]string) http.Header {
	h := http.Header{}
	for name, lines := range values {
		for _, line := range lines {
			h.Add(name, line)
		}
	}
	return h
}

func TestRealclientipForwardedItems(t *testing.T) {
	var corpus struct {
		Items []struct {
			Item, Name string
			Expected   *string
		} `json:"forwarded_items"`
		Deviations []struct {
			Name   string
			Header struct{ Forwarded []string }
			Strict []*string `json:"rfc7239_strict_would_give"`
		} `json:"rfc7239_deviations"`
	}
	readTestdata(t, "realclientip.json", &corpus)
	listed := map[string]difference{
		"IPv6 with port and no quotes":     {"none", strictGrammar},
		"IPv6 with port, quotes, and zone": {"fe80::abcd", zoneless},
		"Multiple IPv6 directives":         {"none", strictGrammar},
	}
	for _, c := range corpus.Items {
		want := orNone(c.Expected)
		if d, differs := listed[c.Name]; differs {
			want = d.client
			delete(listed, c.Name)
		}
		got := identity.ForwardedElements(c.Item)
		if last := text(got[len(got)-1]); !sameAddress(last, want) {
			t.Errorf("%s: the client of %s is %s, want %s", c.Name, c.Item, last, want)
		}
	}

	allMet(t, listed)

	// Read from the left, a string that never ends hides all that follows, also
	// what our own proxies wrote. From the right it hides nothing of theirs.
	fromTheRight := map[string][]string{"Unmatched quote": {"none", "2.2.2.2"}}
	for _, c := range corpus.Deviations {
		var want []string
		for _, s := range c.Strict {
			want = append(want, orNone(s))
		}
		if ours, differs := fromTheRight[c.Name]; differs {
			want = ours
		}
		var got []string
		for _, a := range identity.ForwardedElements(c.Header.Forwarded...) {
			got = append(got, text(a))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: the elements of %q are %v, want %v", c.Name, c.Header.Forwarded, got, want)
		}
	}
}

func orNone(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}

func TestNginxRealip(t *testing.T) {
	var corpus struct {
		Cases []struct {
			Lines []string `json:"header_lines"`
			Peer  string
			Nginx struct {
				Addr string `json:"remote_addr"`
			} `json:"nginx_realip_recursive_on"`
		}
	}
	readTestdata(t, "nginx-realip.json", &corpus)
	if len(corpus.Cases) != 19 {
		t.Fatalf("the corpus has %d cases, want 19", len(corpus.Cases))
	}
	listed := map[string]difference{
		"X-Forwarded-For: 203.0.113.9,":           {"127.0.0.1", emptyEndsWalk},
		"X-Forwarded-For: 203.0.113.9, ,10.0.1.5": {"10.0.1.5", emptyEndsWalk},
		"X-Forwarded-For: ::ffff:203.0.113.9": {"203.0.113.9",
			"nginx keeps IPv4-mapped addresses, for us they are the same client"},
	}
	who := newResolver(t, identity.Options{TrustedProxies: prefixes("127.0.0.1/32", "10.0.1.0/24",
		"2001:db8:ffff::/48")})
	for _, c := range corpus.Cases {
		h := http.Header{}
		for _, line := range c.Lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Add(name, value)
		}
		p := who.Resolve(t.Context(), identity.Evidence{Peer: peerAddr(c.Peer), Header: h})
		expect(t, strings.Join(c.Lines, " | "), p, c.Nginx.Addr, listed)
	}
	allMet(t, listed)
}

func TestRackRails(t *testing.T) {
	var corpus struct {
		Cases []struct {
			Source, Peer, Expected string
			Headers                map[string]string
		}
	}
	readTestdata(t, "rack-rails.json", &corpus)
	const clientIP = "Client-IP is not read, so it cannot contradict"
	listed := map[string]difference{
		"X-Forwarded-For: unknown,192.168.0.1":       {"192.168.0.1", lastGood},
		"X-Forwarded-For: other,unknown,192.168.0.1": {"192.168.0.1", lastGood},
		"X-Forwarded-For: 3.4.5.6,unknown": {proxy,
			"what stands left of an unusable hop is not believed"},
		"X-Forwarded-For: 2001:0db8:85a3:0000:0000:8a2e:0370:7335,unknown": {proxy, "the same"},
		"X-Forwarded-For: 8.8.8.8, fe80::202:b3ff:fe1e:8329": {"8.8.8.8",
			"fe80::/10 is among the ranges trusted here"},
		"X-Forwarded-For: 1.1.1.1":                                 {"1.1.1.1", clientIP},
		"X-Forwarded-For: 2001:0db8:85a3:0000:0000:8a2e:0370:7335": {"2001:db8:85a3::8a2e:370:7335", clientIP},
	}
	for _, c := range corpus.Cases {
		if strings.Contains(c.Peer, ",") {
			// A CGI variable with two addresses; a peer is one, so this is none.
			if p := newResolver(t, identity.Options{}).Resolve(t.Context(),
				identity.Evidence{Peer: peerAddr(c.Peer)}); p.Client.IsValid() {
				t.Errorf("peer %s: client is %v, want none", c.Peer, p.Client)
			}
			continue
		}
		o := identity.Options{TrustedProxies: trust(privateRanges...)}
		name := "no header"
		if line := c.Headers["X-Forwarded-For"]; line != "" {
			name = "X-Forwarded-For: " + line
		}
		if line := c.Headers["Forwarded"]; line != "" {
			o.ForwardedHeader, name = "Forwarded", "Forwarded: "+line
		}
		h := http.Header{}
		for name, line := range c.Headers {
			h.Set(name, line)
		}
		known := listed
		if c.Expected != "ERROR_SPOOF" && listed[name].why == clientIP || sameAddress(listed[name].client, c.Expected) {
			known = nil // rack and rails differ from each other
		}
		p := newResolver(t, o).Resolve(t.Context(), identity.Evidence{Peer: peerAddr(c.Peer), Header: h})
		expect(t, name, p, c.Expected, known)
	}
	allMet(t, listed)
}

func TestRFC7239Examples(t *testing.T) {
	var corpus struct {
		Valid []struct {
			Value    string
			Elements []struct{ For string }
			Last     *string `json:"last_hop_ip"`
		}
		NotConforming []string `json:"not_conforming"`
	}
	readTestdata(t, "rfc7239-examples.json", &corpus)
	for _, c := range corpus.Valid {
		got := identity.ForwardedElements(c.Value)
		if len(got) != len(c.Elements) {
			t.Errorf("%s has %d elements, want %d", c.Value, len(got), len(c.Elements))
		}
		if last := text(got[len(got)-1]); last != orNone(c.Last) {
			t.Errorf("the last hop of %s is %s, want %s", c.Value, last, orNone(c.Last))
		}
	}
	for _, value := range corpus.NotConforming {
		got := identity.ForwardedElements(value)
		if last := got[len(got)-1]; last.IsValid() {
			t.Errorf("the last hop of %s is %v, want none: it does not conform", value, last)
		}
	}
}

// addCorpus passes on every text of the corpora, so that fuzzing starts from
// what others met.
func addCorpus(f *testing.F, add func(string)) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("testdata: %d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var all any
		if err := json.Unmarshal(text, &all); err != nil {
			f.Fatal(err)
		}
		eachText(all, add)
	}
}

func eachText(value any, add func(string)) {
	switch value := value.(type) {
	case string:
		_, header, found := strings.Cut(value, ": ")
		if !found {
			header = value
		}
		add(header)
	case []any:
		for _, v := range value {
			eachText(v, add)
		}
	case map[string]any:
		for _, v := range value {
			eachText(v, add)
		}
	}
}
