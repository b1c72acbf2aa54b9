package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
)

// Load is what it takes to bring rules into force, in one process.
type Load struct {
	Force float64 // milliseconds, the first time
	Read  float64 // of these until the last rule was read; others are compiled meanwhile
	// milliseconds of this process's on all processors, the first time, collection of garbage
	// included
	Processor float64
	Again     float64 // milliseconds: read and then compile while others are in force, the median of some
	Peak      float64 // MiB resident at most, after the first time
	Idle      float64 // MiB resident before
	Bytes     float64 // of heap a rule, after compiling
}

// Rest is the milliseconds of the first load after the last rule was read.
func (l Load) Rest() float64 { return l.Force - l.Read }

// reloads is how many loads Load.Again is the median of: of large tables fewer, which differ less.
func (d measured) reloads() int {
	if d.Rules > 100_000 {
		return 3
	}
	return 5
}

// starts is how many processes of a round load the rules, or decide beside loads of them: of small
// tables, whose times a busy moment of the machine can double, more.
func (d measured) starts() int {
	if d.Rules > 100_000 {
		return 1
	}
	return 3
}

// timed is a database that notes when a load of it began and when the last rule was read.
type timed struct {
	*database.Store
	began, read time.Time
}

func (t *timed) Load(ctx context.Context) (policy.Document, string, error) {
	return t.LoadInto(ctx, nil)
}

func (t *timed) LoadInto(ctx context.Context, d *policy.Draft) (policy.Document, string, error) {
	t.began = time.Now()
	doc, version, err := t.Store.LoadInto(ctx, d)
	t.read = time.Now()
	return doc, version, err
}

func (p plan) measureLoad() (l Load, err error) {
	endpoints, err := table()
	if err != nil {
		return l, err
	}
	s, err := p.at.open()
	if err != nil {
		return l, err
	}
	defer s.Close()
	copies, err := os.MkdirTemp("", "policies-")
	if err != nil {
		return l, err
	}
	defer os.RemoveAll(copies) //nolint:errcheck // a folder for what is temporary
	source := &timed{Store: s}
	rules, err := policy.NewCache(policy.CacheOptions{Source: source,
		LastGood: filepath.Join(copies, "last-good.json"),
		Compile:  policy.CompileOptions{Endpoints: endpoints}})
	if err != nil {
		return l, err
	}
	load := func(how func(context.Context) error) (time.Duration, error) {
		before, done := rules.Set(), make(chan error, 1)
		go func() { done <- how(ctx) }()
		for rules.Set() == before { // they are in force before the last good copy is written
			select {
			case err := <-done:
				if err == nil && rules.Set() == before {
					err = errors.New("the rules did not change")
				}
				if err != nil {
					return 0, err
				}
				done <- nil
			case <-time.After(100 * time.Microsecond):
			}
		}
		all := time.Since(source.began)
		if n := rules.Set().Len(); n != p.at.Rules {
			return 0, fmt.Errorf("%d rules are in force", n)
		}
		return all, <-done
	}
	before := heap()
	l.Idle = resident("VmRSS")
	used := processor()
	first, err := load(rules.Start)
	l.Processor = ms(processor() - used)
	p.started()
	if err != nil {
		return l, err
	}
	l.Force, l.Read = ms(first), ms(source.read.Sub(source.began))
	l.Peak = max(l.Idle, resident("VmHWM")) // the kernel counts both in steps, each its own
	l.Bytes = float64(heap()-before) / float64(p.at.Rules)
	var again []float64
	for range p.at.reloads() {
		later, err := load(rules.Reload)
		if err != nil {
			return l, err
		}
		again = append(again, ms(later))
	}
	l.Again = median(again)
	runtime.KeepAlive(rules)
	return l, nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// processor is the time that this process has run on all processors.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident is what the kernel counts of this process under a name, in MiB; 0 where there is no such kernel.
func resident(name string) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			var kib float64
			_, _ = fmt.Sscan(rest, &kib)
			return kib / 1024
		}
	}
	return 0
}
