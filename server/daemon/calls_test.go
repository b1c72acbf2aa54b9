package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestBatchesAreCounted: by both engines, whole or in chunks; what reaches the API is what was counted, byte for byte,
// and a reload changes what may be held.
func TestBatchesAreCounted(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var got atomic.Value
			got.Store("")
			api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				got.Store(string(text))
			}))
			defer api.Close()
			r := newReloading(t, []policy.Rule{
				{Endpoint: "POST /v1/items", Limit: 20, Per: time.Hour}, {Endpoint: policy.Default, Limit: 1e6},
			}, func(c *config.Config) {
				c.Upstream, c.Engine = api.URL, engine
				c.Batches = []config.Batch{{Endpoint: "POST /v1/items", MaxParts: 4}}
			})
			post := func(text string, chunked bool) int {
				t.Helper()
				got.Store("")
				framing := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text)
				if chunked {
					framing = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n1\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n",
						text[:1], len(text)-1, text[1:])
				}
				status, _ := answerTo(t, r.gate,
					"POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+framing)
				if status == 200 && got.Load() != text {
					t.Errorf("the API got %q, want %q", got.Load(), text)
				}
				if status != 200 && got.Load() != "" {
					t.Errorf("%d, and the API got %q", status, got.Load())
				}
				return status
			}
			for _, step := range []struct {
				text    string
				chunked bool
				want    int
			}{
				{`[1, 2,3,{"a":[1,2]}]`, false, 200},
				{"[1,\n2,3,4]", true, 200},
				{`[1,2,3,4,5]`, false, 413},
				{`[1,2,3,4,5]`, true, 413},
				{`[1,2`, false, 400},
				{`[1,2,3,4]`, false, 200},
				{`[1,2,3,4]`, true, 200},
				{`[1,2,3]`, true, 200},
				{`[1,2]`, false, 429},
				{`{"method":"a"}`, true, 200},
				{`{"method":"a"}`, true, 429},
			} {
				if status := post(step.text, step.chunked); status != step.want {
					t.Errorf("%s: %d, want %d", step.text, status, step.want)
				}
			}
			if _, page := call(t, "GET", r.admin+"/metrics", ""); !strings.Contains(page,
				`headgate_calls_total{fault="many"} 2`) ||
				!strings.Contains(page, `headgate_calls_total{fault="none"} 8`) {
				t.Error("the metrics do not tell of two bodies that held too many, and eight that were counted")
			}
			r.reloadsTo(t, "batches", func(c *config.Config) {
				c.Batches = []config.Batch{{Endpoint: "POST /v1/items",
					Batches: "refuse"}}
			})
			if status := post(`[1,2]`, false); status != 413 {
				t.Errorf("%d once batches are refused, want 413", status)
			}
			r.fails(t, "batches[0]: endpoint is", func(c *config.Config) {
				c.Batches = []config.Batch{{Endpoint: "POST /nowhere"}}
			})
		})
	}
}

// TestBodiesLeaveRoomForOthers: what one address sends and does not end leaves room for what another one sends, by both
// engines; a reload makes room while those are under way, and their end gives back what they had.
func TestBodiesLeaveRoomForOthers(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1e6}}, func(c *config.Config) {
				c.Engine, c.Clients.BodyMemory = engine, 1<<20
				c.Batches = []config.Batch{{Endpoint: "POST /v1/items", MaxBytes: 512 << 10,
					ReadTimeout: 10 * time.Minute}}
			})
			open := func(from string, body string, announced int) net.Conn {
				t.Helper()
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				conn, err := d.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				_, _ = fmt.Fprintf(conn, "POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
					"Content-Length: %d\r\n\r\n%s", announced, body)
				return conn
			}
			text := "[1" + strings.Repeat(" ", 100<<10) + "]"
			status := func(from string) int {
				t.Helper()
				answer, err := http.ReadResponse(bufio.NewReader(open(from, text, len(text))), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				return answer.StatusCode
			}
			var held []net.Conn
			answers := make(chan int, 5)
			for range cap(answers) { // one more than half of the room is for
				conn := open("127.0.0.1", text, len(text)+1)
				held = append(held, conn)
				go func() {
					answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						answer = &http.Response{}
					}
					answers <- answer.StatusCode
				}()
			}
			got := map[int]int{<-answers: 1}
			if got[503] != 1 {
				t.Fatalf("bodies that are not here yet are answered %v, want 503 for one", got)
			}
			if got := status("127.0.0.2"); got != 200 {
				t.Errorf("another address is answered %d, want 200", got)
			}
			r.reloadsTo(t, "clients.body_memory", func(c *config.Config) { c.Clients.BodyMemory = 64 << 20 })
			if got := status("127.0.0.1"); got != 200 {
				t.Errorf("%d once there is more room, want 200", got)
			}
			r.fails(t, "clients.body_memory", func(c *config.Config) { c.Clients.BodyMemory = 1 << 19 })
			for _, conn := range held { // those that found room are served
				_, _ = io.WriteString(conn, " ")
			}
			for range cap(answers) - 1 {
				got[<-answers]++
			}
			if got[200] < 2 || got[200]+got[503] != cap(answers) {
				t.Errorf("the bodies are answered %v, want some 200 and else 503", got)
			}
		})
	}
}
