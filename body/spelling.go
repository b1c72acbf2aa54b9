package body

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Spelling is a set of ways to write one account's name. Every way that the
// server behind takes for the same account and that is missing here gives an
// attacker one more budget for that account; one too many lets two accounts
// share one.
type Spelling uint16

const (
	// Trim: white space around it.
	Trim Spelling = 1 << iota
	// Case: upper and lower case, of every script, letter by letter. Letters
	// that some server changes into the same one are the same: i, I, İ and ı; k
	// and the Kelvin sign; s and ſ. ß is not ss.
	Case
	// Width: full-width forms of ASCII, and the ideographic space and full stop.
	Width
	// Invisible: characters that show nothing, such as zero-width spaces, soft
	// hyphens, marks of direction and variation selectors.
	Invisible
	// FinalDot: a dot behind an e-mail address's domain.
	FinalDot
	// PlusTag: what stands from + to @ in an e-mail address.
	PlusTag
	// Gmail: dots before @gmail.com, what stands behind +, and
	// googlemail.com.
	Gmail
	// ASCII refuses identifiers that hold anything else once the rest is done:
	// for servers whose names are ASCII, and the way out of all questions about
	// composed characters and letters that look alike.
	ASCII
	// Exact joins nothing.
	Exact

	spellings // one above all

	// DefaultSpellings are those that hardly any server tells apart.
	DefaultSpellings = Trim | Case | Width | Invisible | FinalDot
)

var spellingTexts = []string{"trim", "case", "width", "invisible", "final_dot", "plus_tag", "gmail", "ascii", "exact"}

// ParseSpellings reads their names: "trim", "case", "width", "invisible",
// "final_dot", "plus_tag", "gmail", "ascii", "exact". None is the default.
func ParseSpellings(names []string) (Spelling, error) {
	all := Spelling(0)
	var errs []error
next:
	for _, name := range names {
		for i, known := range spellingTexts {
			if name == known {
				all |= 1 << i
				continue next
			}
		}
		errs = append(errs, fmt.Errorf("spelling is %q, want %s", name, strings.Join(spellingTexts, ", ")))
	}
	return all, errors.Join(errs...)
}

// Normalise appends to dst the one spelling that stands for all of raw's, which
// must be UTF-8 without control characters. It is the same for what it
// returned. With a Fault, dst comes back as it was.
func (f *Finder) Normalise(dst, raw []byte) ([]byte, Fault) {
	if !utf8.Valid(raw) {
		return dst, Text
	}
	var space [4 * DefaultLength]byte
	id := append(space[:0], raw...)
	compose := f.field.Compose != nil && !isASCII(id)
	if compose {
		id = f.compose(id)
	}
	id = f.join(id)
	if compose {
		id = f.compose(id)
	}
	switch {
	case bytes.ContainsFunc(id, unicode.IsControl):
		return dst, Text
	case len(id) == 0 || len(id) > f.field.MaxLength:
		return dst, Length
	case f.has(ASCII) && !isASCII(id):
		return dst, Text
	}
	return append(dst, id...), None
}

// compose hands over a copy, so that the original can stay on the stack.
func (f *Finder) compose(id []byte) []byte { return f.field.Compose(nil, bytes.Clone(id)) }

func (f *Finder) has(s Spelling) bool { return f.field.Spellings&s != 0 }

// join works in place: no spelling is shorter than the one that stands for it.
func (f *Finder) join(id []byte) []byte {
	if f.field.Spellings&(Case|Width|Invisible) != 0 {
		id = f.joinRunes(id)
	}
	// Each may bring the other to the end.
	for {
		before := len(id)
		if f.has(Trim) {
			id = bytes.TrimFunc(id, unicode.IsSpace)
		}
		if f.has(FinalDot) && bytes.IndexByte(id, '@') >= 0 {
			id = bytes.TrimRight(id, ".")
		}
		if len(id) == before {
			break
		}
	}
	if f.has(PlusTag | Gmail) {
		id = f.joinMail(id)
	}
	return id
}

func (f *Finder) joinRunes(id []byte) []byte {
	kept := id[:0]
	for i := 0; i < len(id); {
		if c := id[i]; c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' && f.has(Case) {
				c += 'a' - 'A'
			}
			kept = append(kept, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(id[i:])
		i += size
		if f.has(Invisible) && invisible(r) {
			continue
		}
		if f.has(Width) {
			r = narrow(r)
		}
		if f.has(Case) {
			r = small(r)
		}
		kept = utf8.AppendRune(kept, r)
	}
	return kept
}

// small is the letter that stands for all cases of r: the small one, or the
// capital where that has fewer bytes. It has no more than r then, as join needs.
func small(r rune) rune {
	capital := unicode.ToUpper(r)
	if r = unicode.ToLower(capital); utf8.RuneLen(capital) < utf8.RuneLen(r) {
		return capital
	}
	return r
}

// narrow is r in its common width.
func narrow(r rune) rune {
	switch {
	case 0xFF01 <= r && r <= 0xFF5E:
		return r - 0xFF01 + '!'
	case r == 0x3000:
		return ' '
	case r == 0x3002 || r == 0xFF61: // domains take both for a dot (UTS 46)
		return '.'
	}
	return r
}

// invisible reports whether r shows nothing: format characters, and what else
// Unicode calls default ignorable.
func invisible(r rune) bool {
	return unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

func (f *Finder) joinMail(id []byte) []byte {
	at := bytes.LastIndexByte(id, '@')
	if at < 1 {
		return id
	}
	local, domain := id[:at], id[at+1:]
	gmail := f.has(Gmail) && (bytes.EqualFold(domain, []byte("gmail.com")) ||
		bytes.EqualFold(domain, []byte("googlemail.com")))
	if gmail {
		domain = []byte("gmail.com")
	}
	if f.has(PlusTag) || gmail {
		if plus := bytes.IndexByte(local, '+'); plus > 0 {
			local = local[:plus]
		}
	}
	if gmail {
		kept := local[:0]
		for _, c := range local {
			if c != '.' {
				kept = append(kept, c)
			}
		}
		local = kept
	}
	return append(append(local, '@'), domain...)
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
