package telemetry_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	wire "github.com/headgate-io/headgate/pace/telemetry"
	"github.com/headgate-io/headgate/server/telemetry"
)

var (
	secret = bytes.Repeat([]byte("s"), 32)
	older  = bytes.Repeat([]byte("o"), 32)
	epoch  = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func aggregator(t testing.TB, change ...func(*telemetry.Options)) *telemetry.Aggregator {
	t.Helper()
	o := telemetry.Options{Quotas: []telemetry.Quota{{Name: "api"}}, Secrets: [][]byte{secret, older}}
	for _, f := range change {
		f(&o)
	}
	a, err := telemetry.New(o, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sign(r wire.Report, by []byte) []byte {
	return r.Append(nil, wire.ClientKey(by, r.Quota, r.Client))
}

// say sends a report of a client, numbered by its time, and returns the answer.
func say(t testing.TB, a *telemetry.Aggregator, r wire.Report) wire.Aggregate {
	t.Helper()
	if r.Quota == "" {
		r.Quota = "api"
	}
	if r.Number == 0 {
		r.Number = uint64(r.Time.UnixMilli())
	}
	reply, fault := a.Answer(r.Time, sign(r, secret), nil)
	if len(reply) != wire.Size {
		t.Fatalf("%+v: %d bytes of answer, fault %v", r, len(reply), fault)
	}
	got, err := wire.ReadAggregate(reply, wire.ClientKey(secret, r.Quota, r.Client))
	if err != nil || got.Client != r.Client || got.Number != r.Number || !got.Time.Equal(r.Time) {
		t.Fatalf("answer %+v, %v; want it to be to %+v", got, err, r)
	}
	return got
}

// The story of a window: totals go in with the reports, and out 30 s later.
func TestWindow(t *testing.T) {
	a := aggregator(t)
	sum := say(t, a, wire.Report{Client: 1, First: true, Sent: 10, Accepted: 8, Refused: 2, Queue: 5, Time: at(0)})
	if sum.Warm || sum.Sent != 10 || sum.Accepted != 8 || sum.Refused != 2 || sum.Queue != 5 || sum.Active != 1 ||
		sum.Refusing != 1 || sum.SinceRefusal != 0 {
		t.Errorf("after the first report: %+v", sum)
	}
	sum = say(t, a, wire.Report{Client: 2, First: true, Sent: 1, Accepted: 1, Queue: 1, Time: at(10 * time.Second)})
	if sum.Sent != 11 || sum.Queue != 6 || sum.Active != 2 || sum.Refusing != 1 || sum.SinceRefusal != 10*time.Second {
		t.Errorf("after that of another: %+v", sum)
	}
	sum = say(t, a, wire.Report{Client: 1, Sent: 12, Accepted: 10, Refused: 2, Time: at(20 * time.Second)})
	if sum.Sent != 13 || sum.Queue != 1 {
		t.Errorf("after 2 more: %+v, want 13 sent and a queue of 1", sum)
	}
	sum = say(t, a, wire.Report{Client: 2, Sent: 1, Accepted: 1, Time: at(31 * time.Second)})
	if !sum.Warm || sum.Sent != 3 || sum.Active != 2 || sum.Refusing != 0 || sum.SinceRefusal != 31*time.Second {
		t.Errorf("31 s after the beginning: %+v, want 3 sent and nobody refused", sum)
	}
	sum = say(t, a, wire.Report{Client: 2, Sent: 1, Accepted: 1, Time: at(90 * time.Second)})
	if sum.Sent != 0 || sum.Active != 1 || sum.SinceRefusal < 0 {
		t.Errorf("a minute later: %+v, want one client that sent nothing", sum)
	}
	if got := a.Status(at(300 * time.Second)).Quotas[0]; got.Clients != 0 || got.Active != 0 {
		t.Errorf("minutes later: %+v, want no client kept", got)
	}
}

// Other options: what was said of a quota that stays is kept, and one that is new is not known for
// a window. With a fault nothing changes.
func TestChange(t *testing.T) {
	a := aggregator(t)
	say(t, a, wire.Report{Client: 1, First: true, Sent: 10, Queue: 5, Time: at(40 * time.Second)})
	say(t, a, wire.Report{Client: 2, First: true, Sent: 10, Queue: 5, Time: at(40 * time.Second)})
	next := telemetry.Options{
		Quotas: []telemetry.Quota{{Name: "api", Capacity: 2}, {Name: "new"}}, Secrets: [][]byte{secret},
		Window: time.Hour, MaxClients: 1,
	}
	faulty := next
	faulty.Quotas = append(faulty.Quotas, telemetry.Quota{Name: "new"})
	if err := a.Change(faulty, at(45*time.Second)); err == nil || len(a.Status(at(45*time.Second)).Quotas) != 1 {
		t.Errorf("options with a quota given twice: %v, %+v", err, a.Status(at(45*time.Second)))
	}
	if err := a.Change(next, at(50*time.Second)); err != nil {
		t.Fatal(err)
	}
	if sum := say(t, a, wire.Report{Client: 1, Sent: 10, Queue: 7, Time: at(50 * time.Second)}); sum.Queue != 12 ||
		!sum.Configured || sum.Capacity != 2 || sum.Window != 30*time.Second {
		t.Errorf("after the change: %+v, want the queues of both clients, the new capacity and the window of before",
			sum)
	}
	for after, warm := range map[time.Duration]bool{60 * time.Second: false, 80 * time.Second: true} {
		if sum := say(t, a, wire.Report{Quota: "new", Client: uint64(after), First: true,
			Time: at(after)}); sum.Warm != warm {
			t.Errorf("of the new quota, %v: warm is %v, want %v", after, sum.Warm, warm)
		}
	}
	say(t, a, wire.Report{Client: 3, Time: at(61 * time.Second)}) // there is room for one client now
	if got := a.Status(at(61 * time.Second)).Quotas[0]; got.Clients != 1 {
		t.Errorf("%d clients are kept, want 1", got.Clients)
	}
}

// Counters go on, so what was lost is said by the next report; and begin anew with a client.
func TestCounters(t *testing.T) {
	for name, c := range map[string]struct {
		reports []wire.Report
		want    int // sent
	}{
		"one is lost":                  {[]wire.Report{{First: true, Sent: 3}, {Sent: 20}}, 20},
		"the first is lost":            {[]wire.Report{{Sent: 3}, {Sent: 5}}, 2},
		"begins anew":                  {[]wire.Report{{First: true, Sent: 30}, {Sent: 4}}, 34},
		"passes 2^32":                  {[]wire.Report{{Sent: math.MaxUint32 - 1}, {Sent: 3}}, 5},
		"more than one client can":     {[]wire.Report{{First: true, Sent: 1}, {Sent: math.MaxUint32}}, 10001},
		"more than can at first":       {[]wire.Report{{First: true, Sent: math.MaxUint32}}, 300000},
		"an aggregator that restarted": {[]wire.Report{{Sent: 4_000_000_000}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := aggregator(t)
			var sum wire.Aggregate
			for i, r := range c.reports {
				r.Client, r.Time = 1, at(time.Duration(i)*time.Second)
				sum = say(t, a, r)
			}
			if sum.Sent != c.want {
				t.Errorf("%d sent, want %d", sum.Sent, c.want)
			}
		})
	}
}

// Everything that is no good report is counted under its name, and answered by nothing.
func TestFaults(t *testing.T) {
	a := aggregator(t)
	good := wire.Report{Quota: "api", Client: 1, Number: 100, First: true, Sent: 1, Time: at(0)}
	if _, fault := a.Answer(at(0), sign(good, secret), nil); fault.String() != "none" {
		t.Fatalf("a good report: %v", fault)
	}
	change := func(f func(*wire.Report)) []byte {
		r := good
		r.Number = 101
		f(&r)
		return sign(r, secret)
	}
	flipped := sign(good, secret)
	flipped[50] ^= 1
	for name, c := range map[string]struct {
		message []byte
		want    string
	}{
		"nothing":              {nil, "malformed"},
		"the reference's JSON": {[]byte(`{"type":"stat","id":1,"sent":3}`), "malformed"},
		"too long":             {append(sign(good, secret), 0), "malformed"},
		"zeros":                {make([]byte, wire.Size), "malformed"},
		"an answer": {wire.Aggregate{Quota: "api", Client: 1, Number: 102, Time: at(0)}.Append(nil,
			wire.ClientKey(secret, "api", 1)), "malformed"},
		"another quota":             {change(func(r *wire.Report) { r.Quota = "other" }), "unknown_quota"},
		"another secret":            {sign(good, bytes.Repeat([]byte("x"), 32)), "forged"},
		"the key of another client": {good.Append(nil, wire.ClientKey(secret, "api", 2)), "forged"},
		"a bit flipped":             {flipped, "forged"},
		"a minute old":              {change(func(r *wire.Report) { r.Time = at(-time.Minute) }), "stale"},
		"from tomorrow":             {change(func(r *wire.Report) { r.Time = at(24 * time.Hour) }), "stale"},
		"once more":                 {sign(good, secret), "replayed"},
		"out of order":              {change(func(r *wire.Report) { r.Number = 99 }), "replayed"},
	} {
		before := a.Status(at(0)).Refused[c.want]
		reply, fault := a.Answer(at(0), c.message, nil)
		if fault.String() != c.want || len(reply) != 0 || a.Status(at(0)).Refused[c.want] != before+1 {
			t.Errorf("%s: %v with %d bytes of answer, want %s, counted and not answered", name, fault,
				len(reply), c.want)
		}
	}
	if _, fault := a.Answer(at(0), change(func(r *wire.Report) { r.Client = 7 }), nil); fault.String() != "none" {
		t.Errorf("a good report of another client: %v", fault)
	}
	previous := good
	previous.Client = 9
	if _, fault := a.Answer(at(0), sign(previous, older), nil); fault.String() != "none" {
		t.Errorf("a report by the previous secret: %v", fault)
	}
}

// One client among many that lies weighs no more than the next one, and can only say for itself that it is refused.
func TestALyingClient(t *testing.T) {
	a := aggregator(t)
	for id := range uint64(30) {
		say(t, a, wire.Report{Client: id + 1, First: true, Sent: 4, Accepted: 4, Queue: 3, Time: at(time.Second)})
	}
	sum := say(t, a, wire.Report{
		Client:    99,
		First:     true,
		Congested: true,
		Sent:      4e9,
		Accepted:  4e9,
		Refused:   4e9,
		Queue:     wire.MaxQueue,
		Time:      at(2 * time.Second),
	})
	if sum.Sent != 4*31 || sum.Queue != 3*31 || sum.Active != 31 || sum.Refusing != 1 {
		t.Errorf("with a liar: %+v, want 124 sent, 93 waiting and 1 of 31 refused", sum)
	}
	if r := (wire.Report{Quota: "api", Client: 1, Queue: math.MaxInt, Time: at(0)}); r.Append(nil, secret)[61] != 0 {
		t.Error("a queue is not bounded when it is written")
	}
}

// However many clients there seem to be, a table holds as many as it may: those that spoke last.
func TestTableIsBounded(t *testing.T) {
	a := aggregator(t, func(o *telemetry.Options) { o.MaxClients = 100 })
	for id := range uint64(1000) {
		say(t, a, wire.Report{Client: id, First: true, Queue: 1, Time: at(time.Duration(id) * time.Millisecond)})
	}
	s := a.Status(at(time.Second))
	if s.Quotas[0].Clients != 100 || s.Quotas[0].Queue != 100 || s.Evicted != 900 || s.Taken != 1000 {
		t.Errorf("status %+v, want 100 clients and 900 evicted", s)
	}
}

// Capacity is measured once clients were refused for a whole window while others waited.
func TestCapacityIsMeasured(t *testing.T) {
	a := aggregator(t)
	var sum wire.Aggregate
	for s := range 120 {
		served := uint32(100 + 2*s) // a burst at first, then two a second
		sum = say(t, a, wire.Report{
			Client:    1,
			First:     s == 0,
			Sent:      served + uint32(s),
			Accepted:  served,
			Refused:   uint32(s),
			Congested: s > 0,
			Queue:     50,
			Time:      at(time.Duration(s) * time.Second),
		})
		if s == 20 && sum.Capacity != 0 {
			t.Errorf("capacity %v after 20 s, want unknown: what was saved up is in it", sum.Capacity)
		}
	}
	if sum.Configured || sum.Capacity < 1.8 || sum.Capacity > 2.1 {
		t.Errorf("capacity %v (configured: %v), want 2 a second, measured", sum.Capacity, sum.Configured)
	}
	b := aggregator(t, func(o *telemetry.Options) { o.Quotas[0].Capacity = 4.0 / 3 })
	if sum := say(t, b, wire.Report{Client: 1, Time: at(0)}); !sum.Configured || math.Abs(sum.Capacity-4.0/3) > 1e-6 {
		t.Errorf("capacity %v (configured: %v), want 4/3, configured", sum.Capacity, sum.Configured)
	}
}

// The totals are those of a twin that keeps every report, to a fifteenth of a window.
func TestTotalsAgainstAListOfReports(t *testing.T) {
	a := aggregator(t)
	type event struct {
		at   time.Duration
		sent int
	}
	var all []event
	counters := map[uint64]uint32{}
	state := uint64(1)
	random := func(n uint64) uint64 {
		state = state*6364136223846793005 + 1442695040888963407
		return (state >> 33) % n
	}
	now := time.Duration(0)
	for i := range 2000 {
		now += time.Duration(random(400)+1) * time.Millisecond
		id, more := random(8)+1, int(random(50))
		_, known := counters[id]
		counters[id] += uint32(more)
		sum := say(t, a, wire.Report{Client: id, First: !known, Sent: counters[id], Time: at(now)})
		all = append(all, event{now, more})
		least, most := 0, 0
		for _, e := range all {
			if age := now - e.at; age <= 28*time.Second {
				least += e.sent
				most += e.sent
			} else if age <= 30*time.Second {
				most += e.sent
			}
		}
		if sum.Sent < least || sum.Sent > most {
			t.Fatalf("report %d at %v: %d sent, want %d to %d", i, now, sum.Sent, least, most)
		}
	}
}

// Clocks that go back break nothing.
func TestClockGoesBack(t *testing.T) {
	a := aggregator(t)
	say(t, a, wire.Report{Client: 1, Number: 1, First: true, Sent: 5, Time: at(time.Hour)})
	sum := say(t, a, wire.Report{Client: 1, Number: 2, Sent: 9, Time: at(time.Minute)})
	if sum.Active != 1 || sum.Sent < 0 {
		t.Errorf("%+v, want one client", sum)
	}
}

func TestOptionsSayEverything(t *testing.T) {
	_, err := telemetry.New(telemetry.Options{
		Quotas: []telemetry.Quota{{Name: "A b"}, {Name: "api"}, {Name: "api"}}, Secrets: [][]byte{[]byte("short")},
		Window: time.Millisecond, MaxClients: -1,
	}, epoch)
	for _, want := range []string{`"A b"`, "given twice", "5 bytes long, want 32", "window is 1ms, want 1s to 1h",
		"max clients is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want it to say %s", err, want)
		}
	}
}

// Whatever a datagram holds, the answer is nothing or as long as a report, and the aggregator goes on.
func FuzzAnswer(f *testing.F) {
	good := wire.Report{Quota: "api", Client: 1, Number: 1, Time: at(0)}
	f.Add(sign(good, secret), uint32(0))
	f.Add([]byte(`{"type":"cong","id":1,"sent":-3}`), uint32(5))
	f.Fuzz(func(t *testing.T, message []byte, ms uint32) {
		a := aggregator(t, func(o *telemetry.Options) { o.MaxClients = 3 })
		now := at(time.Duration(ms) * time.Millisecond)
		reply, _ := a.Answer(now, message, nil)
		signed := message
		if len(message) >= wire.Size { // the same, by somebody who has the secret
			if r, err := wire.ReadReport(message[:wire.Size]); err == nil {
				signed = sign(r, secret)
			}
		}
		again, _ := a.Answer(now, signed, nil)
		for _, r := range [][]byte{reply, again} {
			if len(r) != 0 && (len(r) != wire.Size || len(r) > len(message)) {
				t.Errorf("%d bytes are answered to %d", len(r), len(message))
			}
		}
		s := a.Status(now).Quotas[0]
		if s.Clients > 3 || s.Sent < 0 || s.Sent > 300_000 || s.Queue > wire.MaxQueue {
			t.Errorf("status %+v after one report", s)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	for _, clients := range []uint64{1, 100, 10_000} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			a := aggregator(b)
			var reply []byte
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				now := at(time.Duration(n) * 10 * time.Microsecond)
				reply, _ = a.Answer(now, sign(wire.Report{
					Quota:  "api",
					Client: n % clients,
					Number: n,
					Sent:   uint32(n),
					Time:   now,
				}, secret), reply[:0])
			}
		})
	}
}
