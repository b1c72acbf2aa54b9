package telemetry_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace/telemetry"
)

// listener answers reports as a test wants.
type listener struct {
	*net.UDPConn
	t *testing.T
}

func listen(t *testing.T) listener {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return listener{conn, t}
}

// report waits for one.
func (l listener) report() (telemetry.Report, *net.UDPAddr) {
	l.t.Helper()
	var b [1000]byte
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	n, from, err := l.ReadFromUDP(b[:])
	if err != nil {
		l.t.Fatalf("no report: %v", err)
	}
	r, err := telemetry.ReadReport(b[:n])
	if err != nil || !telemetry.Verify(b[:n], telemetry.ClientKey(secret, r.Quota, r.Client)) {
		l.t.Fatalf("report %x: %+v, %v; want one that is signed", b[:n], r, err)
	}
	return r, from
}

func (l listener) answer(to *net.UDPAddr, a telemetry.Aggregate, key []byte) {
	l.t.Helper()
	if _, err := l.WriteToUDP(a.Append(nil, key), to); err != nil {
		l.t.Fatal(err)
	}
}

func start(t *testing.T, addr string) *telemetry.Client {
	t.Helper()
	c, err := telemetry.New(telemetry.Options{Addr: addr, Quota: "api", Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(telemetry.State{}) })
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", what)
		}
	}
}

func TestClient(t *testing.T) {
	l := listen(t)
	c := start(t, l.LocalAddr().String())
	if _, heard := c.Latest(); heard {
		t.Error("there is an answer before any report")
	}
	c.Report(telemetry.State{Sent: 3, Accepted: 2, Refused: 1, Queue: 9, Congested: true})
	r, from := l.report()
	if !r.First || !r.Congested || r.Sent != 3 || r.Accepted != 2 || r.Refused != 1 || r.Queue != 9 {
		t.Errorf("first report %+v", r)
	}
	key := telemetry.ClientKey(secret, "api", r.Client)
	answer := telemetry.Aggregate{
		Quota:        "api",
		Client:       r.Client,
		Number:       r.Number,
		Active:       4,
		Warm:         true,
		SinceRefusal: -1,
		Window:       30 * time.Second,
		Time:         at,
	}
	forged := answer
	forged.Active = 666
	l.answer(from, forged, telemetry.ClientKey(secret, "api", r.Client+1))
	other := forged
	other.Number++ // of no report
	l.answer(from, other, key)
	other = forged
	other.Client++
	l.answer(from, other, key)
	l.answer(from, answer, key)
	l.answer(from, forged, key) // the report was answered already
	eventually(t, "no answer", func() bool { _, heard := c.Latest(); return heard })
	if got, _ := c.Latest(); got.Active != 4 {
		t.Errorf("latest answer has %d clients, want 4: that of the aggregator", got.Active)
	}

	c.Report(telemetry.State{Sent: 5})
	second, from := l.report()
	if second.First || second.Number <= r.Number || second.Client != r.Client {
		t.Errorf("second report %+v after %+v", second, r)
	}
	answer.Number, answer.Active = second.Number, 5
	l.answer(from, answer, key)
	eventually(t, "the second answer is not taken", func() bool { got, _ := c.Latest(); return got.Active == 5 })
}

// A client outlives an aggregator that is away, and looks for it again: from a socket of its own, since the name may
// stand for another address now.
func TestClientSurvivesItsAggregator(t *testing.T) {
	l := listen(t)
	addr := l.LocalAddr().String()
	var clock atomic.Int64
	c, err := telemetry.New(telemetry.Options{
		Addr:   addr,
		Quota:  "api",
		Secret: secret,
		Now:    func() time.Time { return at.Add(time.Duration(clock.Add(int64(10 * time.Millisecond)))) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(telemetry.State{}) })
	c.Report(telemetry.State{Sent: 1})
	_, first := l.report()
	l.Close()
	for range 100 {
		c.Report(telemetry.State{Sent: 2}) // never blocks
	}
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp", udp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var b [1000]byte
		for {
			n, from, err := conn.ReadFromUDP(b[:])
			if err != nil {
				return
			}
			if r, err := telemetry.ReadReport(b[:n]); err == nil && r.Sent == 7 && from.Port != first.Port {
				a := telemetry.Aggregate{Quota: "api", Client: r.Client, Number: r.Number, Time: at}
				_, _ = conn.WriteToUDP(a.Append(nil, telemetry.ClientKey(secret, "api", r.Client)), from)
			}
		}
	}()
	eventually(t, "no answer of the aggregator that came back", func() bool {
		c.Report(telemetry.State{Sent: 7})
		_, heard := c.Latest()
		return heard
	})
	conn.Close()
	<-answered
}

// Closing reports an empty queue.
func TestCloseReports(t *testing.T) {
	l := listen(t)
	c, err := telemetry.New(telemetry.Options{
		Addr:  l.LocalAddr().String(),
		Quota: "api",
		Key:   telemetry.ClientKey(secret, "api", 42),
		ID:    42,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Report(telemetry.State{Sent: 1, Queue: 5})
	if r, _ := l.report(); r.Queue != 5 || r.Client != 42 {
		t.Errorf("report %+v, want a queue of 5 and client 42", r)
	}
	c.Close(telemetry.State{Sent: 1, Queue: 5})
	if r, _ := l.report(); r.Queue != 0 || r.Sent != 1 {
		t.Errorf("last report %+v, want an empty queue", r)
	}
}

func TestOptions(t *testing.T) {
	_, err := telemetry.New(telemetry.Options{Addr: "nowhere", Quota: "No Quota"})
	for _, want := range []string{`Addr is "nowhere"`, `quota is "No Quota"`, "Secret or Key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want it to say %s", err, want)
		}
	}
}
