package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// Load is what it takes to bring rules into force, in one process.
type Load struct {
	Force     float64 // milliseconds, the first time
	Read      float64 // of these until the last rule was read; others are compiled meanwhile
	Processor float64 // milliseconds of this process's on all processors, the first time, collection of garbage included
	Again     float64 // milliseconds: read and then compile while others are in force, the median of some
	Peak      float64 // MiB resident at most, after the first time
	Idle      float64 // MiB resident before
	Bytes     float64 // of heap a rule, after compiling
}

// Rest is the milliseconds of the first load after the last rule was read.
func (l Load) Rest() float64 { return l.Force - l.Read }

// reloads is how many loads Load.Again is the median of: of large tables fewer, which differ less.
func (d database) reloads() int {
	if d.Rules > 100_000 {
		return 3
	}
	return 5
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
	o := policy.CompileOptions{Endpoints: endpoints}
	var set *policy.Set
	// As policy.Cache does: the first rules are compiled while others are read, and later ones afterwards.
	load := func() (read, all time.Duration, err error) {
		var draft *policy.Draft
		if o.Previous = set; set == nil {
			draft = policy.NewDraft(o)
		}
		begin := time.Now()
		doc, _, err := s.LoadInto(ctx, draft)
		read = time.Since(begin)
		if err != nil {
			return 0, 0, err
		}
		var problems policy.Problems
		if draft != nil {
			set, problems = draft.Compile(doc)
		} else {
			set, problems = policy.Compile(doc, o)
		}
		if set == nil || set.Len() != p.at.Rules {
			return 0, 0, fmt.Errorf("%d rules compile with %v", len(doc.Rules), problems.Err())
		}
		return read, time.Since(begin), nil
	}
	before := heap()
	l.Idle = resident("VmRSS")
	used := processor()
	read, all, err := load()
	l.Processor = ms(processor() - used)
	if err != nil {
		return l, err
	}
	l.Read, l.Force = ms(read), ms(all)
	l.Peak = resident("VmHWM")
	o.Previous = nil
	l.Bytes = float64(heap()-before) / float64(p.at.Rules)
	var again []float64
	for range p.at.reloads() {
		_, all, err := load()
		if err != nil {
			return l, err
		}
		again = append(again, ms(all))
	}
	slices.Sort(again)
	l.Again = again[len(again)/2]
	runtime.KeepAlive(set)
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
