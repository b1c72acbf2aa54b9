package penalty

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/headgate-io/headgate/internal/callers"
	"github.com/headgate-io/headgate/key"
)

// saved is an entry as it stands in a file, little-endian.
type saved struct {
	Hi, Lo        uint64
	Width, Newest int64
	Counts        [cells]uint16
	Since, Length int64
}

// savedSize is that of saved in bytes.
const savedSize = 64

// longest is more than any penalty or cell lasts, and latest later than any time, in nanoseconds:
// what adds up to more was never saved by a Table.
const (
	longest = int64(1) << 58 // nine years
	latest  = math.MaxInt64 / 2
)

// Save writes the callers of whom there is something to say at now, and reports how many bytes that
// took. Their keys have to last (key.NewLasting) for Load to make anything of it.
func (t *Table) Save(w io.Writer, now int64) (size int64, err error) {
	if !t.used.Load() {
		return 0, nil
	}
	for i := range callers.Shards {
		var rows []saved
		t.all.Visit(i, func(entries []entry) {
			for n := range entries {
				if e := &entries[n]; e.key != (key.Key{}) && now < e.over() {
					rows = append(rows, saved{e.key.Hi, e.key.Lo, e.width, e.newest, e.counts, e.since, e.length})
				}
			}
		})
		if err := binary.Write(w, binary.LittleEndian, rows); err != nil {
			return size, err
		}
		size += int64(len(rows)) * savedSize
	}
	return size, nil
}

// Load reads what Save wrote, to its end, into an empty Table. Callers for whom there is no room are forgotten.
func (t *Table) Load(r io.Reader) error {
	for {
		var row saved
		switch err := binary.Read(r, binary.LittleEndian, &row); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("penalties: %w", err)
		}
		if row.Width < 1 || row.Width > longest || row.Newest < 0 || row.Newest > latest/row.Width || row.Length < 0 ||
			row.Length > longest || row.Since < 0 || row.Since > latest {
			return errors.New("penalties: a time is out of bounds")
		}
		t.used.Store(true)
		k := key.Key{Hi: row.Hi, Lo: row.Lo}
		mu, set := t.all.LockMade(k)
		if e := find(set, k, math.MinInt64); e != nil && e.key == (key.Key{}) {
			*e = entry{
				key:    k,
				width:  row.Width,
				newest: row.Newest,
				counts: row.Counts,
				since:  row.Since,
				length: row.Length,
			}
		}
		mu.Unlock()
	}
}
