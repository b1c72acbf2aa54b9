package pace_test

import (
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/pace"
	"github.com/headgate-io/headgate/pace/telemetry"
)

// What can go wrong around a client that paces itself, a test each. Absurd hints, requests
// that are always refused, servers that cannot be reached and bounds are in
// transport_test.go, and what goes wrong with an aggregator is in server/telemetry.

// busy is an aggregate of a quota that is congested: 10 requests wait, a quarter of them
// this client's.
func busy() pace.Aggregate {
	return pace.Aggregate{Sent: 40, Active: 4, Refusals: 2, Refused: 2, Waiting: 10, LastRefusal: second, PerSecond: 2}
}

func start(a pace.Algorithm) pace.Sharer {
	return a.Start(0, fixed(0.5)).(pace.Sharer)
}

// An aggregator that falls silent leaves AP behind, two intervals later; one that comes back
// is believed at once.
func TestTelemetryFallsSilent(t *testing.T) {
	p := start(pace.XATB{})
	if got := p.Mode(0); got != "pause" {
		t.Errorf("mode without any news is %s, want pause", got)
	}
	p.Queue(0, 3)
	if _, due := p.Report(0); !due {
		t.Fatal("no report of the first request")
	}
	p.Told(0, busy())
	if got := p.Mode(59 * second); got != "shared" {
		t.Errorf("mode after 59 s is %s, want shared", got)
	}
	if got := p.Mode(61 * second); got != "pause" {
		t.Errorf("mode after 61 s is %s, want pause", got)
	}
	p.Refused(61*second, 1, pace.Hint{})
	if got := p.Next(61*second) - 61*second; got != 30*second {
		t.Errorf("pause without news is %v, want that of AP, 30s", got)
	}
	p.Told(62*second, pace.Aggregate{Active: 1, LastRefusal: -1, PerSecond: 2})
	if got := p.Next(62 * second); got > 62*second {
		t.Errorf("told that nobody waits, the next goes at %v, want at once", got)
	}
}

// AATB never waits for an answer, and without one keeps to the rules of ATB: its rate grows
// again.
func TestAATBWithoutAnswers(t *testing.T) {
	p := start(pace.AATB{Rate: 1, MaxRate: 100})
	p.Refused(0, 1, pace.Hint{})
	if got := p.Next(0); got > 6*second {
		t.Errorf("next at %v, want the token of the quota's default rate, within 6 s", got)
	}
	low := p.Rate()
	p.Accepted(10*second, pace.Hint{})
	if got := p.Rate(); got != low {
		t.Errorf("rate is %v after a success while news may come, want %v", got, low)
	}
	for range 10 {
		p.Accepted(61*second, pace.Hint{})
	}
	if got := p.Rate(); got < 3*low {
		t.Errorf("rate is %v after ten successes without news, want it to grow from %v", got, low)
	}
}

// The rate grows with every report, also when its answer is quicker than the one before.
func TestAATBGrowsWithEveryReport(t *testing.T) {
	p := start(pace.AATB{Rate: 1, MaxRate: 100})
	for i, trip := range []time.Duration{40, 20, 1} {
		at, before := time.Duration(i+1)*30*second, p.Rate()
		p.Report(at)
		p.Told(at+trip*time.Millisecond, pace.Aggregate{Active: 1, LastRefusal: -1, PerSecond: 2})
		if p.Rate() <= before {
			t.Errorf("report %d: the rate stays %v", i+1, before)
		}
	}
}

// An aggregator that has just started knows of no refusals: that is not that there were none.
func TestAggregatorRestarts(t *testing.T) {
	for partial, grows := range map[bool]bool{true: false, false: true} {
		p := start(pace.AATB{Rate: 1})
		p.Report(30 * second)
		p.Told(30*second, pace.Aggregate{Active: 1, LastRefusal: -1, PerSecond: 2, Partial: partial})
		if got := p.Rate() > 1; got != grows {
			t.Errorf("partial %v: rate is %v", partial, p.Rate())
		}
	}
}

// Nor does such an aggregator say that nobody waits: who held back goes on to.
func TestAggregatorRestartsWhileCongested(t *testing.T) {
	for _, partial := range []bool{true, false} {
		p := start(pace.XATB{})
		p.Queue(0, 3)
		p.Report(0)
		p.Told(0, busy())
		p.Sent(10 * second)
		p.Told(20*second, pace.Aggregate{Active: 1, Waiting: 1, LastRefusal: -1, PerSecond: 2, Partial: partial})
		if got := p.Rate() > 0; got != partial {
			t.Errorf("partial %v: it holds back: %v", partial, got)
		}
	}
}

// A client that was refused and is the only one that waits keeps its pause, whatever the answer
// to its report says: it does not ask again at once.
func TestARefusalIsNoPeace(t *testing.T) {
	p := start(pace.XATB{})
	p.Queue(0, 1)
	p.Report(0)
	p.Told(0, pace.Aggregate{Active: 1, Waiting: 1, LastRefusal: -1, PerSecond: 2})
	p.Sent(second)
	p.Refused(second, 1, pace.Hint{})
	p.Report(second)
	p.Told(second, pace.Aggregate{Active: 1, Waiting: 1, Refusals: 1, Refused: 1, PerSecond: 2})
	if got := p.Next(second) - second; got < second {
		t.Errorf("it goes on %v after its refusal, want the time of two tokens or more", got)
	}
}

// Whatever an aggregator claims, waits and shares stay within what may be.
func TestAggregatorLies(t *testing.T) {
	for name, a := range map[string]pace.Aggregate{
		"refusals": {Refusals: 1 << 40, Refused: 1 << 30, Active: 5, PerSecond: 0.001, Waiting: 1 << 50},
		"nobody":   {Active: -4, Sent: -1, Waiting: -9, PerSecond: 1e300},
		"everything": {
			Active:      1 << 30,
			Refused:     math.MaxInt,
			Refusals:    1 << 62,
			Sent:        1 << 62,
			Waiting:     1 << 62,
			PerSecond:   1e-300,
			LastRefusal: -1 << 63,
		},
	} {
		aatb := start(pace.AATB{})
		aatb.Refused(0, 1, pace.Hint{})
		aatb.Told(0, a)
		if got := aatb.Next(0); got > 100*second {
			t.Errorf("%s: AATB waits %v, want a minute and a token of the least rate at most", name, got)
		}
		if got := aatb.Rate(); got < 0.01 {
			t.Errorf("%s: AATB has a rate of %v, want 0.01 or more", name, got)
		}
		xatb := start(pace.XATB{Quota: 1})
		xatb.Told(0, a)
		xatb.Queue(0, 1)
		xatb.Refused(0, 1, pace.Hint{})
		if got := xatb.Next(0); got < 0 {
			t.Errorf("%s: XATB goes at %v", name, got)
		}
	}
	// A share is a tenth of an equal one or more.
	p := start(pace.XATB{})
	a := busy()
	a.Waiting = 1 << 40
	p.Queue(0, 1)
	p.Report(0)
	p.Told(0, a)
	if got, want := p.Rate(), 2.0/40; got < want {
		t.Errorf("share is %v, want %v or more", got, want)
	}
}

// With the gate, refusals that this client did not meet stop nobody.
func TestGate(t *testing.T) {
	for gate, waits := range map[bool]bool{true: false, false: true} {
		p := start(pace.AATB{Gate: gate, Rate: 1})
		p.Report(90 * second)
		p.Told(90*second, busy())
		if got := p.Next(90*second) > 90*second; got != waits {
			t.Errorf("gate %v: the next goes at %v", gate, p.Next(90*second))
		}
	}
}

// A proxy that takes the server's hints away leaves AP behind: at the first refusal without
// one, or two windows of the quota after the last.
func TestHintsVanish(t *testing.T) {
	p := pace.HATB{Jitter: -1}.Start(0, fixed(0.5))
	p.Refused(0, 1, pace.Hint{Wait: second, Slot: true, Burst: 10, Gap: second})
	if got := p.Mode(20 * second); got != "hints" {
		t.Errorf("mode after two windows is %s, want hints", got)
	}
	if got := p.Mode(21 * second); got != "pause" {
		t.Errorf("mode after more than two windows is %s, want pause", got)
	}
	p.Refused(2*second, 1, pace.Hint{Remaining: -1})
	if got := p.Next(2*second) - 2*second; got != 30*second || p.Mode(2*second) != "pause" {
		t.Errorf("refused without a hint: pause %v, mode %s; want AP's 30s", got, p.Mode(2*second))
	}
	distrusting := pace.HATB{Distrust: true}.Start(0, fixed(0.5))
	distrusting.Refused(0, 1, pace.Hint{Wait: second, Slot: true})
	if got := distrusting.Next(0); got != 30*second {
		t.Errorf("a mark that is not trusted: next at %v, want AP's 30s", got)
	}
}

// A laptop that slept does not send all that waited at once: one request finds out.
func TestWakingUp(t *testing.T) {
	p := pace.Auto{}.Start(0, fixed(0.5))
	p.Refused(0, 1, pace.Hint{Wait: second, Slot: true})
	if got := p.Next(10 * time.Hour); got > 10*time.Hour {
		t.Errorf("next at %v, want at once", got)
	}
	if got := p.Concurrent(); got != 1 {
		t.Errorf("%d at once, want 1 until it is answered", got)
	}
}

// A server that fails says nothing of its quota: the rate stays.
func TestServerErrorsMoveNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := pace.New(pace.Options{
			Random: half, Algorithm: pace.ATB{Rate: 1000, Bucket: 1000}, MaxAttempts: 1,
			Base: roundTripper(func(r *http.Request) (*http.Response, error) { return answer(r, 500, nil, ""), nil }),
		})
		for range 5 {
			response, err := transport.RoundTrip(get(t, t.Context(), "a"))
			status(t, response, err)
			time.Sleep(time.Second)
		}
		if s := transport.Quotas()[0]; s.Rate != 1000 || s.Refused != 0 || s.Pause != 0 {
			t.Errorf("%+v, want the rate of the start", s)
		}
	})
}

// Headgate-Pending goes to servers that said that they reserve, and says how many more wait.
func TestPending(t *testing.T) {
	for _, omit := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var pending []string
			transport := pace.New(pace.Options{Random: half, OmitPending: omit,
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					pending = append(pending, r.Header.Get(pace.FieldPending))
					time.Sleep(time.Second)
					return answer(r, 200, http.Header{"Ratelimit": {`"a";r=0;t=1`},
						"Ratelimit-Policy": {`"a";q=1;w=1;headgate-reserves`}}, ""), nil
				})})
			done := make(chan struct{})
			own := get(t, t.Context(), "a")
			send := func(r *http.Request) {
				response, err := transport.RoundTrip(r)
				status(t, response, err)
				done <- struct{}{}
			}
			go send(own)
			<-done
			for range 3 {
				go send(own)
			}
			for range 3 {
				<-done
			}
			want := []string{"", "2", "1", "0"}
			if omit {
				want = []string{"", "", "", ""}
			}
			for i := range want {
				if pending[i] != want[i] {
					t.Errorf("omit %v: Headgate-Pending was %q, want %q", omit, pending, want)
					break
				}
			}
			if len(own.Header) != 0 {
				t.Errorf("the caller's request has %v now", own.Header)
			}
		})
	}
}

// Requests wait for no aggregator, there or not, and closing tells it that nothing waits.
func TestTelemetryOfATransport(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	secret := []byte("a secret of thirty-two characters")
	reports := make(chan telemetry.Report, 100)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	go func() {
		var b [1000]byte
		for {
			n, _, err := conn.ReadFromUDP(b[:])
			if err != nil {
				close(reports)
				return
			}
			if r, err := telemetry.ReadReport(b[:n]); err == nil {
				reports <- r // never answered
			}
		}
	}()
	var attempts atomic.Int64
	transport := pace.New(pace.Options{
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			attempts.Add(1)
			return answer(r, 200, nil, ""), nil
		}),
		Telemetry: func(quota string) (telemetry.Options, bool) {
			return telemetry.Options{Addr: conn.LocalAddr().String(), Quota: "api", Secret: secret},
				quota == "http://api.example"
		},
	})
	for range 3 {
		response, err := transport.RoundTrip(get(t, t.Context(), "a"))
		status(t, response, err)
	}
	if first := <-reports; first.Quota != "api" || first.Queue != 0 || !first.First {
		t.Errorf("first report %+v, want it of the quota, and nothing held back", first)
	}
	transport.Close()
	empty := false
	for r := range reports {
		if empty = r.Queue == 0; empty {
			if r.Sent != 3 || r.Accepted != 3 || attempts.Load() != 3 {
				t.Errorf("last report %+v, want 3 requests served and none waiting", r)
			}
			break
		}
	}
	if !empty {
		t.Error("no report after Close says that nothing waits")
	}
	response, err := transport.RoundTrip(get(t, t.Context(), "a"))
	if got := status(t, response, err); got != 200 {
		t.Errorf("status %d after Close, want 200", got)
	}
}
