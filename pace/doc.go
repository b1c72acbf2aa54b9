// Package pace is the caller's side of a rate limit: an [http.RoundTripper] that
// sends requests when a server is ready for them, instead of sending them, being
// refused, and trying again.
//
//	client := &http.Client{Transport: pace.New(pace.Options{})}
//	response, err := client.Do(request) // waits for its turn
//
// Requests that share a quota stand in one queue; see [Options.Quota]. A refusal
// pauses the queue, not just the request that met it, and a retry goes through the
// queue like everything else. How long the pause is, and how the rate recovers, is
// the job of an [Algorithm]. The default one, [Auto], obeys what the server says
// about its quota and otherwise finds a pause by trial.
//
// What a server says is read from RateLimit and RateLimit-Policy, Retry-After,
// X-RateLimit-* and the fields of well-known APIs; see [ReadHint].
//
// The algorithms UB, WB and ATB are those of B. Farkiani, F. Liu and P. Crowley,
// "Rethinking HTTP API Rate Limiting: A Client-Side Approach" (IEEE CCNC 2026),
// with the constants of its Table V in [Paper].
//
// A [Transport] may be used by any number of goroutines. It holds at most
// [Options.MaxQueue] waiting requests for a quota and [Options.MaxQuotas] quotas.
package pace
