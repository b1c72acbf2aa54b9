package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/envoy"
	"github.com/headgate-io/headgate/server/metrics"
)

// descriptors answer Envoy's rate limit filter, as files say. They have a table of
// counters of their own, so that neither they nor the rules crowd the other out.
type descriptors struct {
	conf    config.Decisions
	keeps   func(rate.Shape) error // nil where counters are in this process
	now     func() int64
	buckets bucket.Store
	local   *memory.Store // nil where they are not
	log     *slog.Logger

	current atomic.Pointer[descriptor.Limits]
	content [sha256.Size]byte // of the files, as last looked at
}

// descriptorsInterval is the time between two looks at the files. Their content
// counts: Kubernetes puts new ones in place by links.
const descriptorsInterval = time.Second

// newDescriptors reads the files for the first time, when nothing may be wrong. It
// returns nil if there are none.
func (p *parts) newDescriptors(c config.Config, log *slog.Logger) (*descriptors, error) {
	if len(c.Decisions.RateLimit) == 0 {
		return nil, nil
	}
	d := &descriptors{conf: c.Decisions, now: p.rules.Now, log: log}
	var err error
	if c.Decisions.RateLimitScope == "strict" {
		d.buckets, d.keeps = p.shared.scoped, keeps(c.Store)
	} else if d.local, err = newBuckets(c); err == nil {
		d.buckets = d.local
	}
	if err != nil {
		return nil, err
	}
	d.content = d.look()
	limits, err := d.read()
	if err != nil {
		return nil, fmt.Errorf("decisions.ratelimit: %w", err)
	}
	d.use(limits, &descriptor.Limits{}, 0)
	return d, nil
}

// read returns what the files say, if every limit of theirs can be kept.
func (d *descriptors) read() (*descriptor.Limits, error) {
	limits, err := descriptor.Read(d.conf.RateLimit...)
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

// use puts limits in force, in the place of others.
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
	ticker := time.NewTicker(descriptorsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.reload()
		}
	}
}

func (d *descriptors) reload() {
	content := d.look()
	if content == d.content {
		return
	}
	d.content = content
	limits, err := d.read()
	if err != nil {
		d.log.Error("the limits of descriptors cannot be loaded: the last good ones stay in force", "error", err)
		return
	}
	d.use(limits, d.current.Load(), d.now())
	d.log.Info("the limits of descriptors were loaded", "limits", len(limits.All()))
}

// look returns what tells the files from their next version.
func (d *descriptors) look() (content [sha256.Size]byte) {
	sum := sha256.New()
	for _, path := range d.conf.RateLimit {
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
	sum.Sum(content[:0])
	return content
}

// answers are how the filter's questions are answered; nil if they are not.
func (d *descriptors) answers(names *key.Namer, meter *metrics.Meter) *envoy.Descriptors {
	if d == nil {
		return nil
	}
	a := &envoy.Descriptors{
		Limits: d.current.Load, Buckets: d.buckets, Now: d.now,
		Observe: func(l *descriptor.Limit, over bool) { meter.Descriptor(l.Path, over, l.Shadow) },
	}
	if d.local != nil {
		hasher := key.NewHasher()
		a.Name = func(domain string, subject []byte) (key.Key, uint16) {
			return hasher.Key(0, 0, append([]byte(domain+"\x00"), subject...)), 0
		}
		return a
	}
	a.Reach = bucket.NewReach(bucket.Strict, bucket.LossClosed)
	a.Name = func(domain string, subject []byte) (key.Key, uint16) {
		// No endpoint is written like this, so that no rule has the same counter.
		return names.Name(0, "descriptors of "+domain, subject), names.Tag([]byte(domain))
	}
	return a
}
