package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	wire "github.com/headgate-io/headgate/pace/telemetry"
	"github.com/headgate-io/headgate/server/telemetry"
)

// serve runs a server on sockets of the loopback, until the test ends.
func serve(t *testing.T, o telemetry.ServerOptions) (udp, web, admin string) {
	t.Helper()
	var err error
	if o.UDP, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*net.Listener{&o.HTTP, &o.Admin} {
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	o.Log = slog.New(slog.DiscardHandler)
	s, err := telemetry.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return o.UDP.LocalAddr().String(), "http://" + o.HTTP.Addr().String() + telemetry.Path,
		"http://" + o.Admin.Addr().String()
}

func now() time.Time { return epoch }

func post(t *testing.T, url string, body []byte, fields ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, text
}

func TestHTTP(t *testing.T) {
	a := aggregator(t)
	_, url, admin := serve(t, telemetry.ServerOptions{
		Aggregator: a,
		Now:        now,
		Origins:    []string{"https://app.example.com"},
	})
	report := func(n uint64) []byte {
		return sign(wire.Report{
			Quota:  "api",
			Client: 1,
			Number: n,
			First:  true,
			Sent:   2,
			Queue:  4,
			Time:   epoch,
		}, secret)
	}
	response, body := post(t, url, report(1), "Origin", "https://app.example.com", "Content-Type", "text/plain")
	sum, err := wire.ReadAggregate(body, wire.ClientKey(secret, "api", 1))
	if response.StatusCode != 200 || err != nil || sum.Queue != 4 ||
		response.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
		t.Errorf("a report: %s %v, %+v, %v", response.Status, response.Header, sum, err)
	}
	if response, _ := post(t, url, report(2), "Origin",
		"https://evil.example"); response.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("a page of another origin may read the answer")
	}
	for status, body := range map[int][]byte{
		400: []byte("hello"),
		409: report(1),
		403: sign(wire.Report{Quota: "api", Client: 1, Number: 9, Time: epoch}, older[:31]),
		404: sign(wire.Report{Quota: "no", Client: 1, Number: 9, Time: epoch}, secret),
	} {
		if response, text := post(t, url, body); response.StatusCode != status {
			t.Errorf("%x: %s %s, want %d", body, response.Status, text, status)
		}
	}
	if response, _ := post(t, url, make([]byte, 1<<20)); response.StatusCode != 400 {
		t.Errorf("a megabyte: %s, want 400", response.Status)
	}
	preflight, _ := http.NewRequest(http.MethodOptions, url, nil)
	preflight.Header.Set("Origin", "https://app.example.com")
	answer, err := http.DefaultClient.Do(preflight)
	if err != nil || answer.StatusCode != 204 || answer.Header.Get("Access-Control-Allow-Methods") != "POST" {
		t.Errorf("preflight: %v, %v", answer, err)
	}
	answer.Body.Close()

	scrape, err := http.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer scrape.Body.Close()
	text, _ := io.ReadAll(scrape.Body)
	for _, want := range []string{"headgate_telemetry_reports_total 2", `headgate_telemetry_clients{quota="api"} 1`,
		`headgate_telemetry_queue{quota="api"} 4`,
		`headgate_telemetry_refused_total{reason="malformed"} 2`, `headgate_telemetry_refused_total{reason="forged"} 1`,
		`headgate_telemetry_refused_total{reason="flood"} 0`} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("metrics lack %s:\n%s", want, text)
		}
	}
}

// An address that floods is not looked at, and is told so where it is certain who it is.
func TestFlood(t *testing.T) {
	a := aggregator(t)
	_, url, _ := serve(t, telemetry.ServerOptions{Aggregator: a, Now: now, PerSource: 5})
	var last *http.Response
	for range 20 { // the clock stands still: 10 at once, and then none
		last, _ = post(t, url, []byte("x"))
	}
	if last.StatusCode != 429 || last.Header.Get("Retry-After") != "1" {
		t.Errorf("the twentieth report: %s, want 429", last.Status)
	}
	if s := a.Status(epoch); s.Refused["flood"] != 10 || s.Refused["malformed"] != 10 {
		t.Errorf("refused %v, want 10 for the flood and 10 looked at", s.Refused)
	}
}

// A datagram that is no report has no answer; the next one has.
func TestUDP(t *testing.T) {
	a := aggregator(t)
	udp, _, _ := serve(t, telemetry.ServerOptions{Aggregator: a, Now: now})
	conn, err := net.Dial("udp", udp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	good := sign(wire.Report{Quota: "api", Client: 1, Number: 5, Time: epoch}, secret)
	for _, message := range [][]byte{nil, []byte("{"), bytes.Repeat([]byte{0xff}, 9000), good[:127], good} {
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	var b [1000]byte
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := conn.Read(b[:])
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := wire.ReadAggregate(b[:n], wire.ClientKey(secret, "api", 1)); err != nil || sum.Number != 5 {
		t.Errorf("the first answer is %+v, %v; want that to report 5", sum, err)
	}
}

// The reference's numbers: only parts of a window that are over count.
func TestReference(t *testing.T) {
	r := telemetry.NewReference(80, epoch)
	type answer struct {
		TotalRequests int     `json:"total_requests"`
		ActiveClients int     `json:"active_clients"`
		Reported429   int     `json:"reported_429"`
		TokenRate     float64 `json:"token_rate"`
	}
	for i, c := range []struct {
		at      time.Duration
		message string
		want    answer
	}{
		{0, `{"type":"stat","id":1,"sent":3}`, answer{0, 1, 0, 80}},
		{1 * time.Second, `{"type":"cong","id":2,"sent":4}`, answer{0, 1, 0, 80}},
		{2 * time.Second, `{"type":"stat","id":1,"sent":1}`, answer{7, 1, 1, 80}},
		{10 * time.Second, `{"type":"stat","id":3,"sent":0}`, answer{8, 2, 1, 80}},
		{31 * time.Second, `{"type":"stat","id":3,"sent":0}`, answer{8, 3, 1, 80}},
		{32 * time.Second, `{"type":"stat","id":3,"sent":0}`, answer{1, 3, 0, 80}},
		{69 * time.Second, `{"type":"stat","id":3,"sent":0}`, answer{0, 3, 0, 80}},
		{70 * time.Second, `{"type":"stat","id":4,"sent":0}`, answer{0, 1, 0, 80}},
	} {
		var got answer
		if err := json.Unmarshal(r.Answer(at(c.at), []byte(c.message), nil), &got); err != nil || got != c.want {
			t.Errorf("%d: %s at %v is answered %+v, %v; want %+v", i, c.message, c.at, got, err, c.want)
		}
	}
	for _, message := range []string{"", "{", `{"type":"stat","id":1,"sent":-1}`, `{"type":"other","id":1,"sent":1}`,
		`{"type":"stat","id":"x","sent":1}`, `{"type":"stat","id":1e400,"sent":1}`, `[]`} {
		if got := r.Answer(epoch, []byte(message), nil); len(got) != 0 {
			t.Errorf("%s is answered %s, want nothing", message, got)
		}
	}
}

func FuzzReference(f *testing.F) {
	f.Add([]byte(`{"type":"cong","id":1,"sent":3}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		if got := telemetry.NewReference(80, epoch).Answer(epoch, message, nil); len(got) > 200 {
			t.Errorf("%q is answered %q", message, got)
		}
	})
}
