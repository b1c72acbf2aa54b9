package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestToolsAreLimited: by both engines, whole, in chunks and after 100 Continue; what reaches the API is what came.
func TestToolsAreLimited(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var got atomic.Value
			got.Store("")
			api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				got.Store(r.Method + " " + r.RequestURI + " " + string(text))
			}))
			defer api.Close()
			routes := filepath.Join(t.TempDir(), "routes.txt")
			if err := os.WriteFile(routes, []byte("POST /mcp\nMCP /mcp/tools/call/report\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := newReloading(t, []policy.Rule{
				{Endpoint: "POST /mcp", Limit: 100, Per: time.Hour},
				{Endpoint: "MCP /mcp/tools/call/report", Limit: 3, Per: time.Hour},
				{Endpoint: policy.Default, Limit: 1e6},
			}, func(c *config.Config) {
				c.Upstream, c.Engine, c.Routes = api.URL, engine, append(c.Routes, routes)
				c.MCP = []config.MCP{{Endpoint: "POST /mcp"}}
			})
			post := func(name, framing string) (status int, answer string) {
				t.Helper()
				got.Store("")
				text := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `"}}`
				head := fmt.Sprintf("Content-Length: %d\r\n%s\r\n%s", len(text), framing, text)
				if framing == "chunked" {
					head = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n9\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", text[:9],
						len(text)-9, text[9:])
				}
				conn, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
					"Content-Type: application/json\r\n"+head)
				reader := bufio.NewReader(conn)
				response, err := http.ReadResponse(reader, nil)
				for err == nil && response.StatusCode == http.StatusContinue { // ours, and the API's
					response, err = http.ReadResponse(reader, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Error(err)
				}
				status, answer = response.StatusCode, string(body)
				if want := "POST /mcp " + text; got.Load() != "" && got.Load() != want {
					t.Errorf("the API got %q, want %q", got.Load(), want)
				}
				return status, answer
			}
			for _, step := range []struct {
				name, framing string
				reaches       bool
			}{
				{"report", "", true}, {`r\u0065port`, "chunked", true}, {"report", "Expect: 100-continue\r\n", true},
				{"report", "", false}, {"report", "Mcp-Session-Id: another\r\n", false}, {"report", "chunked", false},
				{"search", "", true}, {"Report", "chunked", true},
			} {
				status, answer := post(step.name, step.framing)
				reached := got.Load() != ""
				if status != 200 || reached != step.reaches ||
					reached == strings.Contains(answer, `"code":-32029`) {
					t.Errorf("%s, %q: %d %s, reached the API: %v, want %v", step.name, step.framing, status, answer,
						reached, step.reaches)
				}
			}
			r.fails(t, "mcp: openapi or routes has", func(c *config.Config) { c.MCP = nil })
		})
	}
}
