package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// defaultTTL is for how long what a replica said counts, unless somebody says otherwise.
const defaultTTL = 3 * time.Second

// speaker is how a replica tells the others something: by its name, for a time, by whose clock.
type speaker struct {
	store   *Store
	replica uint64
	ttl     time.Duration
	now     func() int64
}

// newSpeaker fills in what was left out, or says everything that is wrong.
func newSpeaker(s *Store, replica uint64, ttl time.Duration, now func() int64) (speaker, error) {
	if ttl == 0 {
		ttl = defaultTTL
	}
	var errs []error
	if s == nil {
		errs = append(errs, errors.New("the store is nil, want one"))
	}
	if ttl < 100*time.Millisecond || ttl > time.Hour {
		errs = append(errs, fmt.Errorf("TTL is %v, want 100ms to 1h", ttl))
	}
	if s != nil && s.callers && now == nil {
		errs = append(errs, errors.New("Now is nil, want a clock: the store has CallersClock"))
	}
	if len(errs) > 0 {
		return speaker{}, errors.Join(errs...)
	}
	for replica == 0 {
		replica = rand.Uint64()
	}
	if !s.callers {
		now = func() int64 { return 0 }
	}
	return speaker{s, replica, ttl, now}, nil
}

// says is how an argument of a script begins that says something: the time, how long it counts, some numbers, and who
// says it.
func (sp *speaker) says(numbers ...int64) []byte {
	arg := appendDoubles(nil, append([]int64{sp.store.time(sp.now()), sp.ttl.Microseconds()}, numbers...)...)
	return binary.BigEndian.AppendUint64(arg, sp.replica)
}
