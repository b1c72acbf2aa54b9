package decisions

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"
)

// Bounds of the answers that are kept for questions which are asked again under
// the same Idempotency-Key.
const (
	keptFor     = 10 * time.Minute
	keptAnswers = 10_000
	keptBytes   = 16 << 20
	maxOnceKey  = 255
)

// errAnother is that a key was used for another question.
var errAnother = errors.New("the Idempotency-Key was used for another question")

// kept holds answers by key, the oldest first out. A question that is asked again
// is not decided, so it costs nothing.
type kept struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[[sha256.Size]byte]*list.Element
	order list.List // of *keptAnswer, the oldest first
	bytes int
}

type keptAnswer struct {
	key, question [sha256.Size]byte
	since         time.Time
	done          chan struct{} // closed once answer is there, or is not to be kept
	answer        []byte        // nil if not kept
}

// onceKey reads an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07): a
// text, with quotes around it or without. It is empty if there is none.
func onceKey(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	key := lines[0]
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	if len(lines) > 1 || key == "" || len(key) > maxOnceKey || strings.ContainsAny(key, "\",") {
		return "", errors.New("Idempotency-Key is not one text of 1 to 255 characters without quotes and commas in it")
	}
	return key, nil
}

// answer returns the answer to a question under a key: that of before, or the one
// that decide makes. Whoever asks while it is being decided waits for it.
func (k *kept) answer(
	ctx context.Context, key string, question []byte, decide func() (answer []byte, keep bool),
) ([]byte, error) {
	for {
		a, first := k.begin(sha256.Sum256([]byte(key)), sha256.Sum256(question))
		if a == nil {
			return nil, errAnother
		}
		if first {
			return k.decide(a, decide), nil
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if a.answer != nil {
			return a.answer, nil
		}
	}
}

// begin returns the answer under a key, and whether it is the caller's to make; nil
// if the key stands for another question.
func (k *kept) begin(key, question [sha256.Size]byte) (a *keptAnswer, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for e := k.order.Front(); e != nil && now.Sub(e.Value.(*keptAnswer).since) >= keptFor; e = k.order.Front() {
		k.dropLocked(e)
	}
	if e, ok := k.byKey[key]; ok {
		a = e.Value.(*keptAnswer)
		if a.question != question {
			return nil, false
		}
		return a, false
	}
	for k.order.Len() >= keptAnswers {
		k.dropLocked(k.order.Front())
	}
	a = &keptAnswer{key: key, question: question, since: now, done: make(chan struct{})}
	k.byKey[key] = k.order.PushBack(a)
	return a, true
}

// decide makes an answer. Where that panics, the next one who asks makes it.
func (k *kept) decide(a *keptAnswer, decide func() ([]byte, bool)) (answer []byte) {
	keep := false
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		defer close(a.done)
		e, ok := k.byKey[a.key]
		if !keep {
			if ok && e.Value == a {
				k.dropLocked(e)
			}
			return
		}
		a.answer = answer
		if !ok || e.Value != a { // crowded out meanwhile, but those who wait are told
			return
		}
		for k.bytes += len(answer); k.bytes > keptBytes && k.order.Len() > 1; {
			k.dropLocked(k.order.Front())
		}
	}()
	answer, keep = decide()
	return answer
}

func (k *kept) dropLocked(e *list.Element) {
	a := k.order.Remove(e).(*keptAnswer)
	delete(k.byKey, a.key)
	k.bytes -= len(a.answer)
}
