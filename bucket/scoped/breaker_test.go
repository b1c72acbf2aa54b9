package scoped

import (
	"testing"
	"time"
)

// step is an answer, or a question what way a request takes.
type step struct {
	at    time.Duration
	do    string // "ok", "fail", "late"; "try ok", "try fail": the way and then the answer; "ask": the way alone
	times int    // 0 is once
	want  string // what it changed, or the way
}

func TestBreaker(t *testing.T) {
	for name, steps := range map[string][]step{
		"five failures in a row": {
			{do: "fail", times: 4, want: "same"},
			{at: time.Hour, do: "fail", want: "opened"}, // nobody asked in between
			{at: time.Hour, do: "ask", want: "lost"},
		},
		"four, and one that succeeds": {
			{do: "fail", times: 4, want: "same"},
			{do: "ok", want: "same"},
			{do: "fail", times: 4, want: "same"},
			{do: "fail", want: "opened"},
		},
		"many whose time is up at once": {
			{do: "ok", times: 100, want: "same"},
			{do: "late", times: 48, want: "same"},
			{at: 49 * time.Millisecond, do: "late", want: "same"},
			{at: 50 * time.Millisecond, do: "late", want: "opened"},
		},
		"a store that says nothing, to few": {
			{do: "late", want: "same"},
			{at: 100 * time.Millisecond, do: "late", times: 3, want: "same"},
			{at: 100 * time.Millisecond, do: "late", want: "opened"},
		},
		"a row that began again": {
			{do: "ok", times: 100, want: "same"},
			{do: "late", times: 48, want: "same"},
			{at: 20 * time.Millisecond, do: "ok", want: "same"},
			{at: 30 * time.Millisecond, do: "late", times: 10, want: "same"},
			{at: 79 * time.Millisecond, do: "late", want: "same"},
			{at: 80 * time.Millisecond, do: "late", want: "opened"},
		},
		"five that are sure among others": {
			{do: "ok", times: 100, want: "same"},
			{do: "late", times: 10, want: "same"},
			{do: "fail", times: 4, want: "same"},
			{do: "late", want: "same"},
			{do: "fail", want: "opened"},
		},
		"late, and a clock that is set back": {
			{at: time.Hour, do: "ok", times: 100, want: "same"},
			{at: time.Hour, do: "late", times: 5, want: "same"},
			{at: time.Minute, do: "late", want: "same"},
			{at: time.Minute + 50*time.Millisecond, do: "late", want: "opened"},
		},
		"half of twenty within a second": {
			{at: 0, do: "ok", times: 4, want: "same"},
			{at: 0, do: "fail", times: 4, want: "same"},
			{at: 400 * time.Millisecond, do: "ok", want: "same"},
			{at: 400 * time.Millisecond, do: "fail", times: 4, want: "same"},
			{at: 800 * time.Millisecond, do: "ok", times: 5, want: "same"},
			{at: 900 * time.Millisecond, do: "fail", want: "same"}, // 9 of 19
			{at: 999 * time.Millisecond, do: "fail", want: "opened"},
		},
		"half of twenty, but over more than a second": {
			{at: 0, do: "fail", times: 4, want: "same"},
			{at: 0, do: "ok", times: 6, want: "same"},
			{at: 1000 * time.Millisecond, do: "ok", times: 4, want: "same"},
			{at: 1000 * time.Millisecond, do: "fail", times: 4, want: "same"},
			{at: 1001 * time.Millisecond, do: "ok", want: "same"},
			{at: 1001 * time.Millisecond, do: "fail", times: 2, want: "same"},
		},
		"a third of many": {
			{do: "ok", times: 40, want: "same"},
			{do: "fail", times: 4, want: "same"},
			{do: "ok", times: 4, want: "same"},
			{do: "fail", times: 4, want: "same"},
			{do: "ok", want: "same"},
			{do: "fail", times: 4, want: "same"},
		},
		"three tries that succeed, 100 ms apart": {
			{do: "fail", times: 5, want: "opened last"},
			{at: 99 * time.Millisecond, do: "ask", want: "lost"},
			{at: 100 * time.Millisecond, do: "try ok", want: "same"},
			{at: 199 * time.Millisecond, do: "ask", want: "lost"},
			{at: 200 * time.Millisecond, do: "try ok", want: "same"},
			{at: 300 * time.Millisecond, do: "try ok", want: "closed"},
			{at: 300 * time.Millisecond, do: "ask", want: "usual"},
			{at: 300 * time.Millisecond, do: "fail", times: 4, want: "same"}, // what was before is forgotten
		},
		"a try that fails begins anew": {
			{do: "fail", times: 5, want: "opened last"},
			{at: 100 * time.Millisecond, do: "try ok", want: "same"},
			{at: 200 * time.Millisecond, do: "try ok", want: "same"},
			{at: 300 * time.Millisecond, do: "try fail", want: "same"},
			{at: 400 * time.Millisecond, do: "try ok", want: "same"},
			{at: 500 * time.Millisecond, do: "try ok", want: "same"},
			{at: 600 * time.Millisecond, do: "try ok", want: "closed"},
		},
		"answers to who asked before change nothing": {
			{do: "fail", times: 5, want: "opened last"},
			{at: time.Millisecond, do: "ok", times: 50, want: "same"},
			{at: time.Millisecond, do: "ask", want: "lost"},
		},
		"a clock that is set back": {
			{at: time.Hour, do: "fail", times: 5, want: "opened last"},
			{at: time.Minute, do: "try ok", want: "same"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &breaker{vary: func(n int64) int64 { return n / 2 }, begin: func(int64) *outage { return new(outage) }}
			for i, st := range steps {
				var got string
				for range max(1, st.times) {
					got = b.do(t, int64(24*time.Hour+st.at), st.do)
				}
				want := st.want
				if want == "opened last" {
					want = "opened"
				}
				if got != want {
					t.Fatalf("step %d, %s at %v: %s, want %s", i, st.do, st.at, got, want)
				}
			}
		})
	}
}

// do takes a step and reports what came of it.
func (b *breaker) do(t *testing.T, now int64, what string) string {
	t.Helper()
	names := map[transition]string{same: "same", opened: "opened", closed: "closed"}
	switch what {
	case "ok", "fail", "late":
		turn, _ := b.answered(now, route{}, map[string]reply{"ok": well, "fail": badly, "late": nothing}[what])
		return names[turn]
	case "ask":
		way := b.route(now)
		if way.probe {
			b.release()
		}
		return map[route]string{{}: "usual", {lost: true}: "lost", {probe: true}: "try"}[way]
	}
	way := b.route(now)
	if !way.probe {
		t.Fatalf("at %d: %+v, want a try", now, way)
	}
	if second := b.route(now); !second.lost {
		t.Fatalf("at %d: a second try at the same time: %+v", now, second)
	}
	defer b.release()
	how := badly
	if what == "try ok" {
		how = well
	}
	turn, over := b.answered(now, way, how)
	if (over != nil) != (turn == closed) {
		t.Fatalf("at %d: %s, over %v", now, names[turn], over)
	}
	return names[turn]
}

// Tries come 75 to 125 ms apart.
func TestBreakerVariesItsPauses(t *testing.T) {
	for _, at := range []struct{ drawn, want int64 }{{0, 75}, {int64(apart), 125}} {
		b := &breaker{
			vary:  func(n int64) int64 { return min(at.drawn, n-1) },
			begin: func(int64) *outage { return new(outage) },
		}
		for range inRow {
			b.answered(0, route{}, badly)
		}
		want := at.want * int64(time.Millisecond)
		if early := b.route(want - 1); !early.lost {
			t.Errorf("%d ns before its time: %+v, want lost", 1, early)
		}
		if due := b.route(want); !due.probe {
			t.Errorf("after %d ms: %+v, want a try", at.want, due)
		}
	}
}
