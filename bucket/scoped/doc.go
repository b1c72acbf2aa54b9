// Package scoped keeps every bucket where its rule says: in this process, in this process for a
// share of the limit, or in a store that all replicas share. One decision may name buckets of all
// kinds, and takes from all of them or from none.
//
//	take            asked                              if another one denies
//	local, split    the local store, first by Peek     nothing was taken
//	sync            what this replica knows            taken off its next report
//	lease           a local free part, first of all; else   nothing was taken
//	                what this replica holds            returned to the account, all of it
//	strict          the shared store, one script       given back, less what has drained
//	lease of places a spare one of this process; else  spare again; given back
//	                as strict
//	local, split    the local store                    it is the last
//
// The order is that of cost. What this process denies sends no message, so a client in deep debt
// costs the store nothing; nor does one that the shared store has denied, for as long as it said or
// a second. The local store comes last again because it alone can be asked without waiting: if
// others have taken meanwhile what Peek saw, the rest is undone.
//
// # When the shared store is away
//
// A decision waits for it until Options.Deadline. One that got no answer is a denial, whatever its
// rules say, and an error that is bucket.ErrLost: a share of the limit on top of a store that works
// would be more than the limit. After five failures in a row, or half of twenty in a second, the
// store is taken for lost; a row of requests whose time was up must last 50 ms besides. Then each
// take goes by its Reach:
//
//	LossClosed   denied
//	LossShare    decided by a local bucket with a share of the limit, which begins empty
//	LossOpen     admitted
//
// Every 100 ms one request tries the store as usual. When three have succeeded, all go there again,
// and what was admitted meanwhile is charged to it, up to a burst a bucket.
package scoped
