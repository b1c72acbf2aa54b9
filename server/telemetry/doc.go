// Package telemetry is the aggregator that clients of one quota report to, and whose answers tell
// each of them how many there are and how much they want (pace/telemetry has the messages).
//
//	datagram ─▶ is its source within its rate? ─▶ well formed? ─▶ a quota of ours? ─▶ its HMAC? ─▶ new? ─▶ table ─▶ answer
//	POST     ─▶
//
// Nothing that is sent makes it stop, write a line, or keep more than its tables hold. What does not
// get as far as the table is counted, and not answered; an answer is as long as a report.
package telemetry
