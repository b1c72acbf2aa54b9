package agents

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate-io/headgate/eval/harness"
)

type asked struct {
	Topic string `json:"topic"`
}

// tools is an MCP server with two tools, and a gateway before it.
type tools struct {
	reports atomic.Int64 // that were made
	dir     string
	keys    map[string]string // by the names of their agents
	gateway *harness.Gateway
}

// serveTools starts both; settings are lines of the gateway's configuration, and agents those with API keys.
func serveTools(t *testing.T, settings string, agents ...string) *tools {
	t.Helper()
	s := &tools{dir: t.TempDir(), keys: map[string]string{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "api", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "report"}, func(_ context.Context, _ *mcp.CallToolRequest, a asked) (
		*mcp.CallToolResult, any, error) {
		return said(fmt.Sprintf("report %d on %s", s.reports.Add(1), a.Topic)), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, func(ctx context.Context, r *mcp.CallToolRequest, a asked) (
		*mcp.CallToolResult, any, error) {
		for i := range 3 {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)})
			if err != nil {
				return nil, nil, err
			}
		}
		return said("found " + a.Topic), nil, nil
	})
	api := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		api.CloseClientConnections() // a client may still listen
		api.Close()
	})
	for name, text := range map[string]string{
		"routes.txt": "POST /mcp\nGET /mcp\nDELETE /mcp\nMCP /mcp/tools/call/report\n",
		"rules.yaml": "rules:\n" +
			"  - {endpoint: \"MCP /mcp/tools/call/report\", limit: 2, per: 1h}\n" +
			"  - {endpoint: default, limit: 1000, per: 1h}\n  - {endpoint: UNKNOWN, limit: 5}\n",
		"headgate.yaml": "routes: [routes.txt]\nmcp: [{endpoint: POST /mcp}]\n" + settings,
	} {
		s.write(t, name, []byte(text))
	}
	harness.Run(t, s.dir, "policy", "import", "rules.yaml", "--db", "sqlite:"+filepath.Join(s.dir, "headgate.db"))
	for _, name := range agents {
		words := strings.Fields(harness.Run(t, s.dir, "key", "create", "--project", "acme", "--name", name))
		s.keys[name] = words[len(words)-1]
	}
	s.gateway = harness.Serve(t, s.dir, "--upstream", api.URL, "--config", "headgate.yaml")
	return s
}

func (s *tools) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// call calls a tool, and returns what it says.
func call(ctx context.Context, s *mcp.ClientSession, tool string) (string, error) {
	p := &mcp.CallToolParams{Name: tool, Arguments: asked{"tides"}}
	p.SetProgressToken("p")
	result, err := s.CallTool(ctx, p)
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

// TestToolsOfAnAgent: a tool has its limit whatever session calls it, the agent is told when to come back and its
// session lives on, other tools are as before, and what a server tells while it works passes.
func TestToolsOfAnAgent(t *testing.T) {
	served := serveTools(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var progress atomic.Int64
	connect := func() *mcp.ClientSession {
		t.Helper()
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) {
				progress.Add(1)
			},
		})
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: served.gateway.URL + "/mcp"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		return session
	}
	one, two := connect(), connect()
	for i, step := range []struct {
		session *mcp.ClientSession
		tool    string
		want    string // of the answer, or of the error behind a !
	}{
		{one, "report", "report 1 on tides"},
		{two, "report", "report 2 on tides"},
		{one, "report", "!Limit MCP /mcp/tools/call/report: 2 per 1h, burst 2. Retry in "},
		{two, "report", "!Retry in "},
		{connect(), "report", "!Retry in "},
		{one, "search", "found tides"},
		{two, "search", "found tides"},
		{one, "nothing", "!nothing"}, // the server's own words
		{one, "report", "!Retry in "},
	} {
		got, err := call(ctx, step.session, step.tool)
		wrong, fails := strings.CutPrefix(step.want, "!")
		if fails != (err != nil) || !fails && got != step.want || fails && !strings.Contains(err.Error(), wrong) {
			t.Errorf("call %d, of %s: %q, %v, want %q", i, step.tool, got, err, step.want)
		}
	}
	if tools, err := one.ListTools(ctx, nil); err != nil || len(tools.Tools) != 2 {
		t.Errorf("ListTools = %v, %v, want both", tools, err)
	}
	if n := served.reports.Load(); n != 2 {
		t.Errorf("%d reports were made, want 2", n)
	}
	if !harness.Eventually(time.Minute, func() bool { return progress.Load() == 6 }) {
		t.Errorf("%d notices of progress arrived, want 6", progress.Load())
	}
}

// TestAgentsByTheirKeys: over HTTP/2, each agent has a budget of its own by its API key, whatever session it opens;
// and one that has used up its own can use no other's.
func TestAgentsByTheirKeys(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // for its certificate
	defer certified.Close()
	key, err := x509.MarshalPKCS8PrivateKey(certified.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certified.Certificate().Raw},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	served := serveTools(t, fmt.Sprintf("tls: {cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem}\n", dir),
		"reader", "writer")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	agent := func(name string) *keyed {
		roots := x509.NewCertPool()
		roots.AddCert(certified.Certificate())
		return &keyed{key: served.keys[name], next: &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	}
	connect := func(a *keyed) *mcp.ClientSession {
		t.Helper()
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: served.gateway.URL + "/mcp",
			HTTPClient: &http.Client{Transport: a}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		return session
	}
	reader, writer := agent("reader"), agent("writer")
	one, two := connect(reader), connect(writer)
	for i, step := range []struct {
		session *mcp.ClientSession
		refused bool
	}{
		{one, false}, {one, false}, {one, true},
		{two, false}, {connect(reader), true}, {two, false}, {two, true}, {connect(writer), true}, {one, true},
	} {
		got, err := call(ctx, step.session, "report")
		if (err != nil) != step.refused || err != nil && !strings.Contains(err.Error(), "Retry in ") {
			t.Errorf("call %d: %q, %v, refused should be %v", i, got, err, step.refused)
		}
	}
	for name, a := range map[string]*keyed{"reader": reader, "writer": writer} {
		if n := a.older.Load(); n != 0 {
			t.Errorf("%d answers to the %s came by an older version of HTTP", n, name)
		}
	}
	if n := served.reports.Load(); n != 4 {
		t.Errorf("%d reports were made, want 2 for each", n)
	}
}

// keyed sends a key with each request, and counts the answers that do not come by HTTP/2.
type keyed struct {
	key   string
	next  http.RoundTripper
	older atomic.Int64
}

func (k *keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Api-Key", k.key)
	answer, err := k.next.RoundTrip(r)
	if err == nil && answer.ProtoMajor != 2 {
		k.older.Add(1)
	}
	return answer, err
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
