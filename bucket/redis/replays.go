package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/key"
)

// ReplaysOptions configures Replays. Kind, Names and Keep are required.
type ReplaysOptions struct {
	// Kind begins the names of its keys on the server; another Kind is another memory. Lower-case letters, 1 to 16.
	Kind string

	// Names is how many are remembered at least, 512 to 16,777,216, at some 40 bytes each; rounded up to a power of
	// two. All who share the store have the same.
	Names int

	// Keep is how long a name is remembered if it need not give way. Longer than one may be good: 1 s to a week.
	Keep time.Duration

	// Now tells the time, in Unix nanoseconds, to a Store with Options.CallersClock. Others ask the
	// server, and need none.
	Now func() int64
}

const (
	replayWays    = 8 // names in a set, as in the script
	replayRegions = 8 // a holder's names lie in one of them
)

// Replays remembers, for all who share a Store, what may be used once, in memory of a fixed size: a full set of names
// gives up the one that was made first, and names made no later count as used from then on. So nothing is used twice
// while the server keeps what it was told. It is safe for concurrent use.
type Replays struct {
	store     *Store
	begin     string
	perRegion uint64
	keep      float64 // milliseconds
	now       func() int64
}

// NewReplays makes a Replays, or says everything that is wrong with o.
func NewReplays(s *Store, o ReplaysOptions) (*Replays, error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s == nil {
		fault("the store is nil, want one")
	}
	valid := len(o.Kind) > 0 && len(o.Kind) <= 16
	for _, r := range o.Kind {
		valid = valid && 'a' <= r && r <= 'z'
	}
	if !valid {
		fault("Kind is %q, want 1 to 16 lower-case letters", o.Kind)
	}
	if o.Names < 512 || o.Names > 1<<24 {
		fault("Names is %d, want 512 to 16777216", o.Names)
	}
	if o.Keep < time.Second || o.Keep > 7*24*time.Hour {
		fault("Keep is %v, want 1s to 168h", o.Keep)
	}
	if s != nil && s.callers && o.Now == nil {
		fault("Now is nil, want a clock: the store has CallersClock")
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("redis replays: %w", errors.Join(errs...))
	}
	if !s.callers {
		o.Now = func() int64 { return 0 }
	}
	sets := replayRegions
	for sets*replayWays < o.Names {
		sets *= 2
	}
	return &Replays{
		store: s, begin: s.prefix + "{" + o.Kind + ":", perRegion: uint64(sets / replayRegions),
		keep: float64(o.Keep.Milliseconds()), now: o.Now,
	}, nil
}

// Use reports whether name, which says that it was made then, was not used before by anybody, and notes that it is
// now. Names and holders are keyed hashes: the server is told nothing else. An error, an *Error, means that this
// cannot be found out; the name may have been noted.
func (r *Replays) Use(ctx context.Context, holder, name key.Key, made time.Time) (fresh bool, err error) {
	set := holder.Hi%replayRegions*r.perRegion + name.Hi%r.perRegion
	arg := make([]byte, 0, 64)
	for _, number := range [...]float64{float64(r.now()) / 1000, float64(made.Unix()), r.keep} {
		arg = binary.LittleEndian.AppendUint64(arg, math.Float64bits(number))
	}
	arg = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(arg, name.Hi), name.Lo)
	answer, err := r.store.run(ctx, replaysScript, []string{r.begin + strconv.FormatUint(set, 10) + "}"},
		[]string{string(arg)})
	if err != nil {
		return false, err
	}
	said, ok := number(answer[1])
	if !ok || said != 0 && said != 1 {
		return false, unreadable(answer)
	}
	return said == 1, nil
}
