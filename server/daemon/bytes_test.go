package daemon_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// byteAPI answers with as many bytes as it is asked for, reads what it is sent, and echoes lines where it is asked for
// another protocol. got has how many it was sent, by the field Step of the request: of one that the gateway cuts it may
// still read when the client has its answer and goes on.
func byteAPI(t *testing.T, got *sync.Map) string {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\n" + becomes))
			for {
				line, err := rw.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(line))
			}
		}
		n, _ := io.Copy(io.Discard, r.Body)
		got.Store(r.Header.Get("Step"), n)
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		if r.URL.Query().Has("announced") {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		for ; size > 0; size -= 1000 {
			if _, err := w.Write(make([]byte, min(size, 1000))); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// slow is in what time the budgets of these tests are whole again: of 10,000 bytes no byte comes back in a minute.
const slow = 365 * 24 * time.Hour

const becomes = "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// TestBytesAreCounted: by both engines, both ways, whole and in chunks; beyond the budget what is known to be too long
// is refused, and the rest is cut off. A reload changes what counts.
func TestBytesAreCounted(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var got sync.Map // of int64
			r := newReloading(t, []policy.Rule{
				{Endpoint: "POST /v1/items", Limit: 10_000, Per: slow}, {Endpoint: policy.Default, Limit: 1e6},
				{Endpoint: "GET /v1/items/{id}", Limit: 10_000, Per: slow},
				{Endpoint: "GET /v1/items/{id}", Limit: 4, Per: slow,
					Subject: policy.SubjectPrincipal.Counting(policy.CountsRequests)},
			}, func(c *config.Config) {
				c.Upstream, c.Engine = byteAPI(t, &got), engine
				c.Bytes = []config.ByteCount{
					{Endpoints: []string{"POST /v1/items", "GET /v1/items/{id}"}, AtEnd: "cut"}}
			})
			// A connection that was used before and ends without an answer has a client send a GET again, which counts.
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			send := func(step, method, path string, body io.Reader) (status int, size int64) {
				t.Helper()
				request, err := http.NewRequest(method, r.gate+path, body)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Step", step)
				answer, err := client.Do(request)
				if err != nil {
					return 0, 0
				}
				defer answer.Body.Close()
				size, err = io.Copy(io.Discard, answer.Body)
				if err != nil {
					return 0, size
				}
				return answer.StatusCode, size
			}
			plain := func(n int) io.Reader { return struct{ io.Reader }{bytes.NewReader(make([]byte, n))} }
			for i, step := range []struct {
				method, path string
				body         io.Reader
				status       int
				size         int64
				reached      int64
			}{
				{"POST", "/v1/items?size=500", bytes.NewReader(make([]byte, 2000)), 200, 500, 2000},
				{"POST", "/v1/items?size=500", plain(2000), 200, 500, 2000},
				{"POST", "/v1/items", bytes.NewReader(make([]byte, 5001)), 429, -1, 0},
				{"POST", "/v1/items", plain(1 << 20), 429, -1, 5000},
				{"POST", "/v1/items?size=8000", bytes.NewReader(make([]byte, 900)), 0, -1, 900},
				{"GET", "/v1/items/1?size=6000&announced", nil, 200, 6000, 0},
				{"GET", "/v1/items/1?size=6000&announced", nil, 429, -1, 0},
				{"GET", "/v1/items/1?size=6000", nil, 0, -1, 0},
			} {
				number := strconv.Itoa(i)
				status, size := send(number, step.method, step.path, step.body)
				value, _ := got.Load(number)
				reached, _ := value.(int64)
				if status != step.status && !(status == 429 && step.status == 0) ||
					step.size >= 0 && size != step.size || reached > step.reached ||
					status == 200 && reached != step.reached {
					t.Errorf("%s %s: %d with %d bytes, %d reached the API; want %d with %d, %d", step.method, step.path,
						status, size, reached, step.status, step.size, step.reached)
				}
			}
			for fourth := range 2 {
				if status, _ := send("", "GET", "/v1/items/1", nil); (status == 429) != (fourth == 1) {
					t.Errorf("%d for request %d of four, want 429 for the fifth alone", status, 4+fourth)
				}
			}
			_, page := call(t, "GET", r.admin+"/metrics", "")
			if strings.Contains(page, "headgate_bodies_ended_total 0\n") {
				t.Error("no body ended by the metrics")
			}
			decided := 0
			for _, line := range regexp.MustCompile(`(?m)^headgate_(?:allowed|denied)_total\{.*\} (\d+)$`).
				FindAllStringSubmatch(page, -1) {
				n, _ := strconv.Atoi(line[1])
				decided += n
			}
			if decided != 10 {
				t.Errorf("the metrics have %d requests, want 10: what one takes more is no other", decided)
			}
			r.reloadsTo(t, "bytes", func(c *config.Config) {
				c.Bytes = []config.ByteCount{{Endpoints: []string{"GET /v1/items/{id}"}, Count: "requests"}}
			})
			if status, _ := send("", "POST", "/v1/items?size=100000", nil); status != 200 {
				t.Errorf("%d once the endpoint counts no bytes, want 200", status)
			}
			r.fails(t, `bytes[0].endpoints: endpoint is \"POST /nowhere\", want one`, func(c *config.Config) {
				c.Bytes = []config.ByteCount{{Endpoints: []string{"POST /nowhere"}}}
			})
		})
	}
}

// TestBytesOfAnUpgradeAreCounted: what passes on a connection after it has become another counts in both directions,
// and both ends are closed at the end of the budget.
func TestBytesOfAnUpgradeAreCounted(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			r := newReloading(t, []policy.Rule{
				{Endpoint: "GET /v1/items/{id}", Limit: 10_000, Per: slow}, {Endpoint: policy.Default, Limit: 1e6},
			}, func(c *config.Config) {
				c.Upstream, c.Engine = byteAPI(t, new(sync.Map)), engine
				c.Bytes = []config.ByteCount{{Endpoints: []string{"GET /v1/items/{id}"}, AtEnd: "cut"}}
			})
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			_, _ = fmt.Fprintf(conn, "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n"+becomes)
			from := bufio.NewReader(conn)
			answer, err := http.ReadResponse(from, nil)
			if err != nil || answer.StatusCode != 101 {
				t.Fatal(answer, err)
			}
			line := strings.Repeat("x", 499) + "\n"
			lines := 0
			for ; lines < 100; lines++ {
				_, _ = io.WriteString(conn, line)
				if text, err := from.ReadString('\n'); err != nil || text != line {
					break
				}
			}
			if lines != 9 { // the head of the answer counts too
				t.Errorf("%d lines went to and fro, want 9 of 1000 bytes in 10000", lines)
			}
		})
	}
}

// TestACutBodyBeginsNoRequest: what follows the place at which a request's body was cut off is nothing of its own, on a
// connection that would have stayed open.
func TestACutBodyBeginsNoRequest(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			var got, reached atomic.Int64
			api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				got.Add(n)
				if r.Method == http.MethodDelete {
					reached.Add(1)
				}
			}))
			defer api.Close()
			r := newReloading(t, []policy.Rule{
				{Endpoint: "POST /v1/items", Limit: 1000, Per: slow}, {Endpoint: policy.Default, Limit: 1e6},
			}, func(c *config.Config) {
				c.Upstream, c.Engine = api.URL, engine
				c.Bytes = []config.ByteCount{{Endpoints: []string{"POST /v1/items"}, AtEnd: "cut"}}
			})
			inner := "DELETE /v1/items/1 HTTP/1.1\r\nHost: x\r\n\r\n"
			body := strings.Repeat(inner, 100)
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			_, _ = fmt.Fprintf(conn, "POST /v1/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+
				"%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			from := bufio.NewReader(conn)
			answer, err := http.ReadResponse(from, nil)
			if err != nil || answer.StatusCode != http.StatusTooManyRequests {
				t.Fatal(answer, err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			if second, err := http.ReadResponse(from, nil); err == nil || reached.Load() != 0 || got.Load() > 1000 {
				t.Errorf("%v came next, %d requests and %d bytes reached the API; want none, and 1000 at most", second,
					reached.Load(), got.Load())
			}
		})
	}
}
