// Package report spends a shared budget in many places at once, and tells of it afterwards.
//
// One authority keeps the bucket. A replica admits by what it knows of the bucket's debt, and
// within an interval it reports what it has admitted. The authority charges that whatever the
// bucket owes already, and answers what is owed now:
//
//	replica A, knows 60           authority, 100 per second, burst 100          replica B, knows 60
//	admits 8 without a word                                                     admits 5
//	reports 8  ─────────────▶ debt 68
//	◀───────────── 68         debt 73 ◀───────────────────────────────────────── reports 5
//	knows 68                  73 ─────────────────────────────────────────────▶ knows 73
//
// What a replica has admitted and got no answer about is never more than its headroom; whoever
// wants more asks the authority. So in any interval all replicas together admit at most the burst,
// what drains in it, and a headroom each: see Bound. No delay enters, and no lost message.
//
// An [Account] is what one replica knows of one bucket. It is a machine without a clock, a lock or
// a network: time and messages come in as arguments. [Store] puts accounts into a bounded table and
// runs the messages; package simulate runs the same accounts through networks that delay, lose and
// part.
package report
