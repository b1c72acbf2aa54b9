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

	Left int64 // requests that were left out

	first int64
	kept  int
	by    map[string][]time.Duration
}

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
	lists := make([][]time.Duration, 0, len(a.by))
	for _, times := range a.by {
		if len(times) < a.Least {
			a.Left += int64(len(times))
			continue
		}
		slices.Sort(times)
		lists = append(lists, times)
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
