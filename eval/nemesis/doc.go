// Package nemesis runs several gateways and the store that they share in virtual time, breaks
// everything around them at random from a seed, and holds what they admit against what is
// published.
//
// What runs is what runs in production: headgate.Limiter over scoped, lease, report, memory and
// redis, and the Lua scripts of bucket/redis, text for text. Virtual time is that of
// testing/synctest: a message that takes three seconds takes none. Three things are made up: the
// network, the clocks, and the server that runs the scripts (Engine), which a test compares with a
// real Redis, answer for answer.
//
// A Plan is all that happens in a run. It is drawn from a seed, and Shrink drops what a failure
// does not need. Two kinds of promises are checked:
//
//   - Safety: in any interval no bucket admits more than the envelope of its limit, adjusted for
//     changes of the limit and for what docs/store-loss.md publishes for each fault (simulate.Promise).
//     Requests that are settled count for what they cost in the end, so a refund that gives back
//     more than is still charged is seen as well.
//   - Liveness: once the faults are over, a client that was never seen before is served, one that
//     obeys Retry-After is served within a bound, and where requests suffice the limit is used.
//
// In plans with Places requests are under way for a time besides, under one rule or two, of either scope, that change
// while they are: never more than may be, of those that are counted as docs/in-flight.md publishes, and all places are
// there again in the end.
//
// In a third of the plans rates follow an API that is slow in turns, as all gateways see it or each alone, and gateways
// agree by the same network: what is promised stays what it is.
//
// In plans with classes (DrawClasses) requests for one endpoint are more urgent than those for the other, and share a
// limit; each has what it is guaranteed once the faults are over, whatever the other asks for.
//
// What is known at any moment is checked at it: that parts of limits add up to one at most, that the
// store is not taken for lost too soon; and when all is over that nothing is left of it.
//
// In Drive a test asks by itself, in a world in which one thing happens or none, and what is admitted
// is known to a token.
//
// To replay a seed, and to see what is left of it after shrinking:
//
//	make nemesis SEED=17
package nemesis
