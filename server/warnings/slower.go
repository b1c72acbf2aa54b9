package warnings

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// slower watches what the API's answers take, by endpoint. Each minute with enough answers is compared with the usual
// one, which is the mean of those before, and fades: of two minutes that are six hours apart the older weighs half.
// Minutes that are slower than usual while more is admitted do not enter it, so that a warning does not end itself.
//
//	answer ──▶ cells of the minute ──each minute──▶ as usual? ──▶ usual
//	                                            └─▶ slower, and more of them ──for SlowerFor──▶ warning
type slower struct {
	mu sync.RWMutex
	at map[string]*answers // by template; guarded by mu

	on atomic.Int64 // warnings that are not over
}

const (
	// Each cell of times ends at 2^(1/4) times the end of the one before: 19 % later. The first one ends at a
	// millisecond, the last one holds all above a minute.
	perOctave = 4
	timeCells = 1 + 16*perOctave + 1

	fewAnswers  = 100                   // in a minute, of which its 99th percentile says nothing
	leastKnown  = 30                    // minutes that the usual one is made of, at least
	leastRise   = 10 * time.Millisecond // which nobody minds
	moreBegins  = 1.2                   // of the usual requests
	moreIsOver  = 1.1
	longest     = 24 * time.Hour // of a warning: then it is usual
	idleMinutes = 24 * 60        // until an endpoint is forgotten
)

// fade is what a minute weighs when another one comes after it.
var fade = math.Exp2(-1.0 / (6 * 60))

// answers are those of one endpoint.
type answers struct {
	minute [timeCells]atomic.Uint32

	// What follows is the looking goroutine's.
	usual   [timeCells]float64 // answers, faded
	minutes float64            // that are in it, faded
	idle    int                // minutes without an answer
	episode episode
	begun   int64
}

// Times reports whether what the API takes is counted.
func (w *Watch) Times() bool { return w.marks.Load().SlowerPercent > 0 }

// Took counts what the API took to begin its answer to a request of an endpoint.
func (w *Watch) Took(endpoint string, took time.Duration) {
	if w.Times() {
		w.slower.of(endpoint).minute[timeCell(took)].Add(1)
	}
}

func (s *slower) of(endpoint string) *answers {
	s.mu.RLock()
	a := s.at[endpoint]
	s.mu.RUnlock()
	if a != nil {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a = s.at[endpoint]; a == nil {
		a = &answers{}
		if s.at == nil {
			s.at = map[string]*answers{}
		}
		s.at[endpoint] = a
	}
	return a
}

// timeCell is the cell of a time.
func timeCell(took time.Duration) int {
	if took < time.Millisecond {
		return 0
	}
	cell := 1 + int(perOctave*math.Log2(float64(took)/float64(time.Millisecond)))
	return min(cell, timeCells-1)
}

// cellEnd is the time that those of a cell are below.
func cellEnd(cell int) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Exp2(float64(cell)/perOctave))
}

// p99 is the end of the cell up to which 99 of 100 answers are, and how many there are.
func p99(counts *[timeCells]float64) (long time.Duration, all float64) {
	for _, n := range counts {
		all += n
	}
	sum := 0.0
	for i, n := range counts {
		if sum += n; sum >= 0.99*all {
			return cellEnd(i), all
		}
	}
	return cellEnd(timeCells - 1), all
}

// look takes in the minute that is over, and returns what is to be told of it.
func (s *slower) look(now int64, m *Marks) (told []*Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for endpoint, a := range s.at {
		if e := a.look(now, m); e != nil {
			e.Kind, e.Endpoint = Slower, endpoint
			told = append(told, e)
			s.count(e)
		}
		if a.idle > idleMinutes && !a.episode.on {
			delete(s.at, endpoint)
		}
	}
	return told
}

func (a *answers) look(now int64, m *Marks) (told *Event) {
	var minute [timeCells]float64
	for i := range a.minute {
		minute[i] = float64(a.minute[i].Swap(0))
	}
	long, n := p99(&minute)
	usual, all := p99(&a.usual)
	more := n / max(1, all/max(1, a.minutes))
	above := 100 * (float64(long)/float64(usual) - 1)
	holds := n >= fewAnswers && a.minutes >= leastKnown && long-usual >= leastRise &&
		above >= float64(m.SlowerPercent) && more >= moreBegins
	switch {
	case a.episode.on:
		holds = n < fewAnswers || above < float64(m.SlowerPercent)/2 || more < moreIsOver // it is better
	case n == 0:
		a.idle++
	case n >= fewAnswers && !holds:
		a.learn(&minute)
	}
	if n > 0 {
		a.idle = 0
	}
	stays := a.episode.on && now-a.begun >= int64(longest)
	if !a.episode.look(now, holds, m.SlowerFor) && !stays {
		return nil
	}
	if !a.episode.on || stays {
		if stays {
			*a = answers{} // to be learned anew
		}
		return &Event{State: "over", Percent: max(0, int(above)), Requests: int64(n)}
	}
	a.begun = now
	return &Event{
		State: "begun", Percent: int(above), Requests: int64(n), P99: long.Seconds(), UsualP99: usual.Seconds(),
		UsualRequests: int64(all / a.minutes),
	}
}

// learn takes a minute into the usual one.
func (a *answers) learn(minute *[timeCells]float64) {
	for i := range a.usual {
		a.usual[i] = a.usual[i]*fade + minute[i]
	}
	a.minutes = a.minutes*fade + 1
}

// count counts warnings that are not over.
func (s *slower) count(e *Event) {
	if e.State == "begun" {
		s.on.Add(1)
	} else {
		s.on.Add(-1)
	}
}

func (s *slower) begun() int { return int(s.on.Load()) }

// end forgets all, and returns that what has begun is over.
func (s *slower) end() (told []*Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for endpoint, a := range s.at {
		if a.episode.on {
			told = append(told, &Event{Kind: Slower, State: "over", Endpoint: endpoint})
		}
	}
	s.at = nil
	s.on.Store(0)
	return told
}
