package nemesis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket/redis"
)

// Network is how messages travel between gateways and the store.
type Network struct {
	Delay, Jitter time.Duration // each way
	Loss          float64       // of messages, each way
	Late          float64       // of messages take up to Longest instead
	Longest       time.Duration
	Twice         float64 // of messages arrive once more, up to Longest later
	Of            Message // what that is true of; the others travel as they should
}

// Message is what a message is about, by the script that it runs.
type Message int

// The kinds of messages.
const (
	Any Message = iota
	Takes
	Corrections
	Grants
	Reports
	Words
	messages
)

// marks are by what the scripts are told apart.
var marks = [messages]string{Corrections: "-- Adds to the debt of the bucket KEYS[1]",
	Grants: "-- Answers questions of a replica for tokens", Reports: "-- Charges what a replica reports",
	Words: "-- Tells who shares the buckets"}

var aboutBySHA sync.Map // what every script is about that was ever sent

// about is what a message is about; a script that is sent for the first time by its name alone is about anything.
func about(command, script string) Message {
	if command != "EVAL" {
		known, _ := aboutBySHA.Load(script)
		is, _ := known.(Message)
		return is
	}
	is := Takes
	for m := Corrections; m < messages; m++ {
		if strings.Contains(script, marks[m]) {
			is = m
		}
	}
	sum := sha1.Sum([]byte(script))
	aboutBySHA.Store(hex.EncodeToString(sum[:]), is)
	return is
}

// wire is the way from one gateway to the store and back: what bucket/redis talks to.
type wire struct {
	world *world

	mu      sync.Mutex
	chance  *rand.Rand // guarded by mu
	dead    *Engine    // guarded by mu; who takes what a gateway says that was killed, nil while it lives
	cut     [2]bool    // guarded by mu; to the store, and from it
	network Network    // guarded by mu
	failed  int        // guarded by mu; messages that tell of the store whether it is there, and got no answer

	frozen chan struct{} // guarded by mu; closed when the gateway goes on, nil while it does
}

var (
	errRefused = errors.New("dial: connection refused")
	errBroken  = errors.New("the server closed the connection")
)

// fate is what becomes of one message and its answer.
type fate struct {
	there, back    time.Duration
	lost, lostBack bool
	again          time.Duration // after which it arrives once more; 0 for never
	grave          *Engine
}

func (w *wire) fate(is Message) (f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, r := &w.network, w.chance
	if n.Of != Any && n.Of != is {
		n = &calmNetwork
	}
	took := func() time.Duration {
		d := n.Delay + time.Duration(r.Int64N(int64(n.Jitter)+1))
		if r.Float64() < n.Late {
			d += time.Duration(r.Int64N(int64(n.Longest) + 1))
		}
		return d
	}
	f = fate{
		there:    took(),
		back:     took(),
		lost:     r.Float64() < n.Loss || w.cut[0],
		lostBack: r.Float64() < n.Loss,
		grave:    w.dead,
	}
	if again := r.Float64() < n.Twice; again {
		f.again = 1 + time.Duration(r.Int64N(int64(n.Longest)+1))
	}
	return f
}

// Eval is redis.Evaler. What it gives up on goes on: a message that was sent arrives, however late.
func (w *wire) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	is := about(command, script)
	answer, err := w.eval(ctx, is, command, script, keys, args)
	if err != nil && !redis.Unlearnt(err) && is != Words {
		w.mu.Lock()
		w.failed++
		w.mu.Unlock()
	}
	return answer, err
}

// failures is how many messages failed since it was asked last.
func (w *wire) failures() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, w.failed = w.failed, 0
	return n
}

func (w *wire) eval(ctx context.Context, is Message, command, script string, keys, args []string) (any, error) {
	w.awake()
	defer w.awake() // whoever waits hears of it when the gateway goes on
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	f := w.fate(is)
	if f.grave != nil {
		return f.grave.Eval(command, script, keys, args)
	}
	if w.world.isDown() {
		time.Sleep(f.there)
		return nil, errRefused
	}
	type reply struct {
		answer any
		err    error
	}
	answered := make(chan reply, 1)
	go func() {
		if time.Sleep(f.there); f.lost {
			return
		}
		if f.again > 0 {
			go func() {
				if time.Sleep(f.again); !w.world.isDown() {
					_, _ = w.world.engine.Eval(command, script, keys, args)
				}
			}()
		}
		if w.world.isDown() {
			answered <- reply{nil, errBroken}
			return
		}
		answer, err := w.world.engine.Eval(command, script, keys, args)
		time.Sleep(f.back)
		if !f.lostBack && !w.isCut(1) {
			answered <- reply{answer, err}
		}
	}()
	select {
	case r := <-answered:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute): // as a client does that hears nothing
		return nil, errBroken
	}
}

// freeze has the gateway stand still until thaw: one that is frozen already stays so.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen == nil {
		w.frozen = make(chan struct{})
	}
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen != nil {
		close(w.frozen)
		w.frozen = nil
	}
}

// awake returns when the gateway does not stand still.
func (w *wire) awake() {
	w.mu.Lock()
	frozen := w.frozen
	w.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (w *wire) isCut(direction int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut[direction]
}

func (w *wire) setCut(direction int, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[direction] = cut
}

func (w *wire) set(n Network) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.network = n
}

func (w *wire) bury(grave *Engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = grave
}
