package redis

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/internal/deadline"
)

// Calls to one server are gathered. Whoever calls lets all go first that are ready to run, as some
// of them may be about to call too; then one sends what there is. While the batches that may be
// under way are, the next one collects. Nobody ever sleeps for company: a call alone goes out at
// once, and the more calls there are, the fewer times systems are asked to write and to read, as a
// batch is one write and mostly one read, here and on the server.
//
// For example, 64 goroutines that do nothing but call need two batches a round or so: an answer
// that is read wakes its whole batch, the first to call again lets the others of it go first, and
// so takes them along.
const (
	// mostUnderWay is how many batches to one server are under way at most. With one, a call may
	// wait for a whole round trip before its own, and the server idles while answers are read; with
	// many, each is small.
	mostUnderWay = 4

	// mostTogether bounds a batch, so that the first of it need not wait long for the last.
	mostTogether = 256

	// mostWaiting bounds the calls that wait to be sent, those that nobody waits for any more among them.
	mostWaiting = 1 << 14
)

// gatherer gathers the calls to one server.
type gatherer struct {
	spare sync.Pool // of *call

	mu       sync.Mutex
	underWay int     // batches and calls alone, those included that are about to be sent; guarded by mu
	waiting  []*call // guarded by mu
}

// sender is the part of rueidis.Client that sends.
type sender interface {
	Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult
	DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult
}

// call is one that waits to be sent with others, or for its answer.
type call struct {
	command rueidis.Completed
	left    atomic.Bool // nobody waits for it any more
	came    chan rueidis.RedisResult
	timer   *time.Timer // of whoever waits; what it was set to before does not matter
}

// do sends a command by itself or with others. It returns when ctx is done at the latest; what is
// not sent by then never is.
func (g *gatherer) do(ctx context.Context, via sender, command rueidis.Completed) rueidis.RedisResult {
	g.mu.Lock()
	if g.underWay == mostUnderWay {
		return g.join(ctx, command)
	}
	g.underWay++
	g.mu.Unlock()
	runtime.Gosched() // takes no time worth mentioning when nobody else is ready
	g.mu.Lock()
	if len(g.waiting) > 0 {
		go g.send(via)
		return g.join(ctx, command)
	}
	g.mu.Unlock()
	answer := via.Do(ctx, command)
	g.mu.Lock()
	if len(g.waiting) > 0 {
		go g.send(via)
	} else {
		g.underWay--
	}
	g.mu.Unlock()
	return answer
}

// join waits with others until one is sent and answered, or ctx is done. It unlocks g.mu.
func (g *gatherer) join(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if len(g.waiting) >= mostWaiting {
		g.mu.Unlock()
		return rueidis.NewErrorResult(errStuck)
	}
	c, ok := g.spare.Get().(*call)
	if !ok {
		c = &call{came: make(chan rueidis.RedisResult, 1)}
	}
	c.command = command
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	answer, err := c.wait(ctx)
	if err != nil {
		c.left.Store(true)
		return rueidis.NewErrorResult(err)
	}
	g.spare.Put(c)
	return answer
}

// wait waits for the answer, or says why it does not any more.
func (c *call) wait(ctx context.Context) (rueidis.RedisResult, error) {
	own, ok := ctx.(*deadline.Context)
	if !ok {
		select {
		case answer := <-c.came:
			return answer, nil
		case <-ctx.Done():
			return rueidis.RedisResult{}, ctx.Err()
		}
	}
	rest := time.Until(own.Limit())
	if c.timer == nil {
		c.timer = time.NewTimer(rest)
	} else {
		c.timer.Reset(rest)
	}
	select {
	case answer := <-c.came:
		return answer, nil
	case <-c.timer.C:
		return rueidis.RedisResult{}, context.DeadlineExceeded
	case <-own.Left():
		return rueidis.RedisResult{}, own.Err()
	}
}

// send sends batches until nobody waits. No context of a caller is that of a batch: it is answered
// when the server does, or when the connection breaks, which the client sees to when nothing comes.
func (g *gatherer) send(via sender) {
	var batch []*call
	var commands []rueidis.Completed
	for {
		if batch = g.next(batch); len(batch) == 0 {
			return
		}
		batch, commands = present(batch, commands)
		if len(commands) == 0 {
			continue
		}
		broken := false
		for i, answer := range via.DoMulti(context.Background(), commands...) {
			broken = broken || answer.NonRedisError() != nil
			batch[i].came <- answer
		}
		if broken {
			commands = nil // the library may not be done with it
		}
		runtime.Gosched() // those who have their answers may call again
	}
}

// next takes a batch of those that wait. If there are none, one batch less is under way.
func (g *gatherer) next(room []*call) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), mostTogether)
	if n == 0 {
		g.underWay--
	}
	batch := append(room[:0], g.waiting[:n]...)
	rest := copy(g.waiting, g.waiting[n:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	return batch
}

// present leaves out the calls that nobody waits for, and lists the commands of the others.
func present(batch []*call, room []rueidis.Completed) ([]*call, []rueidis.Completed) {
	there, commands := batch[:0], room[:0]
	for _, c := range batch {
		if !c.left.Load() {
			there, commands = append(there, c), append(commands, c.command)
		}
	}
	return there, commands
}
