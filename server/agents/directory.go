package agents

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/server/token"
)

// WellKnown is the path of a directory of keys.
const WellKnown = "/.well-known/http-message-signatures-directory"

// DirectoryOptions says where the keys of an agent come from.
type DirectoryOptions struct {
	Origin string // of the directory, as token.Origin writes it

	// Private lets it be at an address that is not of the public internet, and there, on this machine, without TLS.
	Private bool

	Refresh, MinRefetch, MaxStale time.Duration // as in token.SourceOptions
}

// NewDirectory returns where the keys of an agent come from, without keys yet. What it serves is bounded in size and
// time, and redirects are not followed. Unless Private is set, it connects to addresses of the public internet alone,
// by no proxy: the name is the operator's choice, but where it leads is that of whoever has the domain.
func NewDirectory(o DirectoryOptions, log *slog.Logger) (*token.Source, error) {
	return token.NewSource(token.SourceOptions{
		JWKSURL: o.Origin + WellKnown, Directory: true, Of: "the agent " + o.Origin,
		Refresh: o.Refresh, MinRefetch: o.MinRefetch, MaxStale: o.MaxStale, Client: client(o.Private),
		Log: log,
	})
}

func client(private bool) *http.Client {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	if !private {
		dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return checkAddress(address)
		}
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 5 * time.Second,
		MaxIdleConns: 1, IdleConnTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
	}}
}

// checkAddress refuses to connect to what is not of the public internet. It is asked about the address that is
// connected to, after names were looked up.
func checkAddress(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if a := to.Addr(); !IsPublic(a) {
		return fmt.Errorf("%v is not of the public internet, want an address that is", a)
	}
	return nil
}

var (
	translated = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	global     = netip.MustParsePrefix("2000::/3")

	// special are the networks of the registries of RFC 6890 in which nobody has a public server.
	special = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "224.0.0.0/3", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// IsPublic reports whether an address is one of the public internet.
func IsPublic(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	if a = a.Unmap(); translated.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return a.Is4() || global.Contains(a)
}
