package daemon_test

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// moments are what differs between two answers to the same, as they were given one after the other.
var moments = regexp.MustCompile(`(?i)^date: .*|;r=[0-9]+;t=[0-9]+|^retry-after: .*|Retry in [^"]*|Content-Length: [0-9]{3}`)

// conversation sends requests, each with Connection: close at its end, and returns what is answered, by line.
func conversation(t *testing.T, gate, text string) []string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(c) // a reset after the answer is as good
	lines := strings.Split(string(answer), "\r\n")
	for i := range lines {
		lines[i] = moments.ReplaceAllString(lines[i], "at some time")
	}
	slices.Sort(lines)
	return lines
}

// Both engines answer alike: what is served, and each refusal.
func TestEnginesAnswerAlike(t *testing.T) {
	rules := []policy.Rule{{Endpoint: policy.Default, Limit: 1000},
		{Endpoint: "POST /v1/items", Limit: 1, Per: time.Hour}}
	start := func(engine string) *process {
		return newProcess(t, rules, func(c *config.Config) {
			c.Engine, c.Clients.MaxHeaders, c.Clients.MaxTargetBytes = engine, 20, 256
			c.BadCredentials = "reject"
		})
	}
	own, fast := start("net/http"), start("fast")
	request := func(line, fields string) string {
		return line + " HTTP/1.1\r\nHost: x\r\n" + fields + "Connection: close\r\n\r\n"
	}
	post := request("POST /v1/items", "Content-Length: 2\r\n") + "hi"
	for name, text := range map[string]string{
		"served":           request("GET /v1/items/1?a=b", ""),
		"HEAD":             request("HEAD /v1/items/1", ""),
		"pipelined":        "GET /v1/items/1 HTTP/1.1\r\nHost: x\r\n\r\n" + request("GET /v1/items/2", ""),
		"unknown":          request("GET /nowhere", ""),
		"method":           request("DELETE /v1/items/1", ""),
		"no safe reading":  request("GET /v1/items/a%2Fb", ""),
		"two readings":     request("GET /v1/items/..%2f1", ""),
		"a credential":     request("GET /v1/items/1", "X-Api-Key: nobody's\r\nAuthorization: Bearer x\r\n"),
		"many fields":      request("GET /v1/items/1", strings.Repeat("X-A: b\r\n", 25)),
		"very many fields": request("GET /v1/items/1", strings.Repeat("X-A: b\r\n", 250)),
		"long target":      request("GET /v1/items/"+strings.Repeat("a", 300), ""),
		"long head":        request("GET /v1/items/1", "X-A: "+strings.Repeat("a", 9000)+"\r\n"),
		"no Host":          "GET /v1/items/1 HTTP/1.1\r\n\r\n",
		"two Hosts":        request("GET /v1/items/1", "Host: y\r\n"),
		"HTTP/1.0":         "GET /v1/items/1 HTTP/1.0\r\n\r\n",
		"chunked":          request("POST /v1/items", "Transfer-Encoding: chunked\r\n") + "2\r\nhi\r\n0\r\n\r\n",
		"both lengths": request("POST /v1/items", "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n") +
			"0\r\n\r\n",
		"expects":             request("POST /nowhere", "Expect: 100-continue\r\nContent-Length: 2\r\n"),
		"over":                post,
		"a body not awaited":  request("POST /nowhere", "Content-Length: 2000000\r\n"),
		"asterisk":            request("OPTIONS *", ""),
		"CONNECT":             request("CONNECT x:80", ""),
		"absolute":            request("GET http://x/v1/items/1", ""),
		"nonsense":            "\x16\x03\x01 nonsense\r\n\r\n",
		"Upgrade: h2c":        request("GET /v1/items/1", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
		"fields of the proxy": request("GET /v1/items/1", "X-Forwarded-For: 9.9.9.9\r\nX_Forwarded_For: 8.8.8.8\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			want, got := conversation(t, own.gate, text), conversation(t, fast.gate, text)
			if !slices.Equal(got, want) {
				t.Errorf("%.300q:\n%q\nwant\n%q", text, got, want)
			}
		})
	}
	for _, p := range []*process{own, fast} {
		conversation(t, p.gate, post)
		if status := fmt.Sprint(conversation(t, p.gate, post)); !strings.Contains(status, "HTTP/1.1 429") {
			t.Errorf("the second POST was answered %s, want 429", status)
		}
	}
}

// constantAPI is an API that allocates nothing for an answer.
func constantAPI(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for buf := make([]byte, 4<<10); ; {
					if _, err := c.Read(buf); err != nil { // a head comes in one write
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// In the steady state a request takes no allocation of its own, whether it is admitted or refused, with all that is on
// by default, and with scores. A 405 lists the methods that there are.
func TestRequestsAllocateNothing(t *testing.T) {
	t.Run("by default", func(t *testing.T) { requestsAllocateNothing(t, func(*config.Config) {}) })
	t.Run("with scores", func(t *testing.T) {
		requestsAllocateNothing(t, func(c *config.Config) { c.Anomalies.Window = time.Minute })
	})
}

func requestsAllocateNothing(t *testing.T, change func(*config.Config)) {
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 30},
		{Endpoint: "POST /v1/items", Limit: 1, Per: time.Hour}}, func(c *config.Config) {
		c.Engine, c.Upstream = "fast", constantAPI(t)
	}, change)
	c, err := net.Dial("tcp", strings.TrimPrefix(p.gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 4<<10)
	for _, k := range []struct {
		name, line, status string
		most               float64
	}{
		{"admitted", "GET /v1/items/1", "200", 0}, {"over a limit", "POST /v1/items", "429", 0},
		{"no endpoint", "GET /nowhere", "404", 0}, {"no method", "DELETE /v1/items/1", "405", 1},
		{"no target", "GET /../a", "400", 0},
	} {
		text := []byte(k.line + " HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n")
		status := ""
		ask := func() {
			if _, err := c.Write(text); err != nil {
				t.Fatal(err)
			}
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if string(buf[9:12]) != k.status {
				status = string(buf[:n])
			}
		}
		ask() // is admitted where one is
		status = ""
		each := testing.AllocsPerRun(2000, ask)
		if status != "" {
			t.Errorf("%s: %q, want %s", k.name, status, k.status)
		}
		if each > k.most && !race.Enabled {
			t.Errorf("%s: %v allocations, want %v", k.name, each, k.most)
		}
	}
}
