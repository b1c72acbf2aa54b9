package agents_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/agents"
)

func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "172.15.255.255": true, "172.32.0.0": true, "100.63.255.255": true,
		"223.255.255.255": true,
		"2606:4700::1111": true, "2a00:1450::1": true, "::ffff:1.1.1.1": true, "64:ff9b::1.1.1.1": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.1.2.3": false, "100.64.0.1": false, "127.0.0.1": false,
		"127.9.9.9":       false,
		"169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"192.0.0.8": false,
		"192.0.2.1": false, "198.18.0.1": false, "203.0.113.1": false, "224.0.0.1": false, "240.0.0.1": false,
		"255.255.255.255": false, "::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false,
		"fd12::1": false, "ff02::1": false, "2001:db8::1": false, "2002:7f00:1::": false, "2001::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "64:ff9b::10.0.0.1": false,
		"64:ff9b::169.254.169.254": false,
		"64:ff9b:1::1.1.1.1":       false, "::127.0.0.1": false, "100::1": false,
	} {
		if got := agents.IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("IsPublic(%s) = %t", text, got)
		}
	}
	for address, want := range map[string]bool{"1.1.1.1:443": true, "127.0.0.1:443": false, "[::1]:443": false,
		"[fe80::1%lo]:443": false, "localhost:443": false} {
		if err := agents.CheckAddress(address); (err == nil) != want {
			t.Errorf("CheckAddress(%s) = %v", address, err)
		}
	}
}

// TestDirectoriesAreFetchedFromThePublicInternet: a name that leads to this machine leads nowhere, unless the operator
// has said that it may, and a directory that sends elsewhere is not followed there.
func TestDirectoriesAreFetchedFromThePublicInternet(t *testing.T) {
	asked := 0
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != agents.WellKnown {
			t.Errorf("%s is asked for", r.URL.Path)
		}
		_, _ = io.WriteString(w, `{"keys":[]}`)
	}))
	defer inside.Close()
	sends := httptest.NewServer(http.RedirectHandler(inside.URL+agents.WellKnown, http.StatusFound))
	defer sends.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(inside.URL, "http://"), ":")
	for name, c := range map[string]struct {
		o    agents.DirectoryOptions
		want string
	}{
		"an address": {agents.DirectoryOptions{Origin: inside.URL},
			"127.0.0.1 is not of the public internet"},
		"a name": {agents.DirectoryOptions{Origin: "http://localhost:" + port},
			"is not of the public internet"},
		"where it may": {agents.DirectoryOptions{Origin: inside.URL, Private: true}, ""},
		"somewhere else, if it may": {agents.DirectoryOptions{Origin: sends.URL, Private: true},
			"redirects are not followed"},
		"with TLS, where it has none": {agents.DirectoryOptions{Origin: "https" + strings.TrimPrefix(inside.URL,
			"http"), Private: true}, "HTTP response"},
	} {
		s, err := agents.NewDirectory(c.o, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		before := asked
		err = s.Start(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			(asked > before) != (c.want == "") {
			t.Errorf("%s: %v, asked %d times, want %q", name, err, asked-before, c.want)
		}
	}
	if _, err := agents.NewDirectory(
		agents.DirectoryOptions{Origin: "http://agent.example", Private: true},
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "want https") {
		t.Errorf("a directory without TLS beyond this machine: %v", err)
	}
	// Whatever the environment says, no proxy is asked: it could reach what we may not.
	t.Setenv("HTTP_PROXY", inside.URL)
	t.Setenv("HTTPS_PROXY", inside.URL)
	s, err := agents.NewDirectory(agents.DirectoryOptions{Origin: "https://192.0.2.1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	before := asked
	if err := s.Start(
		t.Context(),
	); err == nil || asked != before ||
		!strings.Contains(err.Error(), "not of the public internet") {
		t.Errorf("with a proxy: %v, asked %d times", err, asked-before)
	}
}
