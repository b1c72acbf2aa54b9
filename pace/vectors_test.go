package pace_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// vector is a life of one client, as testdata/README.md describes it.
type vector struct {
	Name      string    `json:"name"`
	Algorithm string    `json:"algorithm"`
	Profile   string    `json:"profile"`
	Options   options   `json:"options"`
	Random    []float64 `json:"random"`
	Events    []happens `json:"events"`
}

type options struct {
	PerMinute int     `json:"perMinute,omitempty"`
	Bucket    float64 `json:"bucket,omitempty"`
	Rate      float64 `json:"rate,omitempty"`
	Congested float64 `json:"congested,omitempty"`
	Gate      bool    `json:"gate,omitempty"`
}

type happens struct {
	At        float64    `json:"at"`
	Do        string     `json:"do"`
	Attempt   int        `json:"attempt,omitempty"`
	Requests  int        `json:"requests,omitempty"`
	Hint      *hint      `json:"hint,omitempty"`
	Aggregate *aggregate `json:"aggregate,omitempty"`

	Report     *report  `json:"report,omitempty"`
	Next       float64  `json:"next"`
	Concurrent int      `json:"concurrent"`
	Rate       float64  `json:"rate"`
	NextReport *float64 `json:"nextReport,omitempty"`
}

var profiles = map[string]pace.Profile{
	"corrected": pace.Corrected,
	"published": pace.Published,
	"reference": pace.Reference,
}

// algorithms are a twin and what it is one of, by the names in the vectors.
func (v *vector) twin(random func() float64) twin {
	o, profile := v.Options, profiles[v.Profile]
	switch v.Algorithm {
	case "ub":
		return newTwinUB(random)
	case "wb":
		return &twinWB{twinUB: newTwinUB(random), perMinute: o.PerMinute, attempts: profile == pace.Published}
	case "atb":
		return newTwinATB(profile, o.Bucket, o.Rate, o.Congested, random)
	case "aatb":
		return newTwinAATB(profile, o.Bucket, o.Rate, o.Gate, random)
	case "ap":
		return newTwinAP(random)
	case "hatb":
		return newTwinHATB(newTwinAP(random), random)
	case "xatb":
		return newTwinXATB(o.Gate, random)
	case "auto":
		return newTwinAuto(random)
	}
	panic("no algorithm " + v.Algorithm)
}

func (v *vector) algorithm() pace.Algorithm {
	o, profile := v.Options, profiles[v.Profile]
	switch v.Algorithm {
	case "ub":
		return pace.UB{}
	case "wb":
		return pace.WB{PerMinute: o.PerMinute, Profile: profile}
	case "atb":
		return pace.ATB{Bucket: o.Bucket, Rate: o.Rate, Congested: o.Congested, MaxRate: math.Inf(1), Profile: profile}
	case "aatb":
		return pace.AATB{Bucket: o.Bucket, Rate: o.Rate, MaxRate: math.Inf(1), Gate: o.Gate, Profile: profile}
	case "ap":
		return pace.AP{}
	case "hatb":
		return pace.HATB{}
	case "xatb":
		return pace.XATB{Gate: o.Gate}
	case "auto":
		return pace.Auto{}
	}
	panic("no algorithm " + v.Algorithm)
}

// life makes up what happens to a client, by what its twin does. Its server is a small
// bucket that says something of itself now and then, and its aggregator loses some
// answers.
func (v *vector) life(seed uint64, events int) {
	chance := rand.New(rand.NewPCG(seed, 15))
	t := v.twin(func() float64 {
		draw := math.Floor(chance.Float64()*1e4) / 1e4
		v.Random = append(v.Random, draw)
		return draw
	})
	sharing, _ := t.(sharingTwin)
	// A microsecond later than due, lest the last bit of a number decides.
	micro := func(s float64) float64 { return math.Ceil(s*1e6+1) / 1e6 }
	const never = 1e12
	var (
		now, tokens, last     = 0.0, 3.0, 0.0
		backlog, attempt      = 0, 0
		arrive, answer, tells = 0.5, never, never
		under                 int // requests on the network
	)
	note := func(e happens) {
		e.At = now
		e.Next, e.Concurrent, e.Rate = math.Max(now, t.next(now)), t.concurrent(), t.rate()
		if sharing != nil {
			if due := sharing.nextReport(now); due < never {
				e.NextReport = &due
			}
		}
		v.Events = append(v.Events, e)
	}
	queue := func() {
		if sharing != nil {
			sharing.queue(now, backlog+under)
			note(happens{Do: "queue", Requests: backlog + under})
		}
	}
	for len(v.Events) < events {
		send, reports := never, never
		if most := t.concurrent(); backlog > 0 && under < 3 && (most == 0 || under < most) {
			send = math.Max(now, micro(t.next(now)))
		}
		if sharing != nil {
			reports = math.Max(now, micro(sharing.nextReport(now)))
		}
		now = math.Min(math.Min(math.Min(arrive, answer), math.Min(send, reports)), tells)
		switch now {
		case arrive:
			backlog += 1 + chance.IntN(8)
			arrive = micro(now + 60*chance.ExpFloat64())
			queue()
		case answer:
			tokens, last = math.Min(3, tokens+(now-last)*0.08), now
			h := v.said(chance, tokens)
			if attempt = attempt + 1; tokens >= 1 {
				tokens--
				t.accepted(now, h)
				note(happens{Do: "accepted", Hint: &h})
				attempt = 0
				under--
				queue()
			} else {
				t.refused(now, attempt, h)
				note(happens{Do: "refused", Attempt: attempt, Hint: &h})
				under--
				backlog++
			}
			if answer = never; under > 0 {
				answer = now + 0.001
			}
		case tells:
			tells = never
			a := aggregate{
				Sent: int64(chance.IntN(60)), Active: 1 + chance.IntN(5), Waiting: int64(chance.IntN(40)),
				LastRefusal: -1, PerSecond: float64(chance.IntN(5)) / 2, Partial: chance.IntN(6) == 0,
			}
			if chance.IntN(2) == 0 {
				a.Refusals = int64(1 + chance.IntN(8))
				a.Refused = 1 + chance.IntN(a.Active)
				a.LastRefusal = float64(chance.IntN(120))
			}
			if chance.IntN(4) == 0 {
				a.Waiting = int64(chance.IntN(2))
			}
			sharing.told(now, a)
			note(happens{Do: "told", Aggregate: &a})
		case reports:
			r := sharing.report(now)
			note(happens{Do: "report", Report: r})
			silent := now > 150 && now < 300 // the aggregator is down for a while
			if r != nil && !silent && chance.IntN(5) > 0 {
				tells = now + [...]float64{0.006, 0.006, 0.006, 2, 4}[chance.IntN(5)]
			}
		case send:
			backlog--
			under++
			t.sent(now)
			note(happens{Do: "sent"})
			answer = math.Min(answer, now+0.006)
		}
	}
}

// said is what the server says of itself: much for algorithms that listen.
func (v *vector) said(chance *rand.Rand, tokens float64) hint {
	h := hint{RoundTrip: [...]float64{0.006, 0.4, 2.5}[len(v.Events)%3]}
	if v.Algorithm == "ap" && chance.IntN(3) == 0 {
		h.Burst, h.Gap = 3, 20
	}
	if v.Algorithm != "hatb" && v.Algorithm != "auto" {
		return h
	}
	remaining := int64(math.Max(0, tokens-1))
	switch chance.IntN(5) {
	case 0: // nothing
	case 1:
		h.Wait = float64(chance.IntN(8))
	case 2:
		h.Remaining = &remaining
		if remaining == 0 {
			h.Wait = float64(1 + chance.IntN(6))
		}
	default:
		h.Remaining, h.Burst, h.Gap = &remaining, 3, 20
		h.Reserves = true
		if remaining == 0 {
			h.Slot, h.Wait = true, 0.25*float64(1+chance.IntN(20))
		}
	}
	return h
}

func vectors() []vector {
	var all []vector
	add := func(algorithm, profile string, o options) {
		for n := range 2 {
			name := fmt.Sprintf("%s %s %d", algorithm, profile, n+1)
			if o.Gate {
				name += " gated"
			}
			v := vector{Name: name, Algorithm: algorithm, Profile: profile, Options: o}
			v.life(uint64(len(all)+1), 120)
			all = append(all, v)
		}
	}
	bucket := options{Bucket: 40, Rate: 2.0 / 3, Congested: 5}
	add("ub", "corrected", options{})
	for _, profile := range []string{"corrected", "published", "reference"} {
		add("wb", profile, options{PerMinute: 6})
		add("atb", profile, bucket)
		add("aatb", profile, options{Bucket: 40, Rate: 2.0 / 3})
	}
	add("aatb", "corrected", options{Bucket: 4, Rate: 4.0 / 60, Gate: true})
	for _, algorithm := range []string{"ap", "hatb", "xatb", "auto"} {
		add(algorithm, "corrected", options{})
	}
	add("xatb", "corrected", options{Gate: true})
	return all
}

const vectorFile = "testdata/algorithms.json"

var update = flag.Bool("update", false, "write the vectors anew")

// written is how the file has them: one event a line.
func written(vectors []vector) []byte {
	var b bytes.Buffer
	b.WriteString("[")
	for i, v := range vectors {
		events := v.Events
		v.Events = nil
		head, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n%s[", bytes.TrimSuffix(head, []byte("null}")))
		for j, e := range events {
			line, err := json.Marshal(e)
			if err != nil {
				panic(err)
			}
			if j > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, "\n %s", line)
		}
		b.WriteString("\n]}")
	}
	b.WriteString("\n]\n")
	return b.Bytes()
}

// The vectors are what the twins say. To change them on purpose, run this with -update.
func TestVectorsAreTheTwins(t *testing.T) {
	want := written(vectors())
	if *update {
		if err := os.WriteFile(vectorFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, vectorFile); !bytes.Equal(got, want) {
		t.Errorf("%s is not what the twins say; go test ./pace -run Vectors -update writes it", vectorFile)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func duration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

func (h *hint) hint() pace.Hint {
	got := pace.Hint{
		Wait: duration(h.Wait), Remaining: -1, Slot: h.Slot, Burst: h.Burst, Gap: duration(h.Gap),
		Reserves: h.Reserves, RoundTrip: duration(h.RoundTrip),
	}
	if h.Remaining != nil {
		got.Remaining = *h.Remaining
	}
	return got
}

// Every algorithm does what the vectors say, to a microsecond.
func TestVectors(t *testing.T) {
	var all []vector
	if err := json.Unmarshal(readFile(t, vectorFile), &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		t.Run(v.Name, func(t *testing.T) {
			drawn := 0
			p := v.algorithm().Start(0, func() float64 {
				if drawn == len(v.Random) {
					t.Fatal("more random numbers are drawn than there are")
				}
				drawn++
				return v.Random[drawn-1]
			})
			sharer, _ := p.(pace.Sharer)
			for i, e := range v.Events {
				now := duration(e.At)
				var sent *report
				switch e.Do {
				case "sent":
					p.Sent(now)
				case "accepted":
					p.Accepted(now, e.Hint.hint())
				case "refused":
					p.Refused(now, e.Attempt, e.Hint.hint())
				case "queue":
					sharer.Queue(now, e.Requests)
				case "report":
					if r, due := sharer.Report(now); due {
						sent = &report{r.Congested, r.Sent, r.Accepted, r.Refused, r.Waiting}
					}
				case "told":
					a := e.Aggregate
					sharer.Told(now, pace.Aggregate{
						Sent: a.Sent, Active: a.Active, Refusals: a.Refusals, Refused: a.Refused, Waiting: a.Waiting,
						LastRefusal: duration(a.LastRefusal), PerSecond: a.PerSecond, Partial: a.Partial,
					})
				default:
					t.Fatalf("event %d: no such thing as %q", i, e.Do)
				}
				near := func(what string, got, want float64) {
					t.Helper()
					if math.Abs(got-want) > 1e-6*math.Max(1, want) {
						t.Fatalf("event %d, %s at %v: %s is %.9g, want %.9g", i, e.Do, e.At, what, got, want)
					}
				}
				near("next", max(now, p.Next(now)).Seconds(), e.Next)
				near("concurrent", float64(p.Concurrent()), float64(e.Concurrent))
				near("rate", p.Rate(), e.Rate)
				if (sent == nil) != (e.Report == nil) || sent != nil && *sent != *e.Report {
					t.Fatalf("event %d at %v: report %+v, want %+v", i, e.At, sent, e.Report)
				}
				if e.NextReport != nil {
					near("next report", max(now, sharer.NextReport(now)).Seconds(), max(e.At, *e.NextReport))
				} else if sharer != nil && sharer.NextReport(now) < 1<<62 {
					t.Fatalf("event %d at %v: a report is due at %v, want none", i, e.At, sharer.NextReport(now))
				}
			}
			if drawn != len(v.Random) {
				t.Errorf("%d random numbers were drawn, want %d", drawn, len(v.Random))
			}
		})
	}
}

// A vector that never sees a refusal or an answer of the aggregator holds nobody to
// anything.
func TestVectorsAreVaried(t *testing.T) {
	for _, v := range vectors() {
		seen := map[string]int{}
		for _, e := range v.Events {
			seen[e.Do]++
		}
		if seen["accepted"] < 5 || seen["refused"] < 2 {
			t.Errorf("%s: %v, want requests that are accepted and some that are refused", v.Name, seen)
		}
		if _, sharing := v.twin(func() float64 { return 0 }).(sharingTwin); sharing && seen["told"] < 3 {
			t.Errorf("%s: %v, want answers of the aggregator", v.Name, seen)
		}
	}
}
