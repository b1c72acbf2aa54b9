package bucket

// Scope says how far a bucket reaches when several replicas run.
type Scope uint8

// The scopes. Local is the zero value.
const (
	Local  Scope = iota // each replica has one of its own
	Split               // each replica has one of its own, with its share of the limit
	Strict              // one for all, asked for every take
	Lease               // one for all, which replicas take batches from
	Sync                // one for all, which replicas report to what they took
)

// Shared says that one bucket is for all replicas, under a name that all of them know.
func (s Scope) Shared() bool { return s >= Strict }

// Loss says what becomes of takes from a shared bucket while nobody can ask for it.
type Loss uint8

// The answers to a loss. LossClosed is the zero value.
const (
	LossClosed Loss = iota // deny
	LossShare              // go on with a share of the limit
	LossOpen               // admit
)

// Reach is a Scope and a Loss in one byte, which is what a Take has room for. The zero value is a local bucket.
type Reach uint8

// NewReach puts a scope and a loss together.
func NewReach(s Scope, l Loss) Reach { return Reach(s) | Reach(l)<<4 }

// Scope is how far the bucket reaches.
func (r Reach) Scope() Scope { return Scope(r & 15) }

// Loss is what becomes of the take while nobody can ask for the bucket.
func (r Reach) Loss() Loss { return Loss(r >> 4) }
