package hold_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/hold"
)

// ok answers everything, "/wait" when it is told to.
func ok(free <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			_, _ = io.WriteString(w, "so far")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-free:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "ok")
	})
}

// busyClient has a request under way.
func (s *site) busyClient(t *testing.T, host byte) *client {
	t.Helper()
	c := s.dial(t, host)
	if _, err := io.WriteString(c, "GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := c.answers.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("the request is not under way: %q, %v", line, err)
	}
	return c
}

// One address holds so many connections and no more; others get in.
func TestConnectionsOfAnAddress(t *testing.T) {
	o := small()
	s := unswept(t, o, ok(make(chan struct{})))
	for range o.MaxPerAddress {
		s.busyClient(t, 1)
	}
	if got := s.dial(t, 1).status(); got != http.StatusServiceUnavailable {
		t.Errorf("one connection more = %d, want 503", got)
	}
	if got := s.dial(t, 2).get(t, "/"); got != http.StatusOK {
		t.Errorf("another address = %d, want 200", got)
	}
	if got := s.count(hold.ConnectionsOfAddress); got != 1 {
		t.Errorf("%d were counted as refused, want 1", got)
	}
}

// An idle connection makes room for the newcomer of the same address: behind a
// NAT the one who holds many keeps nobody out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	s := serve(t, small(), ok(nil))
	for range 50 {
		s.knock(t, 1)
	}
	// Those that came within the last sweep stay.
	eventually(t, "a newcomer of the same address is served",
		func() bool { return s.knock(t, 1).get(t, "/") == http.StatusOK })
	if n := s.limiter.Stats().Connections; n > small().MaxPerAddress {
		t.Errorf("%d connections are held, want at most %d", n, small().MaxPerAddress)
	}
}

// A flood is told why it is refused for a while, and then reset, as that costs least.
func TestAFloodIsNotToldAllTheTime(t *testing.T) {
	o := small()
	s := unswept(t, o, ok(make(chan struct{})))
	for range o.MaxPerAddress {
		s.busyClient(t, 1)
	}
	told := 0
	for range 40 {
		switch s.knock(t, 1).status() {
		case http.StatusServiceUnavailable:
			told++
		case 0:
		default:
			t.Fatal("a connection above the share was served")
		}
	}
	if told != 16 || s.count(hold.ConnectionsOfAddress) != 40 {
		t.Errorf("%d of %d were told why, want 16 of 40", told, s.count(hold.ConnectionsOfAddress))
	}
	if got := s.dial(t, 2).get(t, "/"); got != http.StatusOK {
		t.Errorf("another address = %d, want 200", got)
	}
}

// An address that has its share of connections gives up an eighth of it between two sweeps, of those on which requests
// are under way: those that begin in their place would begin at once.
func TestOwnRequestsAreGivenUpFewAtATime(t *testing.T) {
	o := small()
	o.MaxPerAddress, o.StreamIdle, o.Patience = 16, bound, 4*time.Second // a sweep each 200 ms
	s := serve(t, o,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	slow := func() {
		c := s.knock(t, 1)
		if c == nil {
			return
		}
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
	}
	for range o.MaxPerAddress {
		slow()
	}
	eventually(t, "requests are given up", func() bool {
		before, began := s.count(hold.Displaced), time.Now()
		for range 10 { // within a fraction of a second, as a rule
			slow()
		}
		after := s.count(hold.Displaced)
		// before, between and after the sweeps that may have come meanwhile, one of which was late
		if most := 2 * (3 + uint64(time.Since(began)/(200*time.Millisecond))); after-before > most {
			t.Fatalf("%d requests were given up at once, want 2, and %d at most", after-before, most)
		}
		return after >= 4
	})
}

// When all connections are in use, idle ones of who holds most are closed, never
// those of who holds no more than the newcomer.
func TestTheTotalIsSharedFairly(t *testing.T) {
	o := small()
	o.MaxConnections, o.MaxPerAddress = 12, 10
	s := serve(t, o, ok(nil))
	modest := s.dial(t, 3)
	if got := modest.get(t, "/"); got != http.StatusOK {
		t.Fatal(got)
	}
	for range 10 {
		s.dial(t, 1)
	}
	for host := range byte(20) { // newcomers, one after the other
		if got := s.dial(t, 10+host).get(t, "/"); got != http.StatusOK {
			t.Errorf("newcomer %d = %d, want 200", host, got)
		}
		if host == 5 {
			if got := modest.get(t, "/"); got != http.StatusOK {
				t.Errorf("who held one connection all the time = %d, want 200", got)
			}
		}
	}
	if n := s.limiter.Stats().Connections; n > o.MaxConnections {
		t.Errorf("%d connections are held, want at most %d", n, o.MaxConnections)
	}
}

// Where everything is in use, the newcomer is refused and nobody else is.
func TestTheTotalInUse(t *testing.T) {
	o := small()
	o.MaxConnections = 4
	free := make(chan struct{})
	s := unswept(t, o, ok(free))
	var all []*client
	for host := range byte(4) {
		all = append(all, s.busyClient(t, 1+host))
	}
	if got := s.dial(t, 9).status(); got != http.StatusServiceUnavailable {
		t.Errorf("newcomer = %d, want 503", got)
	}
	close(free)
	for i, c := range all {
		if rest, err := io.ReadAll(c.answers); err != nil || !strings.HasSuffix(string(rest), "ok\r\n0\r\n\r\n") {
			t.Errorf("request %d was cut off: %q, %v", i, rest, err)
		}
	}
	eventually(t, "no connection is counted any more", func() bool {
		st := s.limiter.Stats()
		return st.Connections == 0 && st.Addresses == 0 && st.Requests == 0
	})
	if got := s.dial(t, 9).get(t, "/"); got != http.StatusOK {
		t.Errorf("newcomer afterwards = %d, want 200", got)
	}
}

// Several addresses that hold everything with requests under way on which nothing
// passes make room for a newcomer too, once they have been silent for a while.
func TestSilentRequestsMakeRoomForNewcomers(t *testing.T) {
	o := small()
	o.MaxConnections, o.StreamIdle = 20, bound
	s := serve(t, o, ok(make(chan struct{})))
	for host := range byte(2) {
		for range 10 {
			s.busyClient(t, 1+host)
		}
	}
	eventually(t, "a newcomer is served", func() bool { return s.dial(t, 9).get(t, "/") == http.StatusOK })
	if n := s.count(hold.Displaced); n == 0 {
		t.Error("nothing was closed for the newcomer")
	}
}

// Who is many clients is bound by the total alone.
func TestProxiesAreExempt(t *testing.T) {
	o := small()
	o.StreamIdle = bound
	o.Exempt = func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.7") }
	s := serve(t, o, ok(make(chan struct{})))
	for range 3 * o.MaxPerAddress {
		s.busyClient(t, 7)
	}
}

// The tables of a Limiter agree with each other after any order of events.
func TestAccountsBalance(t *testing.T) {
	o := small()
	o.MaxConnections, o.MaxPerAddress = 20, 6
	s := serve(t, o, ok(nil))
	held := map[string]*client{}
	for i := range 400 {
		key := fmt.Sprint(i * 7919 % 61)
		if c := held[key]; c != nil {
			_ = c.Close()
			delete(held, key)
			continue
		}
		c := s.dial(t, byte(1+i*31%9))
		if i%3 == 0 {
			c.get(t, "/")
		}
		held[key] = c
	}
	if n := s.limiter.Stats().Connections; n > o.MaxConnections {
		t.Errorf("%d connections are held, want at most %d", n, o.MaxConnections)
	}
	for _, c := range held {
		_ = c.Close()
	}
	eventually(t, "nothing is counted any more", func() bool {
		st := s.limiter.Stats()
		return st.Connections == 0 && st.Addresses == 0
	})
}
