//go:build amd64 || arm64

package memory

// prefetch asks the processor for the cache lines of a set, to write them, and of its family's tags, and
// waits for none. Go has no other way to say so.
//
//go:noescape
func prefetch(tags *uint64, s *set)

// prefetchLines asks for the two lines of the ledger where a key has its trace.
//
//go:noescape
func prefetchLines(a, b *line)
