package memory

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"
)

// MinBytes is the smallest Options.MaxBytes. Less would hardly hold what a table needs besides its buckets.
const MinBytes = 1 << 16

// complete fills in the defaults, or says everything that is wrong.
func (o *Options) complete() error {
	err := errors.Join(inRange("MaxBuckets", o.MaxBuckets), inRange("SketchWidth", o.SketchWidth),
		inRange("MaxShapes", o.MaxShapes), inRange("MaxLogs", o.MaxLogs), o.checkBytes())
	if err != nil {
		return err
	}
	switch {
	case o.MaxBytes > 0:
		o.MaxBuckets = o.fitting()
		if o.MaxBuckets == 0 {
			return fmt.Errorf(
				"MaxBytes is %d, want %d or more for a table of 8 buckets with this SketchWidth and MaxShapes",
				o.MaxBytes, o.plan(ways).bytes())
		}
	case o.MaxBuckets == 0:
		o.MaxBuckets = defaultBuckets
	}
	*o = o.plan(o.MaxBuckets).options
	return nil
}

func (o *Options) checkBytes() error {
	switch {
	case o.MaxBytes < 0 || o.MaxBytes > 0 && o.MaxBytes < MinBytes:
		return fmt.Errorf("MaxBytes is %d, want %d or more, or 0 to give MaxBuckets", o.MaxBytes, MinBytes)
	case o.MaxBytes > 0 && o.MaxBuckets != 0:
		return fmt.Errorf("MaxBytes is %d and MaxBuckets is %d, want one of both", o.MaxBytes, o.MaxBuckets)
	}
	return nil
}

// fitting is the largest MaxBuckets whose table takes at most MaxBytes, or 0. It is found by
// halving: a larger table never takes less.
func (o *Options) fitting() int {
	low, high := 0, largest/ways // in sets
	for low < high {
		middle := (low + high + 1) / 2
		if o.plan(middle*ways).bytes() <= o.MaxBytes {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low * ways
}

// plan is how a table is laid out.
type plan struct {
	options Options // complete
	shards  int
	sets    int // in each shard
	lines   int // of each shard's ledger
	width   int // of each shard's lanes
	logSets int // in each shard, once it has logs
}

// What is remembered of evicted buckets takes 16 bytes for each of Options.SketchWidth, of which there are by default
// five for eight buckets: the ledger then holds the traces of twice as many buckets as the table has slots. Half would
// be too few for a table that is over-subscribed 2.5 times within seconds.
const (
	ledgerBytes = 14
	laneBytes   = 2

	lineBytes = int(unsafe.Sizeof(line{}))

	setBytes = int64(unsafe.Sizeof(set{})) + ways + 1 // with its tags, and how many are away
)

// plan lays out a table of so many buckets.
func (o *Options) plan(buckets int) plan {
	p := plan{options: *o}
	p.options.MaxBuckets = buckets
	if o.SketchWidth == 0 {
		p.options.SketchWidth = max(buckets/8*5, 1)
	}
	if o.MaxShapes == 0 {
		p.options.MaxShapes = min(max(buckets/64, 64), 1<<17)
	}
	if o.MaxLogs == 0 {
		p.options.MaxLogs = max(buckets/16, 1)
	}
	sets := (buckets + ways - 1) / ways
	p.shards = shardCount(sets)
	p.sets = (sets + p.shards - 1) / p.shards
	width := (p.options.SketchWidth + p.shards - 1) / p.shards
	p.lines, p.width = max(width*ledgerBytes/lineBytes, 1), max(width*laneBytes/(classes*rows*4), 1)
	p.logSets = ((p.options.MaxLogs+ways-1)/ways + p.shards - 1) / p.shards
	return p
}

// bytes is what the table can take; Stats.Bytes says the same of one that is there and has logs in every shard.
func (p plan) bytes() int64 {
	each := int64(unsafe.Sizeof(shard{})) + int64(p.sets)*setBytes +
		int64(p.lines)*int64(lineBytes) + classes*rows*int64(p.width)*4 +
		int64(unsafe.Sizeof(logTable{})) + int64(p.logSets)*int64(unsafe.Sizeof([ways]logSlot{})+8)
	return int64(p.shards)*each + registryBytes(p.options.MaxShapes)
}

// registryBytes is what newRegistry(most) takes.
func registryBytes(most int) int64 {
	index := max(4, int64(1)<<bits.Len64(2*uint64(most)-1)) // see registry.indexLen
	return int64(most+1)*(shapeBytes+4) + index*4
}
