package replay

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// Arrivals keeps when each caller's requests came, as a workload for clients that pace
// themselves.
type Arrivals struct {
	For      time.Duration // from the first request on; 0 for all
	Requests int           // the first so many; 0 for all
	Least    int           // callers with fewer requests are left out

	// Over has the requests come faster or slower than they did, so that the last of those that are
	// kept comes so long after the first. 0 leaves their times as they are.
	Over time.Duration

	Left int64 // requests that were left out

	first int64
	kept  int
	by    map[string][]time.Duration
}

const longestLog = time.Duration(1<<63 - 1)

// maxArrivals bounds what is kept in memory: 8 bytes a request.
const maxArrivals = 10_000_000

func (a *Arrivals) count(at int64, caller string) {
	if a.by == nil {
		a.by, a.first = map[string][]time.Duration{}, at
	}
	since := time.Duration(max(0, at-a.first))
	if a.For > 0 && since > a.For || a.Requests > 0 && a.kept >= a.Requests || a.kept >= maxArrivals {
		a.Left++
		return
	}
	a.kept++
	a.by[caller] = append(a.by[caller], since)
}

// Write writes a line for each caller, those with most requests first: a number in the
// place of who it is, how many requests it has, and their times in seconds since the first of
// all, with tabs and commas between them.
func (a *Arrivals) Write(w io.Writer) (callers, requests int, err error) {
	lists, first, last := make([][]time.Duration, 0, len(a.by)), longestLog, time.Duration(0)
	for _, times := range a.by {
		if len(times) < a.Least {
			a.Left += int64(len(times))
			continue
		}
		slices.Sort(times)
		first, last = min(first, times[0]), max(last, times[len(times)-1])
		lists = append(lists, times)
	}
	if a.Over > 0 && last > first {
		for _, times := range lists {
			for i, t := range times {
				times[i] = time.Duration(float64(t-first) / float64(last-first) * float64(a.Over)).
					Round(time.Millisecond)
			}
		}
	}
	slices.SortFunc(lists, func(x, y []time.Duration) int {
		if len(x) != len(y) {
			return len(y) - len(x)
		}
		return slices.Compare(x, y)
	})
	out := bufio.NewWriter(w)
	for i, times := range lists {
		fmt.Fprintf(out, "%d\t%d\t", i, len(times))
		for j, t := range times {
			if j > 0 {
				_ = out.WriteByte(',')
			}
			_, _ = out.WriteString(strconv.FormatFloat(t.Seconds(), 'f', -1, 64))
		}
		_ = out.WriteByte('\n')
		requests += len(times)
	}
	return len(lists), requests, out.Flush() // reports what went wrong before, too
}
