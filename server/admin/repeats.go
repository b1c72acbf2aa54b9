package admin

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

// A client that got no answer asks again under the same Idempotency-Key
// (draft-ietf-httpapi-idempotency-key-header-07), and gets the answer that it
// missed. This gateway remembers answers; and a store that gateways share
// remembers what it gave, so that another gateway does not give it again
// (bucket.Once).

const (
	// repeatsKept is for how long an answer is remembered. A store remembers
	// longer (bucket/redis).
	repeatsKept = 24 * time.Hour

	// mostRepeats are remembered at once, the latest, at about 1 KB each.
	mostRepeats = 4096
)

// keyField is what a key is sent as: a string of RFC 8941, section 3.3.3, without
// escapes. Fewer characters than 16 might be somebody else's too.
var keyField = regexp.MustCompile(`^"[!#-\[\]-~]{16,128}"$`)

var (
	errKeyField  = errors.New(`Idempotency-Key is not one string of 16 to 128 printable characters in quotes, such as "8e03978e-40d5-43dd-bc93-6894a57f9324", without a space, " or \`)
	errKeyReused = fault{keyReused,
		errors.New("This Idempotency-Key was sent with another request: take a new one for each change, and the " +
			"same only to repeat it.")}
	errKeyInUse = fault{keyInUse,
		errors.New("A request with this Idempotency-Key is being served: ask again to hear how it ended.")}
)

// repeats is the answers to changes that may be asked for again.
type repeats struct {
	mu     sync.Mutex
	byKey  map[repeatKey]*repeat // guarded by mu
	oldest []repeatKey           // guarded by mu; those that have an answer, in the order in which they got it
}

// repeatKey is a key, and whose it is: nobody hears what somebody else was told.
type repeatKey struct{ actor, key string }

type repeat struct {
	asked  [sha256.Size]byte // stands for the request
	at     time.Time         // of the answer; zero while it is being served
	answer BucketChange
}

// repeated is one request under a key.
type repeated struct {
	of   *repeats // nil for a request without one
	key  repeatKey
	once bucket.Once
}

// begin reads the key of a request, and says whether the change was made under
// it: then the answer is that of the first time. Else end is to be called.
func (p *repeats) begin(r *http.Request, now time.Time, action string, b *BucketRequest) (one repeated,
	before *BucketChange, err error) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) == 0 {
		return repeated{}, nil, nil
	}
	if len(lines) > 1 || !keyField.MatchString(lines[0]) {
		return repeated{}, nil, fault{invalidRequest, errKeyField}
	}
	text, err := json.Marshal(b)
	if err != nil {
		return repeated{}, nil, fmt.Errorf("read the request again: %w", err)
	}
	asked, name := sha256.Sum256(append([]byte(action+" "), text...)), sha256.Sum256([]byte(lines[0]))
	one = repeated{p, repeatKey{callerOf(r).actor, lines[0]},
		bucket.Once{Name: binary.BigEndian.Uint64(name[:]), Of: binary.BigEndian.Uint64(asked[:])}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(now)
	switch known := p.byKey[one.key]; {
	case known == nil:
		if p.byKey == nil {
			p.byKey = map[repeatKey]*repeat{}
		}
		p.byKey[one.key] = &repeat{asked: asked}
		return one, nil, nil
	case known.asked != asked:
		return repeated{}, nil, errKeyReused
	case known.at.IsZero():
		return repeated{}, nil, errKeyInUse
	default:
		answer := known.answer
		return repeated{}, &answer, nil
	}
}

// end remembers the answer; nil stands for a change that was not made, or may not
// have been: that is asked for anew.
func (one *repeated) end(now time.Time, answer *BucketChange) {
	p := one.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer == nil {
		delete(p.byKey, one.key)
		return
	}
	known := p.byKey[one.key]
	known.at, known.answer = now, *answer
	p.oldest = append(p.oldest, one.key)
	p.forgetLocked(now)
}

// forgetLocked forgets answers that are too old, and the oldest of too many.
func (p *repeats) forgetLocked(now time.Time) {
	for len(p.oldest) > mostRepeats || len(p.oldest) > 0 && now.Sub(p.byKey[p.oldest[0]].at) >= repeatsKept {
		delete(p.byKey, p.oldest[0])
		p.oldest = p.oldest[1:]
	}
}
