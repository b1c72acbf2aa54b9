package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Lines are read ahead of the decisions, a chunk of a log at a time, by as many goroutines as there are processors, and
// come in the order of the log:
//
//	log ──▶ chunks of whole lines ──┬──▶ entries ──┐
//	                                ├──▶ entries ──┼──▶ in order ──▶ decisions
//	                                └──▶ entries ──┘
//
// An entry's texts are parts of its chunk, so that nothing is allocated for a line. Who keeps one copies it.

const (
	chunkBytes = 1 << 18
	maxLine    = 1 << 20 // what is longer is no request, and is cut
)

// chunk is a part of a log, of whole lines.
type chunk struct {
	text string
	from int64 // number of its first line
	read int64 // bytes of the file until its end
	err  error // why there is none after it; its text is good

	entries []Entry
	lines   int64 // that are not empty
	unread  int64
	faults  []error // of the first lines that could not be read

	parsed chan struct{} // closed when the above is there
}

// parse reads the lines of a chunk.
func (c *chunk) parse(f *Format, name string) {
	defer close(c.parsed)
	read := f.reader()
	c.entries = make([]Entry, 0, len(c.text)/100)
	for number, text := c.from, c.text; text != ""; number++ {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		if line = strings.TrimRight(line, "\r"); strings.TrimSpace(line) == "" {
			continue
		}
		c.lines++
		c.entries = append(c.entries, Entry{})
		if err := read(unwrap(line), &c.entries[len(c.entries)-1]); err != nil {
			c.entries = c.entries[:len(c.entries)-1]
			if c.unread++; len(c.faults) < maxFaults {
				c.faults = append(c.faults, fmt.Errorf("%s:%d: %w", name, number, err))
			}
		}
	}
}

// chunks reads a log, packed by gzip or not, until its end or until ctx ends. The format is that of
// the first line where format gives none.
func chunks(
	ctx context.Context,
	log io.Reader,
	name string,
	format func(firstLine string) (*Format, error),
) (<-chan *chunk, error) {
	counted := &counter{Reader: log}
	in := bufio.NewReaderSize(counted, chunkBytes)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unpacked, chunkBytes)
	}
	ordered, work := make(chan *chunk, 2*runtime.GOMAXPROCS(0)), make(chan *chunk)
	cut := cutter{in: in, next: 1}
	first := cut.chunk(counted)
	f, err := format(firstLine(first.text))
	if err != nil {
		return nil, err
	}
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for c := range work {
				c.parse(f, name)
			}
		}()
	}
	go func() {
		defer close(work)
		defer close(ordered)
		for c := first; ; c = cut.chunk(counted) {
			for _, to := range []chan *chunk{work, ordered} {
				select {
				case to <- c:
				case <-ctx.Done():
					return
				}
			}
			if c.err != nil {
				return
			}
		}
	}()
	return ordered, nil
}

// firstLine is the first line of a text that has one, without what was put before it.
func firstLine(text string) string {
	text = strings.TrimLeft(text, " \t\r\n")
	line, _, _ := strings.Cut(text, "\n")
	return unwrap(line)
}

// cutter cuts a log into chunks.
type cutter struct {
	in   *bufio.Reader
	rest []byte // the beginning of a line
	next int64  // number of the line that it is of
	buf  [chunkBytes]byte
}

// chunk is the next one. It is empty, with an error, at the end.
func (r *cutter) chunk(counted *counter) *chunk {
	c := &chunk{from: r.next, parsed: make(chan struct{})}
	var text strings.Builder
	text.Write(r.rest)
	r.rest = r.rest[:0]
	for {
		n, err := r.in.Read(r.buf[:])
		got := r.buf[:n]
		end := bytes.LastIndexByte(got, '\n') + 1
		if err != nil {
			end = n // whether or not the last line has an end
		}
		if end == 0 && err == nil { // within a line
			if room := maxLine - text.Len(); room > 0 {
				text.Write(got[:min(n, room)])
			}
			continue
		}
		text.Write(got[:end])
		r.rest = append(r.rest, got[end:]...)
		c.text, c.err, c.read = text.String(), err, counted.n
		r.next += int64(strings.Count(c.text, "\n"))
		return c
	}
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
