package agents

import (
	"context"
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

// TestToolsOfAnAgent: a tool has its limit whatever session calls it, the agent is told when to come back and its
// session lives on, other tools are as before, and what a server tells while it works passes.
func TestToolsOfAnAgent(t *testing.T) {
	var reports atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "api", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "report"}, func(_ context.Context, _ *mcp.CallToolRequest, a asked) (
		*mcp.CallToolResult, any, error) {
		return said(fmt.Sprintf("report %d on %s", reports.Add(1), a.Topic)), nil, nil
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

	dir := t.TempDir()
	for name, text := range map[string]string{
		"routes.txt": "POST /mcp\nGET /mcp\nDELETE /mcp\nMCP /mcp/tools/call/report\n",
		"rules.yaml": "rules:\n" +
			"  - {endpoint: \"MCP /mcp/tools/call/report\", limit: 2, per: 1h}\n" +
			"  - {endpoint: default, limit: 1000, per: 1h}\n  - {endpoint: UNKNOWN, limit: 5}\n",
		"headgate.yaml": "routes: [routes.txt]\nmcp: [{endpoint: POST /mcp}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "import", "rules.yaml", "--db", "sqlite:"+filepath.Join(dir, "headgate.db"))
	gateway := harness.Serve(t, dir, "--upstream", api.URL, "--config", "headgate.yaml")

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
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: gateway.URL + "/mcp"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		return session
	}
	call := func(s *mcp.ClientSession, tool string) (string, error) {
		p := &mcp.CallToolParams{Name: tool, Arguments: asked{"tides"}}
		p.SetProgressToken("p")
		result, err := s.CallTool(ctx, p)
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
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
		got, err := call(step.session, step.tool)
		wrong, fails := strings.CutPrefix(step.want, "!")
		if fails != (err != nil) || !fails && got != step.want || fails && !strings.Contains(err.Error(), wrong) {
			t.Errorf("call %d, of %s: %q, %v, want %q", i, step.tool, got, err, step.want)
		}
	}
	if tools, err := one.ListTools(ctx, nil); err != nil || len(tools.Tools) != 2 {
		t.Errorf("ListTools = %v, %v, want both", tools, err)
	}
	if n := reports.Load(); n != 2 {
		t.Errorf("%d reports were made, want 2", n)
	}
	if !harness.Eventually(10*time.Second, func() bool { return progress.Load() == 6 }) {
		t.Errorf("%d notices of progress arrived, want 6", progress.Load())
	}
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
