package rate

// Scope is how far a limit reaches when several replicas run. The zero value is Local.
type Scope uint8

// The scopes. docs/scaling.md says what each promises.
const (
	Local  Scope = iota // each replica has a bucket of its own
	Split               // each replica has a bucket of its own, with its share of the limit
	Strict              // one bucket for all, asked for every take
	Lease               // one bucket for all, which replicas take batches from
	Sync                // one bucket for all, which replicas report to what they took
	Gossip              // each replica has a bucket of its own, and debits it by what others say that they took
)

// Shared says that one bucket is for all replicas, in a store that all of them ask.
func (s Scope) Shared() bool { return Strict <= s && s <= Sync }

// Named says that a bucket has one name, which all replicas know.
func (s Scope) Named() bool { return s >= Strict }

// Loss is what becomes of takes from a shared bucket while nobody can ask for it. The zero value
// is LossClosed.
type Loss uint8

// The answers to a loss.
const (
	LossClosed Loss = iota // deny
	LossShare              // go on with a share of the limit
	LossOpen               // admit
)
