package body

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format says what kind of body a field is looked for in.
type Format uint8

const (
	// JSON reads application/json and types that end in +json (RFC 8259).
	JSON Format = iota
	// Form reads application/x-www-form-urlencoded.
	Form
	// Any reads both, as the Content-Type says. Only for a server that goes by
	// the Content-Type as well: one that tries JSON first whatever it says can
	// be told another name than this package was.
	Any
)

var formatTexts = []string{"json", "form", "any"}

// String returns the text that UnmarshalText reads.
func (f Format) String() string {
	if int(f) < len(formatTexts) {
		return formatTexts[f]
	}
	return "unknown"
}

// UnmarshalText reads "json", "form" or "any".
func (f *Format) UnmarshalText(text []byte) error {
	for i, known := range formatTexts {
		if known == string(text) {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("format is %q, want json, form or any", text)
}

// The bounds of Field.
const (
	DefaultBytes  = 8 << 10
	MostBytes     = 1 << 20
	DefaultDepth  = 8
	MostDepth     = 64 // kinds of open containers are bits of a word
	DefaultLength = 256
	MostLength    = 4 << 10
	mostNames     = 4
	mostName      = 64 // bytes of one name
)

// Field says where an identifier stands. Name is required; every other zero
// value is a safe default.
type Field struct {
	// Name is the field's name. In JSON it may be a path of up to four names,
	// as in "user.email". In a form it is the name as it is, "user[email]".
	// With Any it is one name.
	Name string

	Format Format

	// MaxBytes is the longest body that is read, 64 to 1 MiB. Each request
	// under way holds so much. Default 8 KiB.
	MaxBytes int

	// MaxDepth is how many objects and arrays may be open at once, 1 to 64.
	// Default 8.
	MaxDepth int

	// MaxLength is the longest identifier in bytes after it was normalised, 1
	// to 4096. Default 256.
	MaxLength int

	// Spellings are those that name the same account. 0 is DefaultSpellings;
	// Exact is none.
	Spellings Spelling

	// Compose, if set, appends src in a normal form, such as NFKC, to dst. It is
	// called for identifiers beyond ASCII, before the spellings are joined and
	// after.
	Compose func(dst, src []byte) []byte
}

// Finder finds one field.
type Finder struct {
	field Field
	path  [][]byte
}

// New returns a Finder, or an error that names every field at fault.
func New(f Field) (*Finder, error) {
	f.MaxBytes = orDefault(f.MaxBytes, DefaultBytes)
	f.MaxDepth = orDefault(f.MaxDepth, DefaultDepth)
	f.MaxLength = orDefault(f.MaxLength, DefaultLength)
	if f.Spellings == 0 {
		f.Spellings = DefaultSpellings
	}
	var errs []error
	wrong := func(name string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s is %#v, want %s", name, value, want))
	}
	between := func(name string, value, low, high int) {
		if value < low || value > high {
			wrong(name, value, fmt.Sprintf("%d to %d", low, high))
		}
	}
	names := []string{f.Name}
	switch f.Format {
	case JSON:
		names = strings.Split(f.Name, ".")
	case Any:
		if strings.ContainsAny(f.Name, ".[]") {
			wrong("Name", f.Name,
				"a single name, because a path is written differently in JSON and in forms; or Format JSON or Form")
		}
	case Form:
	default:
		wrong("Format", uint8(f.Format), "JSON, Form or Any")
	}
	path, want := pathOf(names)
	if want != "" {
		wrong("Name", f.Name, want)
	}
	between("MaxBytes", f.MaxBytes, 64, MostBytes)
	between("MaxDepth", f.MaxDepth, 1, MostDepth)
	between("MaxLength", f.MaxLength, 1, MostLength)
	if f.Spellings >= spellings {
		wrong("Spellings", uint16(f.Spellings), "a union of those that there are")
	}
	if f.Spellings&Exact != 0 && f.Spellings != Exact {
		wrong("Spellings", uint16(f.Spellings), "Exact alone, or others")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Finder{field: f, path: path}, nil
}

// pathOf are the names of a path, or what they should be.
func pathOf(names []string) (path [][]byte, want string) {
	if len(names) > mostNames {
		return nil, fmt.Sprintf("at most %d names", mostNames)
	}
	for _, name := range names {
		if name == "" || len(name) > mostName || !utf8.ValidString(name) ||
			strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Sprintf("names of 1 to %d bytes of text", mostName)
		}
		path = append(path, []byte(name))
	}
	return path, ""
}

func orDefault(value, otherwise int) int {
	if value == 0 {
		return otherwise
	}
	return value
}

// MaxBytes returns the longest body that Find takes.
func (f *Finder) MaxBytes() int { return f.field.MaxBytes }

// Find appends the normalised identifier of a body to dst. format is what
// Wants returned, query the raw query of the target: a server that takes the
// field from there as well could be told two names.
//
// With a Fault, dst comes back as it was.
func (f *Finder) Find(dst []byte, format Format, query string, body []byte) ([]byte, Fault) {
	switch {
	case len(body) == 0:
		return dst, Empty
	case len(body) > f.field.MaxBytes:
		return dst, Long
	case query != "" && inQuery(query, f.path[0]):
		return dst, Alike
	}
	// A value this long has no chance, whatever normalising takes away from it.
	// One of default length fits the stack.
	var space [4 * DefaultLength]byte
	var raw []byte
	var fault Fault
	most := 4 * f.field.MaxLength
	if format == Form {
		raw, fault = findForm(space[:0], body, f.path[0], most)
	} else {
		raw, fault = findJSON(space[:0], body, f.path, f.field.MaxDepth, most)
	}
	if fault != None {
		return dst, fault
	}
	return f.Normalise(dst, raw)
}

// alike reports whether a name that is not the wanted one may be taken for it:
// by a server that ignores case (as encoding/json and ASP.NET do), or whose
// strings end at a zero byte.
func alike(name, want []byte) bool {
	if nul := bytes.IndexByte(name, 0); nul >= 0 {
		name = name[:nul]
	}
	return bytes.EqualFold(name, want)
}
