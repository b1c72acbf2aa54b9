// Package gossip keeps replicas in step without a store: each has a bucket of its own, and debits
// it by what the others say that they admitted.
//
//	replica A, burst 100          replica B, burst 100           replica C, burst 100
//	admits 8, owes 8              admits 5, owes 5               admits nothing
//	── A has admitted 8 in all ──▶ owes 13 ──────────────────────▶ owes 8
//	◀───────────────────────────── B has admitted 5 in all ──────▶ owes 13
//	owes 13
//
// What is told is a count that only grows, so a message that is lost, repeated or late does no
// harm: the next one says it all. What others admitted is debited whatever is owed already. A
// replica that is not heard of is presumed to admit its equal part of the rate until it is, or is a
// member no more; what it then says it admitted is debited less what was presumed. So while a
// network is parted, both sides together keep to the rate. What turned out not to be spent is a second
// count: of it comes back at the others what its replica still owes there.
//
// The price is the burst: whoever sends at the same moment to all of k replicas, which have not
// heard of each other yet, gets the burst from each: see bucket.Sharing.
//
// An [Account] is what one replica knows of one bucket, a machine without a clock, a lock or a
// network. [Store] puts accounts into a bounded table and makes messages of them; what carries
// those is the caller's. Package simulate runs Stores through networks that delay, lose and part.
package gossip
