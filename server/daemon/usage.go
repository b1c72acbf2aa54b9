package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/state"
	"github.com/headgate-io/headgate/server/usage"
)

// keptUsage is what callers did by the day, in a file that outlives the process. A nil *keptUsage keeps nothing.
type keptUsage struct {
	days     *usage.Days
	path     string
	interval time.Duration
	log      *slog.Logger
	lock     io.Closer

	mu      sync.Mutex // guards what follows
	written time.Time
	said    string // why the last write failed
	refused string // why the file of the process before was not used
}

// keepUsage has days go on from the file, if one is wanted. One that cannot be used is put aside, loudly, and the
// gateway starts: what would be worse is a gateway that does not.
func keepUsage(c config.Usage, days *usage.Days, log *slog.Logger) (*keptUsage, error) {
	if c.File == "" || days == nil {
		return nil, nil
	}
	lock, err := state.Lock("usage.file", c.File)
	if err != nil {
		return nil, err
	}
	k := &keptUsage{days: days, path: c.File, interval: c.Interval, log: log, lock: lock}
	if err := k.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		aside := c.File + ".refused"
		if renamed := os.Rename(c.File, aside); renamed != nil {
			k.close()
			return nil, fmt.Errorf("usage.file %s is not used (%w), and cannot be moved aside: %w",
				c.File, err, renamed)
		}
		k.refused = fmt.Sprintf("usage.file %s is not used: %v; it is kept as %s, and usage is counted from now on",
			c.File, err, aside)
		log.Error("the usage that the process before counted is not used", "error", k.refused)
	}
	if err := k.replace(false); err != nil { // now, so that a fault is told
		k.close()
		return nil, fmt.Errorf("usage.file: %w", err)
	}
	return k, nil
}

func (k *keptUsage) load() error {
	file, err := os.Open(k.path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	if err := k.days.Load(file); err != nil {
		return err
	}
	if gaps := k.days.Gaps(); len(gaps) > 0 {
		last := gaps[len(gaps)-1]
		k.log.Warn("usage may lack requests of a process that was killed", "from", last.From, "to", last.To)
	}
	return nil
}

// replace replaces the file; ended says that nothing is counted any more.
func (k *keptUsage) replace(ended bool) error {
	_, err := state.Replace(k.path, func(to io.Writer) error { return k.days.Save(to, ended) })
	return err
}

// run writes the file now and then, until ctx ends.
func (k *keptUsage) run(ctx context.Context) {
	if k != nil {
		every(ctx, k.interval, func() { k.write(false) })
	}
}

// write replaces the file. One complaint is said once.
func (k *keptUsage) write(ended bool) {
	begin := time.Now()
	err := k.replace(ended)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if k.said != err.Error() {
			k.said = err.Error()
			k.log.Error("usage could not be written to usage.file: a restart would lose what was counted since",
				"error",
				err, "written", k.written)
		}
		return
	}
	if k.said != "" {
		k.log.Info("usage is written to usage.file again")
	}
	k.said, k.written = "", begin
}

// end writes the file for the last time, when nobody decides any more.
func (k *keptUsage) end() {
	if k != nil {
		k.write(true)
	}
}

func (k *keptUsage) close() {
	if k != nil {
		_ = k.lock.Close()
	}
}

// at tells when the file was written, nil without.
func (k *keptUsage) at() func() time.Time {
	if k == nil {
		return nil
	}
	return func() time.Time {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.written
	}
}

// warnings are what /readyz says of it.
func (k *keptUsage) warnings() (list []string) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused != "" {
		list = append(list, k.refused)
	}
	if k.said != "" {
		list = append(list, "usage could not be written to usage.file: "+k.said)
	}
	return list
}
