// Package lease spends a shared budget in many places at once, without asking for every token.
//
// One authority keeps the bucket. A replica asks it for a batch of tokens, which is charged to the
// bucket there and then, and admits requests out of the batch. A batch is good for TTL, counted
// from the moment its request was sent, on the clock of who sent it; what is left of it then is
// lost. So tokens are charged before they are used, never after, and used no later than TTL after
// they were charged:
//
//	    replica A                 authority, 100 per second, burst 100          replica B
//	t0  asks for 8  ─────────────▶ debt 8
//	    ◀─────────────── 8, good until t0 + TTL
//	    admits 8 without a word                                  debt 14 ◀───── asks for 6
//
// In any interval, all replicas together admit at most the burst, what drains in it, and what
// drains in one TTL, however many replicas there are and however large the batches. What is lost
// with old batches is given to nobody: a lease can strand tokens and never make any.
//
// An [Account] is what one replica holds of one bucket. It is a machine without a clock, a lock or
// a network: time and messages come in as arguments. [Store] puts accounts into a bounded table and
// runs the messages; package simulate runs the same accounts through networks that delay, lose and
// part.
package lease
