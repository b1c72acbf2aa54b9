package group_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gossip"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/group"
)

// processor is the time that this process has had of processors.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What a full message costs, of 20 buckets, its teller and its listener together, in time of processors.
// TestGossipLeavesProcessors of package simulate reckons with it.
func BenchmarkMessage(b *testing.B) {
	const buckets = 20
	sh, err := rate.Compile(rate.Limit{Tokens: 1 << 20, Per: time.Second, Burst: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var all []*group.Group
	var first []string
	for range 2 {
		// Ticks are the benchmark's.
		g, err := group.New(group.Options{Listen: "127.0.0.1:0", Join: first, Secret: secret,
			Gossip: gossip.Options{Interval: 10 * time.Second}})
		if err != nil {
			b.Fatal(err)
		}
		running.Go(func() { g.Run(ctx) })
		all, first = append(all, g), []string{g.Address()}
	}
	teller, listener := all[0].Store(), all[1].Store()
	for teller.Replicas() < 2 || listener.Replicas() < 2 {
		time.Sleep(time.Millisecond)
	}
	before, sent := processor(b), teller.Status().Messages
	for b.Loop() {
		for i := range uint64(buckets) {
			var o bucket.Outcome
			teller.Take(teller.Now(), &bucket.Take{Key: key.Key{Hi: i, Lo: i}, Shape: sh, Cost: 1}, &o)
		}
		heard := listener.Status().Received
		teller.Tick()
		for range 1000 { // or it is lost
			if listener.Status().Received > heard {
				break
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	messages := teller.Status().Messages - sent
	b.ReportMetric(float64(processor(b)-before)/float64(messages), "ns-of-processors/message")
	b.ReportMetric(float64(teller.Status().Bytes)/float64(teller.Status().Messages), "bytes/message")
}
