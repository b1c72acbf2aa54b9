package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/record"
)

// TestLargeBodiesComeOneAtATime: while one is under way another is refused at
// once, small ones and other operations are served, and then it goes on.
func TestLargeBodiesComeOneAtATime(t *testing.T) {
	s := newSite(t)
	server := httptest.NewServer(s.door)
	defer server.Close()
	const large = 2 << 20
	begin := func(path string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		must(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nIf-Match: *\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			path, s.all(), large)
		must(t, err)
		return conn
	}
	first := func(conn net.Conn) (*bufio.Reader, string) {
		t.Helper()
		from := bufio.NewReader(conn)
		line, err := from.ReadString('\n')
		must(t, err)
		return from, strings.TrimSpace(line)
	}
	const rule = `{"set":[{"endpoint":"default","limit":60}],"why":"small"}`
	for path, body := range map[string]string{
		"/v1/policies/apply": rule + strings.Repeat(" ", large-len(rule)),
		"/v1/policies/lint":  `{"rules":[]}` + strings.Repeat(" ", large-len(`{"rules":[]}`)),
	} {
		slow := begin(path)
		defer slow.Close()
		from, line := first(slow)
		if line != "HTTP/1.1 100 Continue" {
			t.Fatalf("%s: %q, want that it may go on", path, line)
		}
		second := begin(path)
		defer second.Close()
		if _, line := first(second); !strings.Contains(line, "503") {
			t.Errorf("a second large body to %s: %q, want 503", path, line)
		}
		if got := s.call(s.all(), "POST", path, rule, "If-Match", "*"); got.status != 200 {
			t.Errorf("a small body to %s = %d %s, want it served", path, got.status, got.body)
		}
		_, err := io.WriteString(slow, body)
		must(t, err)
		_, err = from.ReadString('\n') // of 100 Continue
		must(t, err)
		answer, err := http.ReadResponse(from, nil)
		must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("the first large body to %s = %d, want 200", path, answer.StatusCode)
		}
	}
	// Without a length, a body may be of any.
	r := httptest.NewRequest("POST", "/v1/policies/lint", io.MultiReader(strings.NewReader(`{"rules":[]}`)))
	r.Header.Set("Authorization", "Bearer "+s.token(record.RoleRead))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.door.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("a body without a length = %d %s", w.Code, w.Body)
	}
}
