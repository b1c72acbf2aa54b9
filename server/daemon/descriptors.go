package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/envoy"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/quota"
)

// counters are the buckets of those who ask about something else than requests.
// They have a table of their own, so that neither they nor the rules crowd the other
// out.
type counters struct {
	buckets bucket.Store
	local   *memory.Store // nil where they are in the shared store
	reach   bucket.Reach
	keeps   func(rate.Shape) error // nil where every limit can be kept

	// name names the counter of a subject of some kind.
	name func(kind string, subject []byte) (key.Key, uint16)
}

// newCounters returns nil if nobody asks so.
func (p *parts) newCounters(c config.Config) (*counters, error) {
	if c.Decisions.RESP == "" && len(c.Decisions.RateLimit) == 0 {
		return nil, nil
	}
	if c.Decisions.Scope == "strict" {
		names := p.shared.naming()
		return &counters{
			buckets: p.shared.scoped, reach: bucket.NewReach(bucket.Strict, bucket.LossClosed), keeps: keeps(c.Store),
			name: func(kind string, subject []byte) (key.Key, uint16) {
				// No endpoint is written like this, so that no rule has the same counter.
				return names.Name(0, "counters of "+kind, subject), names.Tag([]byte(kind))
			},
		}, nil
	}
	local, err := newBuckets(c)
	if err != nil {
		return nil, err
	}
	local.Learn(0, 0) // nothing was counted before
	hasher := key.NewHasher()
	return &counters{
		buckets: local, local: local,
		name: func(kind string, subject []byte) (key.Key, uint16) {
			return hasher.Key(0, 0, append([]byte(kind+"\x00"), subject...)), 0
		},
	}, nil
}

// descriptors answer Envoy's rate limit filter, as files say.
type descriptors struct {
	conf config.Decisions
	*counters
	now func() int64
	log *slog.Logger

	current  atomic.Pointer[descriptor.Limits]
	failures atomic.Uint64
	stale    atomic.Bool // the files are newer than the limits, and faulty

	quotas *quota.Book // lends of the limits

	loaded, last content // of the files, in force or faulty, and as last looked at
}

// content tells files from their next version.
type content [sha256.Size]byte

// descriptorsInterval is the time between two looks at the files. Their content
// counts: Kubernetes puts new ones in place by links.
const descriptorsInterval = time.Second

// newDescriptors reads the files for the first time, when nothing may be wrong. It
// returns nil if there are none.
func (p *parts) newDescriptors(c config.Config, log *slog.Logger) (*descriptors, error) {
	if len(c.Decisions.RateLimit) == 0 {
		return nil, nil
	}
	d := &descriptors{conf: c.Decisions, counters: p.counters, now: p.rules.Now, log: log}
	d.loaded = d.look()
	d.last = d.loaded
	limits, err := d.read()
	if err != nil {
		return nil, fmt.Errorf("decisions.ratelimit: %w", err)
	}
	d.use(limits, &descriptor.Limits{}, 0)
	d.quotas, err = quota.New(quota.Options{
		Limits: d.current.Load, Buckets: d.buckets, Reach: d.reach, Name: d.nameOf, Now: d.now,
		TTL:      c.Decisions.QuotaTTL,
		Replicas: p.lenders(c), Failed: seldom(log,
			"tokens for Envoy could not be taken from the shared store, so that what it has ends"),
		Observe: func(l *descriptor.Limit, allowed, denied uint64) { p.meter.Quota(l.Path, allowed, denied) },
	})
	return d, err
}

// read returns what the files say, if every limit of theirs can be kept.
func (d *descriptors) read() (*descriptor.Limits, error) {
	read := descriptor.Read
	if d.conf.RateLimitMerge {
		read = descriptor.ReadMerged
	}
	limits, err := read(d.conf.RateLimit...)
	if err != nil || d.keeps == nil {
		return limits, err
	}
	var errs []error
	for _, l := range limits.All() {
		if l.Shape == (rate.Shape{}) {
			continue
		}
		if err := d.keeps(l.Shape); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.Path, err))
		}
	}
	return limits, errors.Join(errs...)
}

// use puts limits in force, in place of others.
func (d *descriptors) use(limits, before *descriptor.Limits, now int64) {
	settled, _ := limits.Follow(before, now)
	if d.local != nil {
		d.local.Learn(now, settled)
	}
	d.current.Store(limits)
}

// run looks at the files until ctx ends. Files with faults leave what is in force.
func (d *descriptors) run(ctx context.Context) {
	if d == nil {
		return
	}
	every(ctx, descriptorsInterval, d.reload)
}

// reload loads files that changed, once they have ceased to: half a file may be a
// configuration too, without half of the limits.
func (d *descriptors) reload() {
	now := d.look()
	settled := now == d.last
	d.last = now
	if !settled || now == d.loaded {
		return
	}
	d.loaded = now // also if they are faulty: they are read again when they change
	limits, err := d.read()
	if err != nil {
		d.failures.Add(1)
		d.stale.Store(true)
		d.log.Error("the limits of descriptors cannot be loaded: the last good ones stay in force", "error", err)
		return
	}
	d.use(limits, d.current.Load(), d.now())
	d.stale.Store(false)
	d.log.Info("the limits of descriptors were loaded", "limits", len(limits.All()))
}

// reporter tells the metrics of the limits, if there are any.
func (d *descriptors) reporter() func() metrics.DescriptorStatus {
	if d == nil {
		return nil
	}
	return func() metrics.DescriptorStatus {
		return metrics.DescriptorStatus{
			Limits:   len(d.current.Load().All()),
			Failures: d.failures.Load(),
			OK:       !d.stale.Load(),
		}
	}
}

func (d *descriptors) look() content { return contentOf(d.conf.RateLimit) }

// contentOf is what files hold, and those of folders.
func contentOf(paths []string) (now content) {
	sum := sha256.New()
	for _, path := range paths {
		files := []string{path}
		if entries, err := os.ReadDir(path); err == nil {
			files = files[:0]
			for _, e := range entries {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			fmt.Fprintf(sum, "%s %d %v\x00", file, len(text), err)
			sum.Write(text)
		}
	}
	sum.Sum(now[:0])
	return now
}

// lenders is how many processes lend of the same counters.
func (p *parts) lenders(c config.Config) func() int {
	if c.Decisions.Scope != "strict" {
		return nil
	}
	return p.shared.members.Count
}

func (d *descriptors) nameOf(domain string, subject []byte) (key.Key, uint16) {
	return d.name("descriptors of "+domain, subject)
}

// lent tells the metrics what Envoys were lent, if they may be.
func (d *descriptors) lent() func() quota.Status {
	if d == nil {
		return nil
	}
	return d.quotas.Status
}

// answers are how the filter's questions are answered; nil if they are not.
func (d *descriptors) answers(p *parts) *envoy.Descriptors {
	if d == nil {
		return nil
	}
	var told func() *httplimit.Options
	if d.conf.RateLimitFields {
		told = func() *httplimit.Options { return &p.loaded.Load().fields }
	}
	return &envoy.Descriptors{
		MayOverride: func(a netip.Addr) bool { return p.loaded.Load().setters.have(a) }, Keeps: d.keeps,
		Overridden: p.meter.Overridden,
		Fields:     told, Metadata: d.conf.RateLimitMetadata,
		Limits: d.current.Load, Buckets: d.buckets, Reach: d.reach, Now: d.now,
		Name: d.nameOf, Quotas: d.quotas,
		Observe: func(l *descriptor.Limit, over bool) { p.meter.Descriptor(l.Path, over, l.Shadow) },
	}
}
