package report

import "sync/atomic"

// Status is what a Store did. Counts only grow.
type Status struct {
	Accounts int   // buckets that are remembered
	Pending  int64 // tokens that were admitted and not answered yet

	Reports  uint64 // to the authority
	Messages uint64 // that held them
	Failed   uint64 // reports that got no answer, and were sent again

	Admitted uint64 // tokens
	Charged  uint64 // tokens that were reported and answered
	Returned uint64 // tokens of requests that were denied elsewhere, before they were reported
	Denied   uint64 // takes that were denied by what was known
	Asked    uint64 // takes that were left to the authority
}

type counts struct {
	failed, admitted, charged, returned, denied, asked atomic.Uint64
}

// Status reports what the Store did.
func (s *Store) Status() Status {
	c := &s.counts
	st := Status{
		Failed: c.failed.Load(), Admitted: c.admitted.Load(), Charged: c.charged.Load(),
		Returned: c.returned.Load(), Denied: c.denied.Load(), Asked: c.asked.Load(),
	}
	for kind := range s.outboxes {
		st.Reports += s.outboxes[kind].Things.Load()
		st.Messages += s.outboxes[kind].Messages.Load()
	}
	st.Accounts = s.accounts.Each(func(e *entry) {
		e.mu.Lock()
		st.Pending += e.account.Pending()
		e.mu.Unlock()
	})
	return st
}
