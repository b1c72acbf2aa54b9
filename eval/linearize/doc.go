// Package linearize checks that decisions over several buckets happen at one instant each.
// Goroutines take from a few shared buckets at a fixed time; porcupine, a checker of
// linearizability, looks for an order of their decisions, in keeping with when each began and
// ended, in which a slow store behind one lock would have given the same answers. A store that
// decides in two steps has none.
// Places among the requests under way are taken and given back, of a Limiter and of processes that share a Redis.
package linearize
