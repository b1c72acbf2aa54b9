package main

var inQuota = []Mutant{
	{Name: "server/quota: lent without being taken", File: "server/quota/borrower.go", Old: "ok, err := r.book.o.Buckets.TryConsume(", New: "ok, err := r.book.o.Buckets.Peek(",
		Why: "each Envoy has the whole limit"},
	{Name: "server/quota: what drained comes back too", File: "server/quota/borrower.go", Old: "units := bucket.Unspent(old.shape, old.shape, old.units, back, old.charged, now); units > 0", New: "units := back; units > 0",
		Why: "tokens that nobody used come back by time, and by hand as well"},
	{Name: "server/quota: prolonged when it may have ended", File: "server/quota/borrower.go", Old: "now-l.sent < int64(b.o.TTL)*3/4", New: "now-l.sent < int64(b.o.TTL)*3",
		Why: "an assignment that ended at the Envoy is full again under its old number"},
	{Name: "server/quota: prolonged for nothing", File: "server/quota/borrower.go", Old: "units := t.Shape.UnitsSaturating(outstanding) - owed", New: "units := min(0, t.Shape.UnitsSaturating(outstanding)-owed)",
		Why: "tokens are held for ever, and the bucket fills beside them"},
	{Name: "server/quota: other replicas lend nothing", File: "server/quota/borrower.go", Old: "outstanding := a.outstanding(now) * replicas", New: "outstanding := a.outstanding(now)",
		Why: "with k Headgates, k times as much is prolonged as the bucket owes"},
	{Name: "server/quota: what was admitted without any is forgotten", File: "server/quota/borrower.go", Old: "l.owed = min(l.owed+over, mostReported)", New: "l.owed = min(l.owed, mostReported)",
		Why: "an Envoy that starts, or lost its assignment, admits for nothing"},
	{Name: "server/quota: the dead hold nothing", File: "server/quota/loan.go", Old: "append(a.orphans, l.batches...)", New: "append(a.orphans, l.batches[:0]...)",
		Why: "an Envoy whose stream breaks has its tokens, and they are lent again"},
	{Name: "server/quota: time of the last second is used up twice", File: "server/quota/loan.go", Old: "l.used = min(l.size, l.used+allowed)", New: "l.used = min(l.size, l.used+allowed/2)", Tests: []string{"./server/envoy"},
		Why: "a busy Envoy is thought to have tokens, and stands still until it reports"},
}
