package bucket

import "github.com/headgate-io/headgate/rate"

// Scope says how far a bucket reaches when several replicas run.
type Scope = rate.Scope

// The scopes.
const (
	Local  = rate.Local
	Split  = rate.Split
	Strict = rate.Strict
	Lease  = rate.Lease
	Sync   = rate.Sync
	Gossip = rate.Gossip
)

// Loss says what becomes of takes from a shared bucket while nobody can ask for it.
type Loss = rate.Loss

// The answers to a loss.
const (
	LossClosed = rate.LossClosed
	LossShare  = rate.LossShare
	LossOpen   = rate.LossOpen
)

// Reach is a Scope and a Loss in one byte, which is what a Take has room for. The zero value is a local bucket.
type Reach uint8

// NewReach puts a scope and a loss together.
func NewReach(s Scope, l Loss) Reach { return Reach(s) | Reach(l)<<4 }

// Scope is how far the bucket reaches.
func (r Reach) Scope() Scope { return Scope(r & 15) }

// Loss is what becomes of the take while nobody can ask for the bucket.
func (r Reach) Loss() Loss { return Loss(r >> 4) }
