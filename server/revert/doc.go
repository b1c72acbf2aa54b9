// Package revert takes back a change of the rules that turns away the callers of
// an endpoint, where nobody is there to do so: auto_revert.
//
// A [Watcher] sees every decision, and after a change of the rules it looks for
// a while at the endpoints to which other rules apply than before:
//
//	requests of GET /a   . . . 2 % . . . | . 93 % . . . . . |
//	                       before        17                 for 30 s: version 16 again
//
// If at most Share of the requests of an endpoint were answered 429 before the
// change, and more are after it in every part of For, the version is taken back.
// What clients do to an endpoint whose rules nobody changed takes nothing back.
//
// Observe costs one addition to a counter of the endpoint, and allocates
// nothing. Memory is bounded by the number of endpoints.
package revert
