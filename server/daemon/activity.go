package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/decisionlog"
)

// newActivity returns what remembers decisions, or nil.
func newActivity(c config.Activity, names *activity.Names, early func(*headgate.Decision)) (*activity.Table, error) {
	if c.MaxRequests == 0 {
		return nil, nil
	}
	return activity.New(activity.Options{
		MaxRequests: c.MaxRequests,
		MaxCallers:  c.MaxCallers,
		Names:       names,
		Early:       early,
	})
}

// written writes decisions down, to a file that it closes in the end.
type written struct {
	*decisionlog.Log
	file io.Closer // nil where it is not ours
}

// newDecisions returns what writes decisions down; nil where none are.
func (p *parts) newDecisions(c config.DecisionLog) (*written, error) {
	if !c.On() {
		return nil, nil
	}
	d := &written{}
	o := decisionlog.Options{
		Write: os.Stderr, Caller: p.names.Hash, PerSecond: c.PerSecond,
		Failed: func(err error) { p.log.Error("decisions cannot be written down", "file", c.File, "error", err) },
		Recovered: func(lost uint64) {
			p.log.Info("decisions are written down again", "file", c.File, "lost_lines", lost)
		},
	}
	if c.AdmittedOneIn > 0 {
		o.Admitted = 1 / float64(c.AdmittedOneIn)
	}
	if c.File != "stderr" {
		file, err := os.OpenFile(c.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // now, so that a fault is told
		if err != nil {
			return nil, fmt.Errorf("decision_log.file: %w", err)
		}
		o.Torn = torn(file)
		_ = file.Close()
		rotated := &lumberjack.Logger{
			Filename:   c.File,
			MaxSize:    int(c.MaxSize >> 20),
			MaxBackups: c.Keep,
			Compress:   true,
		}
		o.Write, d.file = rotated, rotated
	}
	var err error
	d.Log, err = decisionlog.New(o)
	return d, err
}

// torn reports whether a file ends amid a line: a gateway was killed, or its disk full, when it wrote the last one.
func torn(file *os.File) bool {
	about, err := file.Stat()
	if err != nil || !about.Mode().IsRegular() || about.Size() == 0 {
		return false
	}
	read, err := os.Open(file.Name())
	if err != nil {
		return true // who may not look begins a line, and leaves an empty one at worst
	}
	defer func() { _ = read.Close() }()
	var last [1]byte
	_, err = read.ReadAt(last[:], about.Size()-1)
	return err != nil || last[0] != '\n'
}

// write writes decisions down until ctx ends, and then those that wait.
func (d *written) write(ctx context.Context) {
	d.Run(ctx)
	if d.file != nil {
		_ = d.file.Close() // of what could not be written it has told
	}
}

func (p *parts) decisionStats() (s decisionlog.Stats, on bool) {
	if d := p.decisions.get(); d != nil {
		return d.Stats(), true
	}
	return s, false
}

// activityEvery is the time between two looks at the counters of rules.
const activityEvery = time.Second

// readActivity reads the counters of rules until ctx ends.
func (p *parts) readActivity(ctx context.Context) {
	if p.activity == nil {
		return
	}
	every(ctx, activityEvery, func() { p.activity.Read(p.meter.Rules()) })
}

// mostTrialBuckets is the most buckets that a trial has room for, whatever the gateway has: its table is made anew for
// each set of rules.
const mostTrialBuckets = 1 << 19

// try has rules decide what a sample of the last hour's requests asked for: those of the database, and then those as
// each change leaves them.
func (d *Daemon) try(ctx context.Context, reveal bool, changes []func(*policy.Document)) (*activity.Trial,
	[]activity.Result, error) {
	doc, _, err := d.parts.database.Load(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("the rules could not be read: %w", err)
	}
	sample := d.parts.activity.Sample()
	doc = relevant(doc, sample)
	l := *d.parts.loaded.Load()
	l.conf.MaxBuckets, l.conf.MaxBytes = min(max(l.conf.MaxBuckets, 1<<16), mostTrialBuckets), 0
	trial := activity.NewTrial(sample, l.registry.Table, reveal)
	var results []activity.Result
	for _, change := range append([]func(*policy.Document){func(*policy.Document) {}}, changes...) {
		changed := doc
		changed.Rules = append([]policy.Rule(nil), doc.Rules...)
		change(&changed)
		limiter, err := l.rehearse(changed, trial.Clock, nil)
		if err != nil {
			return nil, nil, err
		}
		result, err := trial.Run(ctx, limiter)
		if err != nil {
			return nil, nil, err
		}
		results = append(results, result)
	}
	return trial, results, nil
}

// relevant leaves out the rules of projects of which nobody is in the sample: of a million rules few are needed.
func relevant(doc policy.Document, sample activity.Sample) policy.Document {
	there := map[string]bool{"": true}
	for i := range sample.Requests {
		there[sample.Requests[i].Who.Project] = true
	}
	rules := make([]policy.Rule, 0, len(doc.Rules))
	for _, r := range doc.Rules {
		if there[r.Project] {
			rules = append(rules, r)
		}
	}
	doc.Rules = rules
	return doc
}
