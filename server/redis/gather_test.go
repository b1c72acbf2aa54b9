package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/internal/deadline"
	"github.com/headgate-io/headgate/internal/redistest"
)

// line is a server that answers what it has got when told to. To each command it answers the command, as an error.
type line struct {
	mu   sync.Mutex
	sent [][]string // guarded by mu
	open []chan struct{}
}

func (l *line) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	select {
	case <-l.take([]rueidis.Completed{command}):
		return echo(command)
	case <-ctx.Done():
		return rueidis.NewErrorResult(ctx.Err())
	}
}

func (l *line) DoMulti(_ context.Context, commands ...rueidis.Completed) (answers []rueidis.RedisResult) {
	<-l.take(commands)
	for _, c := range commands {
		answers = append(answers, echo(c))
	}
	return answers
}

func echo(c rueidis.Completed) rueidis.RedisResult {
	return rueidis.NewErrorResult(errors.New(strings.Join(c.Commands(), " ")))
}

func (l *line) take(commands []rueidis.Completed) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, c := range commands {
		names = append(names, strings.Join(c.Commands(), " "))
	}
	answered := make(chan struct{})
	l.sent, l.open = append(l.sent, names), append(l.open, answered)
	return answered
}

// answer answers the oldest message, and says how many were in it.
func (l *line) answer() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open[0])
	n := len(l.sent[0])
	l.sent, l.open = l.sent[1:], l.open[1:]
	return n
}

// sizes is how many commands each message has that waits for its answer.
func (l *line) sizes() (sizes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.sent {
		sizes = append(sizes, len(m))
	}
	return sizes
}

// asks has a command sent, and reports an answer that is not its own, or not the error wanted.
func asks(t *testing.T, g *gatherer, l *line, within time.Duration, name string, want error) {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	asksWith(ctx, t, g, l, name, want)
}

func asksWith(ctx context.Context, t *testing.T, g *gatherer, l *line, name string, want error) {
	command := rueidis.Builder{}.Arbitrary("NAME", name).Build()
	err := g.do(ctx, l, command).Error()
	if want == nil && (err == nil || err.Error() != "NAME "+name) || want != nil && !errors.Is(err, want) {
		t.Errorf("%s is answered %v, want its own name, or %v", name, err, want)
	}
}

// Calls go alone while fewer than the most are under way, and together after that, however many
// come meanwhile. Everybody gets the answer to its own.
func TestCallsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := &gatherer{}, &line{}
		n := 0
		call := func(many int) {
			for range many {
				n++
				go asks(t, g, l, time.Hour, fmt.Sprint(n), nil)
			}
			synctest.Wait()
		}
		want := func(when string, sizes ...int) {
			t.Helper()
			if got := l.sizes(); !slices.Equal(got, sizes) {
				t.Errorf("%s: messages of %v under way, want %v", when, got, sizes)
			}
		}
		for range mostUnderWay {
			call(1)
		}
		want("one after the other", 1, 1, 1, 1)
		for range 7 {
			call(1)
		}
		call(mostTogether)
		want("no more than that", 1, 1, 1, 1)
		l.answer()
		synctest.Wait()
		want("one has come back", 1, 1, 1, mostTogether)
		l.answer()
		synctest.Wait()
		want("two have", 1, 1, mostTogether, 7)
		l.answer()
		l.answer()
		synctest.Wait()
		want("with nobody waiting", mostTogether, 7)
		call(1)
		want("and one more", mostTogether, 7, 1)
		for len(l.sizes()) > 0 {
			l.answer()
			synctest.Wait()
		}
		if g.underWay != 0 || len(g.waiting) != 0 {
			t.Errorf("%d are under way, and %d wait, want none: all are answered", g.underWay, len(g.waiting))
		}
	})
}

// Whose time is up does not wait for a server that says nothing, is not sent any more, and keeps no other from its own.
func TestWhoLeavesIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := &gatherer{}, &line{}
		for i := range mostUnderWay {
			go asks(t, g, l, time.Hour, fmt.Sprint("early ", i), nil)
			synctest.Wait()
		}
		began := time.Now()
		var hasty sync.WaitGroup
		for i := range 10 {
			hasty.Go(func() { asks(t, g, l, 5*time.Millisecond, fmt.Sprint("hasty ", i), context.DeadlineExceeded) })
			hasty.Go(func() {
				ctx := deadline.After(t.Context(), 5*time.Millisecond)
				defer ctx.End()
				asksWith(ctx, t, g, l, fmt.Sprint("hasty in its own way ", i), context.DeadlineExceeded)
			})
			hasty.Go(func() {
				client, leave := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer leave()
				ctx := deadline.After(client, time.Hour)
				defer ctx.End()
				asksWith(ctx, t, g, l, fmt.Sprint("of a hasty client ", i), context.DeadlineExceeded)
				if client.Err() == nil {
					t.Error("the answer says that the time is up, want it only after the client's is")
				}
			})
		}
		go asks(t, g, l, time.Hour, "patient", nil)
		hasty.Wait()
		if took := time.Since(began); took != 5*time.Millisecond {
			t.Errorf("those with five milliseconds waited for %v", took)
		}
		for range mostUnderWay {
			l.answer()
		}
		synctest.Wait()
		if n := l.answer(); n != 1 {
			t.Errorf("%d are sent, want the one that waits still", n)
		}
		synctest.Wait()
		if g.underWay != 0 {
			t.Errorf("%d are under way, want none", g.underWay)
		}
	})
}

// What waits for a server that says nothing is bounded, and when the last of those has left the way is free again.
func TestWaitingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := &gatherer{}, &line{}
		for range mostUnderWay {
			go asks(t, g, l, time.Hour, "early", nil)
			synctest.Wait()
		}
		for range mostWaiting {
			go asks(t, g, l, time.Second, "waits", context.DeadlineExceeded)
		}
		synctest.Wait()
		asks(t, g, l, time.Second, "too many", errStuck)
		time.Sleep(time.Minute)
		for range mostUnderWay {
			l.answer()
		}
		synctest.Wait()
		if g.underWay != 0 || len(g.waiting) != 0 || len(l.sizes()) != 0 {
			t.Errorf("%d are under way, and %d wait, want none", g.underWay, len(g.waiting))
		}
	})
}

// Many at the same time, some of whom leave, through a real client and server: each gets its own answer or none.
func TestGatheredCallsGetTheirOwnAnswers(t *testing.T) {
	server := redistest.Start(t)
	client, err := Dial(Options{Addresses: []string{server.Socket}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const source = "return {1, ARGV[1]}"
	var all sync.WaitGroup
	for caller := range 64 {
		all.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if i%10 == caller%10 {
					time.AfterFunc(time.Duration(caller)*10*time.Microsecond, cancel)
				}
				own := fmt.Sprint(caller, " ", i)
				if i%2 == 0 {
					limited := deadline.After(ctx, time.Hour)
					defer limited.End()
					ctx = limited
				}
				answer, err := client.Eval(ctx, "EVAL", source, []string{"k"}, []string{own})
				cancel()
				if list, _ := answer.([]any); err == nil && (len(list) != 2 || list[1] != own) {
					t.Errorf("%s is answered %v", own, answer)
				} else if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", own, err)
				}
			}
		})
	}
	all.Wait()
}
