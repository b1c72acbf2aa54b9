package lease

import "sync/atomic"

// Status is what a Store did. Counts only grow.
type Status struct {
	Accounts int // buckets that are remembered

	Questions uint64 // to the authority
	Messages  uint64 // that held them
	Short     uint64 // questions that were given less than they asked for
	Failed    uint64 // questions that got no answer

	Granted  uint64 // tokens
	Returned uint64 // tokens of requests that were denied elsewhere
	Expired  uint64 // tokens that nobody used in time; those that an account still held when it was forgotten, too
}

type counts struct {
	short, failed, granted, returned, expired atomic.Uint64
}

// lost counts what an account lost, which is locked.
func (c *counts) lost(a *Account) {
	if n := a.Lost(); n > 0 {
		c.expired.Add(uint64(n))
	}
}

// Status reports what the Store did.
func (s *Store) Status() Status {
	c := &s.counts
	st := Status{
		Questions: s.outbox.Things.Load(), Messages: s.outbox.Messages.Load(), Short: c.short.Load(),
		Failed:  c.failed.Load(),
		Granted: c.granted.Load(), Returned: c.returned.Load(), Expired: c.expired.Load(),
	}
	st.Accounts = s.accounts.Each(func(*entry) {})
	return st
}
