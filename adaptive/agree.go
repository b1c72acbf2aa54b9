package adaptive

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Processes that share buckets tell each other what their multipliers are, each second or so. What is in force
// for those buckets is the middle one of those that are heard and its own, the larger if two are in the middle.
// So it is between the least and the greatest of those that say what is true as long as more than half do, and
// they agree although nobody decides. It never counts for more than a rule says: none is above 1.

const (
	// fresh is how long what others said counts, in nanoseconds, by whoever hears it. Who carries it takes care
	// that it is not old when it is heard.
	fresh = 3 * int64(time.Second)

	// MaxVoices is how many others are heard, of those that are told of.
	MaxVoices = 256

	version   = 1
	voiceSize = 8 + 2
)

// MaxTold is how many bytes Tell says at most, for a table of so many endpoints.
func MaxTold(endpoints int) int { return 1 + voiceSize*endpoints }

// Tell is what others are to hear: the multiplier of each endpoint that had enough answers of late to say anything. It
// is empty if none had. A message is a byte for its version and, for each endpoint, eight bytes that stand for its
// template and two for the multiplier, big-endian.
func (t *Table) Tell(now int64) []byte {
	v := t.view.Load()
	if v == nil {
		return nil
	}
	told := []byte{version}
	for name, e := range v.byName {
		var m int
		var voice bool
		e.tell(e.locked(now, func() { m, voice = e.m, e.voice }))
		if voice {
			told = binary.BigEndian.AppendUint64(told, nameOf(name))
			told = binary.BigEndian.AppendUint16(told, uint16(m))
		}
	}
	if len(told) == 1 {
		return nil
	}
	return told
}

// Hear has told count, for three seconds, as what all others said with Tell, each once. What cannot be read is
// left out, and is counted in unread.
func (t *Table) Hear(now int64, told [][]byte) (unread int) {
	v := t.view.Load()
	if v == nil {
		return 0
	}
	heard := map[uint64][]int{}
	for _, one := range told[:min(len(told), MaxVoices)] {
		if !read(one, func(name uint64, m int) { heard[name] = append(heard[name], m) }) {
			unread++
		}
	}
	for name, e := range v.byName {
		others := heard[nameOf(name)]
		slices.Sort(others)
		e.tell(e.locked(now, func() {
			e.heard, e.asof = others, now
			e.setLocked(now, now, e.m, e.atOnce)
		}))
	}
	return unread
}

// read calls f with each multiplier of a message, unless something is wrong with any of it.
func read(told []byte, f func(name uint64, m int)) bool {
	if len(told) == 0 || told[0] != version || (len(told)-1)%voiceSize != 0 {
		return false
	}
	all := told[1:]
	seen := make(map[uint64]bool, len(all)/voiceSize)
	for rest := all; len(rest) > 0; rest = rest[voiceSize:] {
		name, m := binary.BigEndian.Uint64(rest), binary.BigEndian.Uint16(rest[8:])
		if seen[name] || m < 1 || m > rate.Whole {
			return false
		}
		seen[name] = true
	}
	for rest := all; len(rest) > 0; rest = rest[voiceSize:] {
		f(binary.BigEndian.Uint64(rest), int(binary.BigEndian.Uint16(rest[8:])))
	}
	return true
}

// nameOf stands for a template. Two endpoints of one configuration that are called the same would be taken for one.
func nameOf(template string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(template))
	return h.Sum64()
}

// agreeLocked is what all agree on, of whom one at least is heard. Who had too few answers to judge the API by says
// nothing, and goes by what the others say.
func (e *Endpoint) agreeLocked(own int) int {
	if !e.voice {
		return e.heard[len(e.heard)/2]
	}
	below, _ := slices.BinarySearch(e.heard, own)
	middle := (len(e.heard) + 1) / 2
	switch {
	case middle < below:
		return e.heard[middle]
	case middle == below:
		return own
	}
	return e.heard[middle-1]
}
