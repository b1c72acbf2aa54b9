package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
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
	files []string
	log   *slog.Logger

	table    atomic.Pointer[region.Table]
	failures atomic.Uint64
	stale    atomic.Bool // the files are newer than the table, and faulty

	// Of the goroutine that runs alone.
	loaded, last []version
}

// version is what tells a file from its next one without reading it.
type version struct {
	size  int64
	mtime time.Time
}

// newRegions loads the table for the first time, when nothing may be wrong.
// Without files there is none.
func newRegions(files []string, log *slog.Logger) (*regions, error) {
	if log == nil {
		log = slog.Default()
	}
	r := &regions{files: files, log: log}
	if len(files) == 0 {
		return r, nil
	}
	r.loaded = r.versions()
	r.last = r.loaded
	table, err := region.Load(files...)
	if err != nil {
		return nil, err
	}
	r.table.Store(table)
	return r, nil
}

// finder returns the look-up for headgate.Options.Region, or nil.
func (r *regions) finder(who func() *identity.Resolver) func(netip.Addr) string {
	if len(r.files) == 0 {
		return nil
	}
	return func(a netip.Addr) string { return r.table.Load().Region(who().IPv4(a)) }
}

func (r *regions) run(ctx context.Context) {
	if len(r.files) == 0 {
		return
	}
	every(ctx, regionInterval, r.look)
}

// look loads files that changed, once they have ceased to: half a file may be
// a table too, with the other half of the world unknown.
func (r *regions) look() {
	now := r.versions()
	settled := slices.Equal(now, r.last)
	r.last = now
	if !settled || slices.Equal(now, r.loaded) {
		return
	}
	r.loaded = now // also if they are faulty: they are read again when they change
	table, err := region.Load(r.files...)
	if err != nil {
		r.failures.Add(1)
		r.stale.Store(true)
		r.log.Error("the region files changed and cannot be used: the last good table stays in force", "error", err)
		return
	}
	r.table.Store(table)
	r.stale.Store(false)
	r.log.Info("regions loaded", "ranges", table.Len(), "regions", table.Regions(), "bytes", table.Bytes())
}

func (r *regions) versions() []version {
	all := make([]version, len(r.files))
	for i, file := range r.files {
		if s, err := os.Stat(file); err == nil {
			all[i] = version{s.Size(), s.ModTime()}
		}
	}
	return all
}

// reporter tells the metrics of the table, if there is one.
func (r *regions) reporter() func() metrics.RegionStatus {
	if len(r.files) == 0 {
		return nil
	}
	return r.status
}

func (r *regions) status() metrics.RegionStatus {
	table := r.table.Load()
	return metrics.RegionStatus{
		Ranges:   table.Len(),
		Bytes:    table.Bytes(),
		Failures: r.failures.Load(),
		OK:       !r.stale.Load(),
	}
}
