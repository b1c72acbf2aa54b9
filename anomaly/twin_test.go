package anomaly_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/anomaly"
)

// twin is one caller, counted the slow way: it keeps every event, and looks at all of them each time.
type twin struct {
	width  int64
	now    int64 // by which the window is: the clock, but for a step back by less than a window
	newest int64
	events []event

	usual   int64 // in 1024ths of a request
	windows int64
}

type event struct {
	window   int64
	request  anomaly.Request
	answered bool
	status   int
}

// pass brings the twin to a time.
func (w *twin) pass(now int64) {
	at := now / w.width
	switch {
	case at == w.newest || at == w.newest-1:
		w.now = max(now, w.newest*w.width)
		return
	case at < w.newest:
		w.events = nil
	default:
		sent := w.sum(w.newest, func(e *event) int64 { return w.sent(e) })
		if sent > 0 {
			learned := sent * 1024
			if most := 2 * max(w.usual, anomaly.LeastUsual*1024); w.windows >= anomaly.Learning && learned > most {
				learned = most
			}
			w.windows = min(w.windows+1, anomaly.Memory)
			w.usual += (learned - w.usual) / w.windows
		}
	}
	w.newest, w.now = at, now
}

func (w *twin) sent(e *event) int64 {
	if e.answered {
		return 0
	}
	return max(1, e.request.Parts)
}

func (w *twin) sum(window int64, of func(*event) int64) (sum int64) {
	for i := range w.events {
		if w.events[i].window == window {
			sum += of(&w.events[i])
		}
	}
	return sum
}

// count is what counts of something now.
func (w *twin) count(of func(*event) int64) float64 {
	left := 1 - float64(w.now-w.newest*w.width)/float64(w.width)
	return float64(w.sum(w.newest, of)) + left*float64(w.sum(w.newest-1, of))
}

func (w *twin) asked(r anomaly.Request) {
	w.events = append(w.events, event{window: w.newest, request: r})
}

func (w *twin) answer(status int) {
	w.events = append(w.events, event{window: w.newest, answered: true, status: status})
}

func if1(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// account is what an Account says.
func (w *twin) account() (a anomaly.Account) {
	passed := func(e *event) bool { return !e.answered && !e.request.Denied }
	a.Sent = w.count(w.sent)
	a.Asked = w.count(func(e *event) int64 { return if1(passed(e)) })
	a.Unknown = w.count(func(e *event) int64 { return if1(passed(e) && e.request.Unknown) })
	a.Disguised = w.count(func(e *event) int64 { return if1(passed(e) && e.request.Disguised) })
	a.Answers = w.count(func(e *event) int64 { return if1(e.answered) })
	a.Errors = w.count(func(e *event) int64 { return if1(e.answered && e.status/100 == 4 && e.status != 429) })
	a.Fresh = w.count(func(e *event) int64 {
		if !passed(e) || e.request.Unknown {
			return 0
		}
		for i := range w.events {
			o := &w.events[i]
			if o == e {
				break
			}
			if passed(o) && !o.request.Unknown && o.request.Endpoint == e.request.Endpoint &&
				e.window-o.window <= 1 {
				return 0
			}
		}
		return 1
	})
	a.Usual, a.Windows = float64(w.usual)/1024, int(w.windows)
	return a
}

// points are those of a score, as they stand at the parts.
func points(a anomaly.Account, weights [anomaly.Parts]uint8) (all [anomaly.Parts]float64) {
	ramp := func(x, from, to float64) float64 { return min(1, max(0, (x-from)/(to-from))) }
	share := func(some, all float64) float64 { return 100 * some / max(all, anomaly.Least) }
	if a.Windows >= anomaly.Learning {
		all[anomaly.Rate] = ramp(a.Sent/max(a.Usual, anomaly.LeastUsual), 2, 10)
	}
	all[anomaly.Endpoints] = ramp(share(a.Fresh, a.Asked), 30, 80)
	all[anomaly.Errors] = ramp(share(a.Errors, a.Answers), 20, 80)
	all[anomaly.Unknown] = ramp(share(a.Unknown, a.Asked), 10, 50)
	all[anomaly.Spellings] = ramp(share(a.Disguised, a.Asked), 10, 50)
	for part := range all {
		all[part] *= float64(weights[part])
	}
	return all
}

// TestScoresAreWhatTheSlowWayFinds: whatever a caller does and whatever the clock does, an account and its score are
// those that a list of all events gives.
func TestScoresAreWhatTheSlowWayFinds(t *testing.T) {
	scored := 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 20))
		settings := &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights}
		table := anomaly.New(512)
		table.Use(settings)
		now := start + random.Int64N(minute)
		w := &twin{width: minute, newest: now / minute, now: now}
		pace := second
		for range 600 {
			switch random.IntN(60) {
			case 0:
				now += random.Int64N(5 * minute)
			case 1:
				now -= random.Int64N(4 * minute)
			case 2:
				pace = 1 + random.Int64N(5*second)
			default:
				now += random.Int64N(pace)
			}
			w.pass(now)
			if random.IntN(3) == 0 && len(w.events) > 0 {
				status := []int{200, 404, 403, 429, 500}[random.IntN(5)]
				table.Answered(now, somebody, status)
				w.answer(status)
			} else {
				r := anomaly.Request{
					Parts: random.Int64N(3), Denied: random.IntN(4) == 0, Endpoint: random.Uint64N(6),
					Unknown: random.IntN(5) == 0, Disguised: random.IntN(7) == 0,
				}
				table.Asked(now, somebody, r)
				w.asked(r)
			}
			got, known := table.Account(now, somebody)
			if !known {
				t.Fatalf("seed %d: nothing is known of who asked", seed)
			}
			agree(t, seed, got, w.account(), settings.Weights)
			if got.Score != table.Score(now, somebody) {
				t.Fatalf("seed %d: Score says %+v, Account %+v", seed, table.Score(now, somebody), got.Score)
			}
			scored += int(got.Score.Total)
		}
	}
	if scored == 0 {
		t.Error("nobody had a score")
	}
}

// agree compares an account with the twin's. A part of the last window counts in 1024ths, a point is rounded down.
func agree(t *testing.T, seed uint64, got, want anomaly.Account, weights [anomaly.Parts]uint8) {
	t.Helper()
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.01+b/1000+0.2 }
	if !near(got.Sent, want.Sent) || !near(got.Asked, want.Asked) || !near(got.Fresh, want.Fresh) ||
		!near(got.Unknown, want.Unknown) || !near(got.Disguised, want.Disguised) ||
		!near(got.Answers, want.Answers) || !near(got.Errors, want.Errors) ||
		got.Usual != want.Usual || got.Windows != want.Windows {
		t.Fatalf("seed %d:\n got %+v\nwant %+v", seed, got, want)
	}
	if got.Score.Known != (want.Windows > 0) {
		t.Fatalf("seed %d: known is %v after %d windows", seed, got.Score.Known, want.Windows)
	}
	sum := 0
	for part, points := range points(want, weights) {
		if !got.Score.Known {
			points = 0
		}
		if own := float64(got.Score.Parts[part]); math.Abs(own-points) > 2 {
			t.Fatalf("seed %d: %v has %v points, want %.2f, of %+v", seed, anomaly.Part(part), own, points, want)
		}
		sum += int(got.Score.Parts[part])
	}
	if int(got.Score.Total) != min(sum, 100) {
		t.Fatalf("seed %d: the total is %d, and the parts are %v", seed, got.Score.Total, got.Score.Parts)
	}
}
