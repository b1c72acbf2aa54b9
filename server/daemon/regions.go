package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/identity/region"
	"github.com/headgate-io/headgate/server/metrics"
)

// regionInterval is the time between two looks at the files.
const regionInterval = time.Second

// regions keeps the table of regions as its files are. Files that cannot be
// read leave the last good table in force.
type regions struct {
	log *slog.Logger

	table    atomic.Pointer[region.Table] // nil without files
	failures atomic.Uint64
	stale    atomic.Bool // the files are newer than the table, and faulty

	mu           sync.Mutex
	files        []string  // guarded by mu
	loaded, last []version // guarded by mu
}

// version is what tells a file from its next one without reading it.
type version struct {
	size  int64
	mtime time.Time
}

// newRegions loads the table for the first time, when nothing may be wrong.
// Without files there is none.
func newRegions(files []string, log *slog.Logger) (*regions, error) {
	r := &regions{log: logger(log)}
	use, err := r.prepare(files)
	if err != nil {
		return nil, err
	}
	use()
	return r, nil
}

// prepare reads files, if they are others than before; use puts what they say in force.
func (r *regions) prepare(files []string) (use func(), err error) {
	r.mu.Lock()
	same := slices.Equal(files, r.files)
	r.mu.Unlock()
	if same {
		return func() {}, nil
	}
	now := versions(files)
	table, err := region.Load(files...)
	if err != nil {
		return nil, err
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.files, r.loaded, r.last = files, now, now
		r.table.Store(table)
		r.stale.Store(false)
	}, nil
}

// finder returns the look-up for headgate.Options.Region, or nil.
func (r *regions) finder(who func() *identity.Resolver) func(netip.Addr) string {
	if r.table.Load() == nil {
		return nil
	}
	return func(a netip.Addr) string { return r.table.Load().Region(who().IPv4(a)) }
}

func (r *regions) run(ctx context.Context) {
	if r.table.Load() == nil {
		return
	}
	every(ctx, regionInterval, r.look)
}

// look loads files that changed, once they have ceased to: half a file may be
// a table too, with the other half of the world unknown.
func (r *regions) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := versions(r.files)
	settled := slices.Equal(now, r.last)
	r.last = now
	if !settled || slices.Equal(now, r.loaded) {
		return
	}
	r.loaded = now // also if they are faulty: they are read again when they change
	table, err := region.Load(r.files...)
	if err != nil {
		r.stale.Store(true)
		r.failures.Add(1)
		r.log.Error("the region files changed and cannot be used: the last good table stays in force", "error", err)
		return
	}
	r.stale.Store(false)
	r.table.Store(table)
	r.log.Info("regions loaded", "ranges", table.Len(), "regions", table.Regions(), "bytes", table.Bytes())
}

func versions(files []string) []version {
	all := make([]version, len(files))
	for i, file := range files {
		if s, err := os.Stat(file); err == nil {
			all[i] = version{s.Size(), s.ModTime()}
		}
	}
	return all
}

// status tells the metrics of the table, false if there is none.
func (r *regions) status() (_ metrics.RegionStatus, on bool) {
	table := r.table.Load()
	if table == nil {
		return metrics.RegionStatus{}, false
	}
	return metrics.RegionStatus{
		Ranges:   table.Len(),
		Bytes:    table.Bytes(),
		Failures: r.failures.Load(),
		OK:       !r.stale.Load(),
	}, true
}
