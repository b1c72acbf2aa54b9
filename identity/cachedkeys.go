package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// CachedKeysOptions configures CachedKeys. Keys is required; every other zero
// value is a safe default.
type CachedKeysOptions struct {
	// Keys is the finder that is remote or slow.
	Keys KeyFinder

	// TTL is how long a key is believed, counted from when its look-up began:
	// so long after it was revoked, and no longer, a key may still count.
	// Longer asks Keys less often. Default 5 s, at most 1 h.
	TTL time.Duration

	// UnknownTTL is how long it is believed that there is no such key: a key
	// that was just made may be refused so long. Default 1 s, at most TTL.
	UnknownTTL time.Duration

	// MaxKeys and MaxUnknown bound what is held, at about 300 and 120 bytes
	// each. Unknown keys are held apart: no number of them drives a known one
	// out. Default 65536 each, at most 1<<24.
	MaxKeys, MaxUnknown int

	// MaxLookups is how many look-ups may be under way at once. One more is
	// refused, and its request counts as its address's (LookupFailed), so a
	// flood of well-formed keys is no flood at Keys. While one lasts, valid keys
	// that are not held may be refused so too. Default 64.
	MaxLookups int

	// Timeout bounds a look-up. Default 1 s, at most TTL.
	Timeout time.Duration

	Now func() time.Time // defaults to time.Now
}

// CachedKeys is a KeyFinder before one that is remote or slow. Requests with
// one key share one look-up, errors are not kept, and a key that is held costs
// no allocation. It may be used concurrently. A Keyring needs none.
type CachedKeys struct {
	o       CachedKeysOptions
	known   [cacheShards]keyShard
	unknown [cacheShards]keyShard
	lookups chan struct{} // holds a token for each look-up that may begin

	hits, misses, refused atomic.Uint64
}

var _ KeyFinder = (*CachedKeys)(nil)

// ErrTooManyLookups is what CachedKeys returns for a key that it does not hold
// while MaxLookups are under way.
var ErrTooManyLookups = errors.New("too many API keys are being looked up")

const cacheShards = 16

// keyShard holds keys by digest, the oldest of which makes room: a ring of
// slots in the order in which they were filled. A slot that was used since the
// hand passed it last is passed once more.
type keyShard struct {
	mu      sync.Mutex
	at      map[Digest]int     // guarded by mu: index in slots
	slots   []keySlot          // guarded by mu
	most    int                // slots at most
	hand    int                // guarded by mu
	flights map[Digest]*flight // guarded by mu; those of unknown are not used
}

type keySlot struct {
	digest Digest
	key    Key
	until  int64 // Unix nanoseconds
	used   bool
}

// flight is a look-up that several requests wait for.
type flight struct {
	done chan struct{}   // closed when key and err are there
	late <-chan struct{} // closed when nobody waits any longer
	key  Key
	err  error
}

// NewCachedKeys returns the cache, or an error that names every option at
// fault.
func NewCachedKeys(o CachedKeysOptions) (*CachedKeys, error) {
	var errs []error
	duration := func(field string, value *time.Duration, otherwise, most time.Duration) {
		if *value == 0 {
			*value = min(otherwise, most)
		}
		if *value < 0 || *value > most {
			errs = append(errs, fmt.Errorf("%s is %v, want more than 0 and at most %v", field, *value, most))
		}
	}
	number := func(field string, value *int, otherwise, most int) {
		if *value == 0 {
			*value = otherwise
		}
		if *value < 1 || *value > most {
			errs = append(errs, fmt.Errorf("%s is %d, want 1 to %d, or 0 for %d", field, *value, most, otherwise))
		}
	}
	if o.Keys == nil {
		errs = append(errs, errors.New("Keys is nil, want one"))
	}
	duration("TTL", &o.TTL, 5*time.Second, time.Hour)
	duration("UnknownTTL", &o.UnknownTTL, time.Second, o.TTL)
	duration("Timeout", &o.Timeout, time.Second, o.TTL)
	number("MaxKeys", &o.MaxKeys, 1<<16, 1<<24)
	number("MaxUnknown", &o.MaxUnknown, 1<<16, 1<<24)
	number("MaxLookups", &o.MaxLookups, 64, 1<<16)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &CachedKeys{o: o, lookups: make(chan struct{}, o.MaxLookups)}
	for i := range cacheShards {
		c.known[i].init(share(o.MaxKeys, i))
		c.unknown[i].init(share(o.MaxUnknown, i))
	}
	for range o.MaxLookups {
		c.lookups <- struct{}{}
	}
	return c, nil
}

// share is what a shard gets of a bound, so that all together get no more.
func share(total, shard int) int { return (total + cacheShards - 1 - shard) / cacheShards }

func (s *keyShard) init(most int) {
	s.at = map[Digest]int{}
	s.flights = map[Digest]*flight{}
	s.most = most
}

// Find returns what is known of a key, from memory where that is fresh.
func (c *CachedKeys) Find(ctx context.Context, d Digest) (Key, error) {
	now := c.o.Now().UnixNano()
	shard := int(d[31]) % cacheShards
	known := &c.known[shard]
	known.mu.Lock()
	if slot := known.find(&d, now); slot != nil {
		key := slot.key
		known.mu.Unlock()
		c.hits.Add(1)
		return key, nil
	}
	f, mine := known.flights[d], false
	if f == nil {
		if c.unknown[shard].has(&d, now) {
			known.mu.Unlock()
			c.hits.Add(1)
			return Key{}, ErrUnknownKey
		}
		select {
		case <-c.lookups:
		default:
			known.mu.Unlock()
			c.refused.Add(1)
			return Key{}, ErrTooManyLookups
		}
		f, mine = &flight{done: make(chan struct{})}, true
		known.flights[d] = f
	}
	if mine {
		c.misses.Add(1)
		// On a goroutine of its own: the client of this request may leave, and
		// others wait for the answer.
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Timeout)
		f.late = asked.Done()
		go c.look(asked, cancel, d, f, now)
	}
	known.mu.Unlock()
	select {
	case <-f.done:
		return f.key, f.err
	case <-ctx.Done():
		return Key{}, ctx.Err()
	case <-f.late:
	}
	select { // late is closed after done as well
	case <-f.done:
		return f.key, f.err
	default:
		return Key{}, context.DeadlineExceeded
	}
}

// look asks Keys, and keeps what it says.
func (c *CachedKeys) look(ctx context.Context, done context.CancelFunc, d Digest, f *flight, began int64) {
	defer done()
	f.err = errors.New("the look-up of an API key broke off")
	defer func() {
		_ = recover() // a finder that panics has not found out; f.err says so
		c.keep(&d, f, began)
		close(f.done)
		c.lookups <- struct{}{}
	}()
	key, err := c.o.Keys.Find(ctx, d)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err() // too late to be believed: see TTL
	}
	f.key, f.err = key, err
}

func (c *CachedKeys) keep(d *Digest, f *flight, began int64) {
	shard := int(d[31]) % cacheShards
	known := &c.known[shard]
	known.mu.Lock()
	defer known.mu.Unlock()
	delete(known.flights, *d)
	switch {
	case f.err == nil:
		known.put(keySlot{digest: *d, key: f.key, until: began + int64(c.o.TTL)}, began)
	case errors.Is(f.err, ErrUnknownKey):
		known.drop(d)
		unknown := &c.unknown[shard]
		unknown.mu.Lock()
		unknown.put(keySlot{digest: *d, until: began + int64(c.o.UnknownTTL)}, began)
		unknown.mu.Unlock()
	}
}

// find returns the slot of a digest unless it is too old. The caller has mu.
func (s *keyShard) find(d *Digest, now int64) *keySlot {
	i, ok := s.at[*d]
	if !ok || s.slots[i].until <= now {
		return nil
	}
	s.slots[i].used = true
	return &s.slots[i]
}

func (s *keyShard) has(d *Digest, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(d, now) != nil
}

// put fills a slot: that of the digest, a new one, or the first from the hand
// on that was not used lately or is too old. The caller has mu.
func (s *keyShard) put(slot keySlot, now int64) {
	if i, ok := s.at[slot.digest]; ok {
		s.slots[i] = slot
		return
	}
	if s.most == 0 {
		return
	}
	if len(s.slots) < s.most {
		s.at[slot.digest] = len(s.slots)
		s.slots = append(s.slots, slot)
		return
	}
	for s.slots[s.hand].used && s.slots[s.hand].until > now {
		s.slots[s.hand].used = false
		s.hand = (s.hand + 1) % len(s.slots)
	}
	if at, ok := s.at[s.slots[s.hand].digest]; ok && at == s.hand {
		delete(s.at, s.slots[s.hand].digest)
	}
	s.slots[s.hand] = slot
	s.at[slot.digest] = s.hand
	s.hand = (s.hand + 1) % len(s.slots)
}

// drop forgets a digest. Its slot is filled again in its turn. The caller has
// mu.
func (s *keyShard) drop(d *Digest) {
	if i, ok := s.at[*d]; ok {
		delete(s.at, *d)
		s.slots[i] = keySlot{}
	}
}

// CachedKeysStats is what a CachedKeys holds and has done.
type CachedKeysStats struct {
	Keys, Unknown int    // held
	Hits          uint64 // answered from memory
	Lookups       uint64 // begun
	Refused       uint64 // with ErrTooManyLookups
}

// Stats reports what the cache holds and has done.
func (c *CachedKeys) Stats() CachedKeysStats {
	s := CachedKeysStats{Hits: c.hits.Load(), Lookups: c.misses.Load(), Refused: c.refused.Load()}
	for i := range cacheShards {
		s.Keys += c.known[i].len()
		s.Unknown += c.unknown[i].len()
	}
	return s
}

func (s *keyShard) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}
