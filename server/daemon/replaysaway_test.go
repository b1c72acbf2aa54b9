package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
)

// TestAStoreThatIsAwayIsAskedSeldom: after five failures in a row one request a second waits for it, until it answers.
func TestAStoreThatIsAwayIsAskedSeldom(t *testing.T) {
	var said livelog.Text
	all := &together{what: "proofs", log: slog.New(slog.NewTextHandler(&said, nil))}
	now, away := time.Unix(1_700_000_000, 0), errors.New("away")
	ask := func(err error) int {
		asked := 0
		for range 10 {
			if all.asks(now) {
				asked++
				all.answered(err, now)
			}
		}
		return asked
	}
	for i, step := range []struct {
		after time.Duration
		err   error
		asked int
	}{
		{0, nil, 10}, {0, away, 5}, {time.Second - 1, away, 0}, {1, away, 1}, {time.Second, away, 1},
		{time.Second, nil, 10}, {0, away, 5},
	} {
		now = now.Add(step.after)
		if got := ask(step.err); got != step.asked {
			t.Errorf("step %d: the store is asked %d times of 10, want %d", i, got, step.asked)
		}
	}
	if text := said.String(); strings.Count(text, "level=WARN") != 2 || strings.Count(text, "level=INFO") != 1 {
		t.Errorf("the log says\n%s, want that it is lost, back and lost", text)
	}
}
