package body

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// The bounds of Batch.
const (
	DefaultParts      = 100
	MostParts         = 10_000
	DefaultBatchBytes = 1 << 20
	MostBatchBytes    = 64 << 20
)

// Batch says where the parts of a body stand that holds many requests. The zero value counts the elements of an array.
type Batch struct {
	// Name is the field of an object in whose array the parts are, as in {"requests": […]}. It may be a path of up to
	// four names. Empty means that the body is the array; one that is no array then has one part, itself.
	Name string

	// MaxParts is how many there may be, 1 to 10,000. Default 100.
	MaxParts int

	// MaxBytes is the longest body that is read, 64 bytes to 64 MiB. Each request under way holds so
	// much. Default 1 MiB.
	MaxBytes int
}

// Counter counts the parts of bodies. Like a Finder it is immutable, allocates nothing, and has one reading or none.
type Counter struct {
	batch Batch
	path  [][]byte
}

// NewCounter returns a Counter, or an error that names every field at fault.
func NewCounter(b Batch) (*Counter, error) {
	b.MaxParts, b.MaxBytes = orDefault(b.MaxParts, DefaultParts), orDefault(b.MaxBytes, DefaultBatchBytes)
	c := &Counter{batch: b}
	var errs []error
	if b.Name != "" {
		var want string
		if c.path, want = pathOf(strings.Split(b.Name, ".")); want != "" {
			errs = append(errs, fmt.Errorf("Name is %q, want %s", b.Name, want))
		}
	}
	if b.MaxParts < 1 || b.MaxParts > MostParts {
		errs = append(errs, fmt.Errorf("MaxParts is %d, want 1 to %d", b.MaxParts, MostParts))
	}
	if b.MaxBytes < 64 || b.MaxBytes > MostBatchBytes {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want 64 to %d", b.MaxBytes, MostBatchBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// MaxBytes returns the longest body that Count takes.
func (c *Counter) MaxBytes() int { return c.batch.MaxBytes }

// MaxParts returns the most parts that a body may have.
func (c *Counter) MaxParts() int { return c.batch.MaxParts }

// Wants says whether a body is one that is counted, from its header alone: JSON (RFC 8259) in UTF-8 that is not
// compressed. Beside charset=utf-8 the type may have the parameters of OData (JSON Format 4.01 section 3).
func (c *Counter) Wants(header http.Header) Fault {
	_, parameters, fault := media(header, JSON)
	for fault == None && parameters != "" {
		one := parameters[1:]
		parameters = ""
		if end := strings.IndexByte(one, ';'); end >= 0 {
			one, parameters = one[:end], one[end:]
		}
		if !isUTF8(one) && !ofOData(trim(one)) {
			return Charset
		}
	}
	return fault
}

// ofOData reports whether a parameter is one that says how numbers are written, or what else stands in the body. A
// quoted value is none of theirs, and could hide another charset.
func ofOData(parameter string) bool {
	name, value, _ := strings.Cut(parameter, "=")
	if strings.IndexByte(value, '"') >= 0 {
		return false
	}
	for _, known := range [...]string{"IEEE754Compatible", "ExponentialDecimals", "metadata", "streaming", "odata",
		"odata.metadata", "odata.streaming"} {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// Count says how many parts a body has, 1 at least. An array that stands as a part counts by what it holds. With a
// Fault, which Many is one of, nobody knows how many there are.
func (c *Counter) Count(body []byte) (parts int, fault Fault) {
	switch {
	case len(body) == 0:
		return 0, Empty
	case len(body) > c.batch.MaxBytes:
		return 0, Long
	case !utf8.Valid(body):
		return 0, Syntax
	}
	t := tally{scanner: scanner{b: body, path: c.path, maxDepth: MostDepth, step: c.path != nil}, in: -1}
	switch first := t.peek(); {
	case c.path == nil:
		t.target = true
	case first != '{' && t.i < len(body):
		return 0, Kind
	}
	for more := true; more; {
		if fault = t.value(); fault == None {
			more, fault = t.next()
		}
		switch {
		case fault != None:
			return 0, fault
		case t.depth <= t.in:
			t.in = -1
		}
	}
	t.peek()
	switch {
	case t.i != len(body):
		return 0, Syntax
	case t.kind:
		return 0, Kind
	case t.parts > c.batch.MaxParts:
		return 0, Many
	}
	return max(1, t.parts), None
}

// tally is a scanner that counts what stands in one array: at the end of its path, or the body itself.
type tally struct {
	scanner
	in    int // how many containers are open around the array that is counted; -1 outside
	parts int
}

// value is scanner.value for what is counted.
func (t *tally) value() Fault {
	for {
		c, part := t.peek(), t.in >= 0 && t.flat()
		switch {
		case c == '[' && t.target:
			t.in, t.target = t.depth, false
		case t.target && len(t.path) == 0: // a body that is no array
			t.target = false
		case t.target && c != 0:
			t.kind, t.target = true, false
		}
		if c != '{' && c != '[' {
			if part {
				t.parts++
			}
			return t.scalar(c)
		}
		empty, fault := t.open(c)
		if part && (c == '{' || empty) {
			t.parts++
		}
		if empty || fault != None {
			return fault
		}
	}
}

// flat reports whether all containers that are open within the counted array, which is one, are arrays.
func (t *tally) flat() bool { return t.kinds>>t.in&(1<<(t.depth-t.in)-1) == 0 }
