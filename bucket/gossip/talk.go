package gossip

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/key"
)

// Tick tells every other member what changed, and notes who was not heard of for too long. It is to
// be called every Interval, by one goroutine.
func (s *Store) Tick() {
	now := s.o.Now()
	s.peers.Lock()
	s.see(now)
	type to struct {
		name, unheard uint64
	}
	listeners := make([]to, 0, len(s.peers.all))
	for name, p := range s.peers.all {
		unheard := uint64(min(max(0, now-p.heard)/int64(time.Millisecond), never))
		if p.number == 0 {
			unheard = never
		}
		listeners = append(listeners, to{name: name, unheard: unheard})
	}
	slices.SortFunc(listeners, func(a, b to) int { return compare(a.name, b.name) })
	s.peers.Unlock()

	bodies := s.bodies(now)
	for _, body := range bodies {
		for _, l := range listeners {
			s.peers.Lock()
			s.peers.number++
			number := s.peers.number
			s.peers.Unlock()
			message := appendHead(make([]byte, 0, headRoom+len(body)),
				&head{kind: telling, from: s.o.Self, to: l.name, number: number, unheard: l.unheard})
			message = append(message, body...)
			s.counts.messages.Add(1)
			s.counts.bytes.Add(uint64(len(message)))
			s.o.Transport.Send(l.name, message)
		}
	}
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// bodies is what there is to tell, in parts that fit into a message each; at least an empty one.
func (s *Store) bodies(now int64) [][]byte {
	s.told.Lock()
	queue := s.told.queue
	s.told.queue = nil
	s.told.Unlock()

	room := s.o.MessageBytes - headRoom
	perMessage := max(1, room/entryRoom)
	if most := perMessage * s.o.Messages; len(queue) > most {
		hottest(queue)
		s.wait(queue[most:])
		queue = queue[:most]
	}
	v := s.silence.Load()
	bodies := [][]byte{make([]byte, 0, room)}
	for _, e := range queue {
		e.mu.Lock()
		told := e.account.Tell(now, v)
		// or who was not silent for so long may have missed it
		e.queued = now-e.account.changed <= int64(s.o.After+s.o.Interval)
		if e.queued {
			s.told.Lock()
			s.told.queue = append(s.told.queue, e)
			s.told.Unlock()
		}
		e.mu.Unlock()
		last := &bodies[len(bodies)-1]
		if len(*last)+entryRoom > room {
			bodies = append(bodies, make([]byte, 0, room))
			last = &bodies[len(bodies)-1]
		}
		*last = appendEntry(*last, telling, e.key, &told)
	}
	return bodies
}

// hottest sorts those first that have most to tell.
func hottest(queue []*entry) {
	pending := make(map[*entry]int64, len(queue))
	for _, e := range queue {
		e.mu.Lock()
		pending[e] = e.account.Pending()
		e.mu.Unlock()
	}
	slices.SortStableFunc(queue, func(a, b *entry) int { return compare(uint64(pending[b]), uint64(pending[a])) })
}

// wait leaves accounts in the queue for the next Tick.
func (s *Store) wait(queue []*entry) {
	s.counts.late.Add(uint64(len(queue)))
	s.told.Lock()
	s.told.queue = append(s.told.queue, queue...)
	s.told.Unlock()
}

// Receive takes in a message. An error says what is wrong with it; what came before that in it
// counts. Messages of those that are no members change nothing.
func (s *Store) Receive(message []byte) error {
	h, rest, err := readHead(message)
	if err != nil {
		s.counts.malformed.Add(1)
		return err
	}
	if h.kind != telling || h.to != s.o.Self {
		s.counts.malformed.Add(1)
		return fmt.Errorf("the message is of kind %d, to %x; want %d, to %x", h.kind, h.to, telling, s.o.Self)
	}
	now := s.o.Now()
	teller, missed, ok := s.hear(now, &h)
	if !ok {
		s.counts.strange.Add(1)
		return nil
	}
	if missed {
		s.tellAgain()
	}
	s.counts.received.Add(1)
	v := s.silence.Load()
	return s.each(rest, telling, func(k key.Key, e *Entry, _ []Count) {
		entry := s.account(now, k, e)
		if entry == nil {
			s.counts.crowded.Add(1)
			return
		}
		entry.account.Hear(now, v, teller, e)
		entry.mu.Unlock()
	})
}

// each calls f with every entry of a message.
func (s *Store) each(rest []byte, kind byte, f func(key.Key, *Entry, []Count)) error {
	for len(rest) > 0 {
		k, e, after, err := readEntry(rest, kind)
		var known []Count
		if err == nil && kind == copying {
			known, after, err = readCounts(after)
		}
		if err != nil {
			s.counts.malformed.Add(1)
			return err
		}
		f(k, &e, known)
		rest = after
	}
	return nil
}

// account is the locked account of a bucket that another tells of, or nil.
func (s *Store) account(now int64, k key.Key, e *Entry) *entry {
	made := func(nth uint32) *entry {
		made := &entry{account: Open(nth, e.Shape, now)}
		made.key = k
		s.begin(&made.account)
		return made
	}
	entry := s.accounts.Open(k, made, func(e *entry, _ bool) bool { return e.forget(now) }, lock)
	if entry != nil && !entry.known && entry.account.Shape() != e.Shape {
		entry.account.Change(now, s.silence.Load().Replicas, &e.Shape)
	}
	return entry
}

// hear notes that a member was heard of. Missed says that either did not hear the other before.
func (s *Store) hear(now int64, h *head) (teller Teller, missed, ok bool) {
	s.peers.Lock()
	defer s.peers.Unlock()
	p := s.peers.all[h.from]
	if p == nil {
		return Teller{}, false, false
	}
	teller = Teller{Name: h.from, Most: s.o.Most, Back: now-p.resumed <= int64(s.o.After)}
	if h.number <= p.number { // late, or sent again by who kept it: that it came says nothing of its teller
		return teller, false, true
	}
	p.number = h.number
	back, unheard := now-p.heard > int64(s.o.After), p.unheard
	if back {
		p.resumed, teller.Back = now, true
	}
	p.unheard = h.unheard > uint64(s.o.After/time.Millisecond) && now-p.resumed > int64(s.o.After)
	p.heard = max(p.heard, now)
	if back || unheard != p.unheard {
		s.see(now)
	}
	return teller, back || unheard && !p.unheard, true
}

// tellAgain has all told that one who was silent may have missed.
func (s *Store) tellAgain() {
	s.accounts.Each(func(e *entry) {
		e.mu.Lock()
		if e.account.admitted > 0 && !e.account.Idle(s.o.Now()) {
			e.account.changed = max(e.account.changed, s.o.Now())
			s.queue(e)
		}
		e.mu.Unlock()
	})
}

// Copy is all that this replica knows, in messages of so many bytes at most, for one that joins.
func (s *Store) Copy(bytes int) [][]byte {
	now, v := s.o.Now(), s.silence.Load()
	begin := func() []byte { return appendHead(make([]byte, 0, bytes), &head{kind: copying, from: s.o.Self}) }
	messages := [][]byte{begin()}
	s.accounts.Each(func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.account.presume(now, v)
		if e.account.Idle(now) {
			return
		}
		owed, known := e.account.Copy(now, s.o.Self)
		last := &messages[len(messages)-1]
		if len(*last)+entryRoom+len(known)*countRoom > bytes {
			messages = append(messages, begin())
			last = &messages[len(messages)-1]
		}
		*last = appendCounts(appendEntry(*last, copying, e.key, &owed), known)
	})
	return messages
}

// Adopt takes in a message of a Copy. After the last the buckets that none named are full.
func (s *Store) Adopt(message []byte, last bool) error {
	h, rest, err := readHead(message)
	if err == nil && h.kind != copying {
		err = fmt.Errorf("the message is of kind %d, want %d", h.kind, copying)
	}
	if err != nil {
		s.counts.malformed.Add(1)
		return err
	}
	now, v := s.o.Now(), s.silence.Load()
	err = s.each(rest, copying, func(k key.Key, e *Entry, known []Count) {
		if entry := s.account(now, k, e); entry != nil {
			entry.account.Adopt(now, v.Replicas, e, known)
			entry.mu.Unlock()
		}
	})
	if err == nil && last {
		s.joined.Store(0)
	}
	return err
}

// Status is what a Store did. Counts only grow.
type Status struct {
	Accounts int // buckets that are remembered
	Waiting  int // of them, those that are to be told of
	Replicas int // that are members, this one among them
	Silent   int // of them, those that are not heard of
	Unheard  bool
	Joining  bool // buckets are empty until another says what it knows

	Admitted, Returned uint64 // tokens
	Denied             uint64 // takes
	Crowded            uint64 // takes and entries of messages for whose bucket there was no room
	Messages, Bytes    uint64 // sent
	Received           uint64 // messages
	Malformed, Strange uint64 // messages that could not be read, and those of no member
	Late               uint64 // times that a bucket was not told of, as messages were full
}

type counts struct {
	admitted, returned, denied, crowded, messages, bytes, received, malformed, strange, late atomic.Uint64
}

// Status reports what the Store did.
func (s *Store) Status() Status {
	c, v := &s.counts, s.silence.Load()
	st := Status{
		Replicas: v.Replicas, Silent: len(v.Silent), Unheard: v.Unheard, Joining: s.joined.Load() != 0,
		Admitted: c.admitted.Load(), Returned: c.returned.Load(), Denied: c.denied.Load(), Crowded: c.crowded.Load(),
		Messages: c.messages.Load(), Bytes: c.bytes.Load(), Received: c.received.Load(),
		Malformed: c.malformed.Load(), Strange: c.strange.Load(), Late: c.late.Load(),
	}
	st.Accounts = s.accounts.Each(func(*entry) {})
	s.told.Lock()
	st.Waiting = len(s.told.queue)
	s.told.Unlock()
	return st
}
