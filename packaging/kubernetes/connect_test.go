package kubernetes

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestConnect: who runs a command in a pod, attaches to it, forwards a port or asks a pod's server through the API
// server is limited by the rule for that; where it is admitted, bytes come and go. A node's agent needs containers to
// run, so here a server stands for it that takes connections as it does, and sends back what comes.
func TestConnect(t *testing.T) {
	c := start(t)
	w := c.webhook("")
	c.apply("admin", `apiVersion: headgate.io/v1alpha1
kind: RateLimitPolicy
metadata: {name: limits, namespace: headgate}
spec:
  rules:
    - {endpoint: "OPEN /core/namespaces/{namespace}/pods/exec", limit: 1, per: 1h}
    - {endpoint: "OPEN /core/namespaces/{namespace}/pods/attach", limit: 1, per: 1h}
    - {endpoint: "OPEN /core/namespaces/{namespace}/pods/portforward", limit: 1, per: 1h}
    - {endpoint: "OPEN /core/namespaces/{namespace}/pods/proxy", limit: 2, per: 1h}
    - {endpoint: default, limit: 100000, per: 1h}
`)
	eventually(t, "the rules", func() string {
		if n := w.metric("headgate_policy_rules"); n != 5 {
			return fmt.Sprint(n, " rules")
		}
		return ""
	})
	c.asked(w)

	agent := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(out).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n%s\n",
			r.URL.Path)
		line, err := buffered.ReadString('\n')
		if err == nil {
			_, err = io.WriteString(conn, line)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer agent.Close()
	inside := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		fmt.Fprint(out, r.Method, " ", r.URL.Path)
	}))
	inside.Listener.Close()
	address := addressOfMachine(t) // an API server asks no pod at a loopback address
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	inside.Listener = listener
	inside.Start()
	defer inside.Close()

	c.apply("admin", `{apiVersion: v1, kind: Node, metadata: {name: one}}`)
	c.patch("/api/v1/nodes/one/status", fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],
		"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, agent.Listener.Addr().(*net.TCPAddr).Port))
	c.apply("admin", `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop},
		spec: {nodeName: one, containers: [{name: main, image: none}]}}`)
	c.patch("/api/v1/namespaces/shop/pods/p/status", fmt.Sprintf(
		`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%[1]q}]}}`, address))

	for _, one := range []struct{ what, path, at string }{
		{"exec", "exec?command=ls&container=main&stdout=true", "/exec/shop/p/main"},
		{"attach", "attach?container=main&stdout=true", "/attach/shop/p/main"},
		{"portforward", "portforward", "/portForward/shop/p"},
	} {
		path := "/api/v1/namespaces/shop/pods/p/" + one.path
		for _, user := range []string{"bob", "cy"} { // a limit of each
			if got := c.opened(user, "POST", path); got != "101 "+one.at+" hello" {
				t.Errorf("%s, %s's first: %s, want 101 %s hello", one.what, user, got, one.at)
			}
		}
		for _, method := range []string{"POST", "GET"} { // as older and newer clients do
			a := c.do("bob", method, path, "", "")
			if a.code != 429 || a.header.Get("Retry-After") != a.field("details", "retryAfterSeconds") ||
				a.field("reason") != "TooManyRequests" {
				t.Errorf("%s, bob's second, by %s: %d, Retry-After %q\n%s", one.what, method, a.code,
					a.header.Get("Retry-After"), a.body)
			}
		}
	}
	path := fmt.Sprintf("/api/v1/namespaces/shop/pods/p:%d/proxy/x/y",
		inside.Listener.Addr().(*net.TCPAddr).Port)
	for i, want := range []struct {
		code int
		body string
	}{{200, "GET /x/y"}, {200, "GET /x/y"}, {429, ""}} { // a read, which comes nevertheless, since it connects
		a := c.do("bob", "GET", path, "", "")
		if a.code != want.code || want.body != "" && a.body != want.body {
			t.Errorf("a pod's server, request %d: %d %s, want %d %s", i+1, a.code, a.body, want.code, want.body)
		}
	}
	if n := w.metric("headgate_questions_refused_total"); n != 0 {
		t.Errorf("%v questions were not understood, want none", n)
	}
}

// patch changes a part of an object.
func (c *cluster) patch(path, text string) {
	c.t.Helper()
	if a := c.do("admin", "PATCH", path, "application/merge-patch+json", text); a.code != 200 {
		c.t.Fatalf("%s: %d %s", path, a.code, a.field("message"))
	}
}

// opened asks for a connection through the API server, says hello on it, and returns the status and what came.
func (c *cluster) opened(user, method, path string) string {
	c.t.Helper()
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.port),
		c.http.Transport.(*http.Transport).TLSClientConfig.Clone())
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
		method, path, user)
	from := bufio.NewReader(conn)
	got, err := http.ReadResponse(from, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if got.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(got.Body)
		return fmt.Sprint(got.StatusCode, " ", string(text))
	}
	where, err := from.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		c.t.Fatal(err)
	}
	said, err := from.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	return "101 " + strings.TrimSpace(where) + " " + strings.TrimSpace(said)
}

// addressOfMachine is one that is no loopback address.
func addressOfMachine(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Fatalf("addresses %v, want one that others could reach", all)
	return ""
}
