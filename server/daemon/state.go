package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/state"
)

// kept is what local buckets hold, in a file that outlives the process. A nil *kept keeps nothing.
type kept struct {
	file     *state.File
	interval time.Duration
	log      *slog.Logger
	rules    *policy.Cache
	buckets  *memory.Store
	blocked  *penalty.Table

	mu      sync.Mutex // guards what follows
	status  metrics.KeptStatus
	said    string // why the last write failed
	refused string // why the file of the process before was not used
}

// openKept opens the file, if one is wanted. One that cannot be used is refused, loudly, and the gateway starts: what
// would be worse is a gateway that does not.
func openKept(c config.Config, log *slog.Logger) (*kept, error) {
	if c.StateFile == "" {
		return nil, nil
	}
	file, err := state.Open(state.Options{Path: c.StateFile,
		Secrets: func() (current []byte, others [][]byte, err error) {
			secrets, err := database.LoadSecrets(c.SecretFile, nil)
			return secrets.Current, [][]byte{secrets.Previous}, err
		}})
	k := &kept{file: file, interval: c.StateInterval, log: logger(log)}
	var refused *state.Refused
	switch {
	case errors.As(err, &refused):
		k.refuse(err)
	case err != nil:
		return nil, err
	}
	return k, nil
}

func (k *kept) refuse(err error) {
	k.refused = err.Error()
	k.log.Error("the buckets of the process before are lost", "error", err)
}

// predecessor is what the rules follow, and when.
func (k *kept) predecessor() (*policy.Predecessor, int64) {
	if k == nil {
		return nil, 0
	}
	return k.file.Predecessor(), k.file.Began()
}

// keys name the buckets.
func (k *kept) keys() *key.Hasher {
	if k == nil {
		return nil
	}
	return k.file.Keys()
}

// penalties are those that are kept; nil without a file.
func (k *kept) penalties() *penalty.Table {
	if k == nil {
		return nil
	}
	return k.blocked
}

// fill returns the table that newTable makes, with what was kept.
func (k *kept) fill(newTable func() (*memory.Store, error), rules *policy.Cache) (*memory.Store, error) {
	table, err := newTable()
	if k == nil || err != nil {
		return table, err
	}
	k.rules, k.blocked = rules, penalty.New(0)
	begin := time.Now()
	if err := k.file.Load(table, k.blocked, rules.Now()); err != nil {
		k.refuse(fmt.Errorf("state_file: %w", err))
		k.blocked = penalty.New(0)
		if table, err = newTable(); err != nil {
			return nil, err
		}
	} else if at := k.file.Written(); !at.IsZero() {
		k.log.Info("buckets go on from the process before", "buckets", table.Stats(rules.Now()).Live, "written",
			at.UTC(), "took", time.Since(begin).Round(time.Millisecond))
	}
	k.buckets = table
	return table, nil
}

// run writes the file now and then, until ctx ends.
func (k *kept) run(ctx context.Context) {
	if k == nil {
		return
	}
	every(ctx, k.interval, k.write)
}

// write replaces the file. One complaint is said once.
func (k *kept) write() {
	set, begin := k.rules.Set(), time.Now()
	if set == nil {
		return // nothing was decided yet
	}
	now := k.rules.Now()
	size, err := k.file.Save(set, k.buckets, k.blocked, k.rules.Wall(now), now)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.status.Failures++
		if k.said != err.Error() {
			k.said = err.Error()
			k.log.Error(
				"the buckets could not be written to state_file: a restart would go on from when they were last",
				"error", err)
		}
		return
	}
	if k.said != "" {
		k.log.Info("the buckets are written to state_file again")
	}
	k.said, k.status.Written, k.status.Bytes, k.status.Took = "", begin, size, time.Since(begin)
}

// end writes the file for the last time, when nobody decides any more.
func (k *kept) end() {
	if k != nil {
		k.write()
	}
}

func (k *kept) close() {
	if k != nil {
		k.file.Close()
	}
}

// reporter reports how it is, nil without.
func (k *kept) reporter() func() metrics.KeptStatus {
	if k == nil {
		return nil
	}
	return func() metrics.KeptStatus {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.status
	}
}

// warnings are what /readyz says of it.
func (k *kept) warnings() (list []string) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused != "" {
		list = append(list, k.refused)
	}
	if k.said != "" {
		list = append(list, "the buckets could not be written to state_file: "+k.said)
	}
	return list
}
