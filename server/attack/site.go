package attack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Site is the one host that is attacked. Its addresses are looked up once, before anything is sent,
// and no other is ever contacted: a name that comes to mean another machine meanwhile changes
// nothing, and redirects are answers like others.
type Site struct {
	Scheme, Host string // Host with its port where the URL gives one
	Addresses    []netip.AddrPort

	Roots *x509.CertPool // that certificates must lead to; nil: the system's

	// Connect makes connections, from an address if that is valid; nil: as the system does.
	Connect func(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error)
}

// Lookup finds the addresses of a name.
type Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

// System is the Lookup of the operating system.
func System(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// Find returns the site of a URL. Only loopback is allowed, and hosts that owned names in full.
// Others are not even looked up.
func Find(ctx context.Context, text string, owned []string, lookup Lookup) (Site, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return Site{},
			fmt.Errorf("URL is %q, want http://HOST or https://HOST with no path: --endpoint says what is asked for",
				text)
	}
	if err := checkOwned(owned); err != nil {
		return Site{}, err
	}
	port, err := portOf(u)
	if err != nil {
		return Site{}, err
	}
	name := u.Hostname()
	mine := slices.ContainsFunc(owned, func(host string) bool { return strings.EqualFold(host, name) })
	refuse := func(why string) (Site, error) {
		return Site{}, fmt.Errorf("%s is %s. If this host is yours to attack, say so: --i-own-this-host %s",
			name, why, name)
	}
	var addresses []netip.Addr
	if literal, err := netip.ParseAddr(name); err == nil {
		addresses = []netip.Addr{literal}
	} else if !mine && !strings.EqualFold(name, "localhost") {
		return refuse("not loopback") // and not even looked up
	} else if addresses, err = lookup(ctx, name); err != nil {
		return Site{}, fmt.Errorf("look up %s: %w", name, err)
	}
	site := Site{Scheme: u.Scheme, Host: u.Host}
	for _, a := range addresses {
		a = a.Unmap()
		switch {
		case a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast():
			return Site{}, fmt.Errorf("%s is %v, which is no server's address", name, a)
		case !a.IsLoopback() && !mine:
			return refuse(fmt.Sprintf("%v, not loopback", a))
		}
		site.Addresses = append(site.Addresses, netip.AddrPortFrom(a, port))
	}
	if len(site.Addresses) == 0 {
		return Site{}, fmt.Errorf("%s has no address", name)
	}
	return site, nil
}

func checkOwned(owned []string) error {
	var errs []error
	for _, host := range owned {
		if host == "" || strings.ContainsAny(host, "*/ ,@") {
			errs = append(errs, fmt.Errorf("--i-own-this-host is %q, want one host name or address, as the URL has it",
				host))
		}
	}
	return errors.Join(errs...)
}

func portOf(u *url.URL) (uint16, error) {
	switch {
	case u.Port() != "":
		var port uint16
		if _, err := fmt.Sscan(u.Port(), &port); err != nil || port == 0 {
			return 0, fmt.Errorf("port is %q, want 1 to 65535", u.Port())
		}
		return port, nil
	case u.Scheme == "https":
		return 443, nil
	}
	return 80, nil
}

// Loopback reports whether connections can come from every address of 127.0.0.0/8: the site is this
// machine, and its loopback network has more than 127.0.0.1, as on Linux.
func (s Site) Loopback(ctx context.Context) bool {
	v4 := false
	for _, a := range s.Addresses {
		v4 = v4 || a.Addr().Is4()
		if !a.Addr().IsLoopback() {
			return false
		}
	}
	if !v4 {
		return false
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", netip.AddrPortFrom(source(0), 0).String())
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

// Dial connects to the first address of the site that answers. from is the address that the
// connection comes from; the zero one leaves that to the system.
func (s Site) Dial(ctx context.Context, from netip.Addr) (net.Conn, error) {
	connect := s.Connect
	if connect == nil {
		connect = dial
	}
	var errs []error
	for _, a := range s.Addresses {
		conn, err := connect(ctx, from, a)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s.Scheme != "https" {
			return conn, nil
		}
		name, _, err := net.SplitHostPort(s.Host)
		if err != nil {
			name = s.Host
		}
		secure := tls.Client(conn, &tls.Config{
			ServerName: strings.Trim(name, "[]"),
			RootCAs:    s.Roots,
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"},
		})
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			errs = append(errs, err)
			continue
		}
		return secure, nil
	}
	return nil, errors.Join(errs...)
}

// dial connects as the system does.
func dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	if from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return dialer.DialContext(ctx, "tcp", to.String())
}
