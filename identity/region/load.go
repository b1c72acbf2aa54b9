package region

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/clip"
)

// Bounds of what is read. The whole Internet is under a million ranges of a few
// hundred regions.
const (
	maxBytes   = 512 << 20 // of one file, uncompressed
	maxLine    = 1 << 10
	maxRows    = 8 << 20
	maxRegions = 4096
	maxName    = 16
	maxFaults  = 10
	maxFiles   = 64
)

// Load reads a table from files. The error names every file at fault and the
// first lines that are.
func Load(files ...string) (*Table, error) {
	if len(files) == 0 || len(files) > maxFiles {
		return nil, fmt.Errorf("regions: %d files, want 1 to %d", len(files), maxFiles)
	}
	r := newReader()
	for _, file := range files {
		if err := r.open(file); err != nil {
			r.faults = append(r.faults, err)
		}
	}
	return r.table()
}

// Parse reads a table from one file's content; name is what errors call it.
func Parse(name string, content io.Reader) (*Table, error) {
	r := newReader()
	if err := r.file(name, content); err != nil {
		r.faults = append(r.faults, err)
	}
	return r.table()
}

// reader collects the rows of files.
type reader struct {
	rows   []row
	files  []string
	names  []string
	codes  map[string]uint16
	faults []error
}

func newReader() *reader {
	return &reader{names: []string{Unknown}, codes: map[string]uint16{Unknown: 0, "-": 0, "ZZ": 0}}
}

func (r *reader) open(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("regions: %w", err)
	}
	defer f.Close() // only read
	return r.file(file, f)
}

func (r *reader) file(name string, content io.Reader) error {
	r.files = append(r.files, name)
	buffered := bufio.NewReader(content)
	content = buffered
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		content = unzipped
	}
	limited := &io.LimitedReader{R: content, N: maxBytes + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, maxLine), maxLine)
	line, faults, before := 0, 0, len(r.rows)
	for lines.Scan() && faults < maxFaults {
		line++
		if err := r.line(lines.Text(), line); err != nil {
			r.faults = append(r.faults, fmt.Errorf("%s:%d: %w", name, line, err))
			faults++
		}
		if len(r.rows) > maxRows {
			return fmt.Errorf("%s:%d: more than %d ranges", name, line, maxRows)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%s:%d: the line has more than %d bytes", name, line+1, maxLine)
	case err != nil:
		return fmt.Errorf("%s:%d: %w", name, line+1, err)
	case limited.N == 0:
		return fmt.Errorf("%s: has more than %d MiB uncompressed", name, maxBytes>>20)
	case faults >= maxFaults:
		return fmt.Errorf("%s: and perhaps more", name)
	case len(r.rows) == before && faults == 0:
		return fmt.Errorf("%s: has no range, want lines such as 1.0.0.0,1.0.0.255,AU", name)
	}
	return nil
}

// line reads first,last,region. Empty lines and those that begin with # say
// nothing.
func (r *reader) line(text string, number int) error {
	if text == "" || text[0] == '#' {
		return nil
	}
	from, rest, ok1 := strings.Cut(text, ",")
	to, name, ok2 := strings.Cut(rest, ",")
	if !ok1 || !ok2 {
		return fmt.Errorf("%s is not first,last,region", quote(text))
	}
	first, err1 := parse(from)
	last, err2 := parse(to)
	if err := errors.Join(err1, err2); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	switch {
	case first.Is4() != last.Is4():
		return fmt.Errorf("the range begins at %v and ends at %v, want one family", first, last)
	case first.Compare(last) > 0:
		return fmt.Errorf("the range begins at %v and ends before, at %v", first, last)
	}
	code, err := r.code(name)
	if err != nil {
		return err
	}
	r.rows = append(r.rows, row{first, last, code, uint16(len(r.files) - 1), uint32(number)})
	return nil
}

func parse(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return a, fmt.Errorf("%s is no address, want one such as 1.0.0.0 or 2001:db8::", quote(text))
	}
	return a, nil
}

// code numbers the regions as they come.
func (r *reader) code(name string) (uint16, error) {
	if code, ok := r.codes[name]; ok {
		return code, nil
	}
	if !validName(name) {
		return 0,
			fmt.Errorf(
				"region is %s, want 1 to %d letters, digits and hyphens, or -, ZZ or nothing where it is unknown",
				quote(name), maxName)
	}
	if len(r.names) > maxRegions {
		return 0, fmt.Errorf("region %s is one more than %d", name, maxRegions)
	}
	code := uint16(len(r.names))
	name = strings.Clone(name) // not the whole line
	r.names, r.codes[name] = append(r.names, name), code
	return code, nil
}

func validName(s string) bool {
	if s == "" || len(s) > maxName || strings.EqualFold(s, "unknown") {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-' && i > 0:
		default:
			return false
		}
	}
	return true
}

// quote shows what a file says.
func quote(s string) string { return strconv.Quote(clip.To(s, 60)) }

func (r *reader) table() (*Table, error) {
	if len(r.faults) > 0 {
		return nil, errors.Join(r.faults...)
	}
	t := &Table{names: r.names}
	if a, b, overlap := t.compile(r.rows); overlap {
		return nil, fmt.Errorf("%s:%d: the range from %v overlaps that of %s:%d, from %v to %v",
			r.files[b.file], b.line, b.first, r.files[a.file], a.line, a.first, a.last)
	}
	return t, nil
}
