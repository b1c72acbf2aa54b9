package httplimit

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// DefaultHeld is what Options.MaxHeld is if it is 0.
const DefaultHeld = 256 << 20

// room bounds what the bodies hold that are read before their requests are decided, but for what each of them has in
// any case. One address has no more of it than is free then, so half at most, and less beside others (Choudhury and
// Hahne, Dynamic Queue Length Thresholds, 1998, with a factor of 1).
type room struct {
	most int64 // bytes
	held atomic.Int64
	seed maphash.Seed
	by   [256]atomic.Int64 // of held, by a hash of the address
}

func newRoom(most int64) *room { return &room{most: most, seed: maphash.MakeSeed()} }

// share is the room as one address finds it.
type share struct {
	*room
	own *atomic.Int64 // which it has, and whoever has the same hash
}

// of returns the share of an address, an IPv6 one by its network of 64 bits.
func (r *room) of(peer netip.Addr) share {
	if peer = peer.Unmap().WithZone(""); peer.Is6() {
		if network, err := peer.Prefix(64); err == nil {
			peer = network.Addr()
		}
	}
	return share{r, &r.by[maphash.Comparable(r.seed, peer)%uint64(len(r.by))]}
}

// take takes so many bytes, or none: who finds no room takes it from nobody else.
func (s share) take(bytes int64) bool {
	for {
		held := s.held.Load()
		if left := s.most - held - bytes; s.own.Load()+bytes > left {
			return false
		}
		if s.held.CompareAndSwap(held, held+bytes) {
			s.own.Add(bytes)
			return true
		}
	}
}

func (s share) giveBack(bytes int64) {
	s.own.Add(-bytes)
	s.held.Add(-bytes)
}
