package endpoint

import (
	"slices"
	"strings"
)

// The canonical form of a target is built in the order of the profile (see [Profile]); in one pass, because each
// rule needs only what the rules before it left of the current segment. For /a//b/../c%2Fd it is a fault at %2F;
// for /a//%62/../c/?q=2 it goes
//
//	cut at ?       /a//%62/../c/
//	decode once    /a//b/../c/
//	merge slashes  /a/b/../c/
//	remove dots    /a/c/
//	drop last /    /a/c
//
// Bytes that a target cannot hold as themselves (and braces, which belong to templates) stay
// percent-encoded, in upper case. So the canonical form is itself a valid target, applying
// Canonical to it changes nothing, and it stands for exactly one decoded path: comparing canonical
// forms compares decoded ones. (Beside a kept %2F a target has to escape a few bytes more, see
// KeepEncodedSlash, and there alone the form is no target.)

// Profile is how a target is read. Its zero value is the strict default. A target is read in this order:
//
//  1. it starts with / and holds no raw space, control, # or non-ASCII byte, query included, else it is invalid;
//  2. the path ends at the first ?;
//  3. every % starts two hexadecimal digits, and no escape stands for a control byte, else it is invalid;
//  4. escapes are decoded, once (see RefuseUnreservedEscapes); an encoded / or \ is invalid (see EncodedSlash), as is
//     a raw \;
//  5. repeated slashes become one (see RefuseRepeatedSlashes);
//  6. dot segments are removed, never above the root (see RefuseDotSegments); a .. that would remove an empty segment
//     is invalid, because servers that merge slashes and servers that do not then disagree on the result;
//  7. ;parameters are invalid (see Params);
//  8. a trailing slash is equal to none (see RefuseTrailingSlash);
//  9. case is kept (see CaseInsensitive);
//  10. a % with two hexadecimal digits that is left after decoding is invalid (see AllowDoubleEncoding);
//  11. escaped bytes need not be UTF-8 (see RefuseBadUTF8).
//
// Whatever stands behind the limiter should read targets no more leniently than the profile says. The rules
// follow what nginx, HAProxy, Apache httpd and Go were measured to do: wherever they disagree in a way that could
// split or borrow a budget, the target is invalid.
type Profile struct {
	// EncodedSlash says what %2F and %5C mean. The default refuses them.
	EncodedSlash EncodedSlash
	// Params says what becomes of ;parameters of a segment. The default refuses them.
	Params Params
	// CaseInsensitive folds ASCII letters to lower case. Set it only when the servers behind ignore case:
	// otherwise two resources share a budget. Left unset before a server that ignores case, one resource has
	// as many unknown spellings as its name has letters; they all count as unknown.
	CaseInsensitive bool
	// AllowDoubleEncoding accepts a target that still holds an escape after one decode, such as /%2561, and
	// reads it as the text %61. Safe only when nothing behind decodes a second time.
	AllowDoubleEncoding bool

	// Refuse makes more targets invalid. The default refuses nothing more.
	Refuse Refusal
}

// Refusal is a set of what a profile refuses though the default reads it. It is for servers that
// take a path as it comes: where the default reads /a//b as /a/b, such a server may find an empty
// parameter between the slashes, and serve another endpoint than the one whose budget pays. To
// refuse is always safe.
type Refusal uint8

const (
	// RefuseRepeatedSlashes makes // invalid.
	RefuseRepeatedSlashes Refusal = 1 << iota
	// RefuseDotSegments makes . and .. segments invalid.
	RefuseDotSegments
	// RefuseUnreservedEscapes makes escapes of letters, digits and - . _ ~ invalid, which nobody needs to write
	// (RFC 3986 section 2.3). Query parameters that templates name must be written as there. Set it before servers that
	// compare undecoded text.
	RefuseUnreservedEscapes
	// RefuseBadUTF8 makes escapes that are not UTF-8 together invalid, overlong forms of / among them. Some servers
	// replace such bytes, so that different targets become one.
	RefuseBadUTF8
	// RefuseTrailingSlash makes a / at the end invalid, but for the path / itself, and where a table matches a template
	// that is written so. Set it before routers to which /a and /a/ are different routes, if one of those takes
	// whatever the others leave.
	RefuseTrailingSlash
	// RefuseOtherCase makes a target invalid for a table if it would match another template without letter case. Set
	// it where it is not known whether the server ignores case.
	RefuseOtherCase

	refuseAll = 1<<iota - 1
)

func (r Refusal) has(one Refusal) bool { return r&one != 0 }

// EncodedSlash says what an encoded slash means.
type EncodedSlash uint8

const (
	// RejectEncodedSlash makes targets with %2F or %5C invalid.
	RejectEncodedSlash EncodedSlash = iota
	// DecodeEncodedSlash reads %2F as a slash that separates segments, as nginx does. A target that also has a
	// dot segment is invalid: a server that refuses %2F only after it has removed dots would serve it, and as another
	// path. %5C is a backslash, which is invalid however it is written.
	DecodeEncodedSlash
	// KeepEncodedSlash reads %2F as a byte within its segment, for servers that split the path before they decode it,
	// as Go's ServeMux, chi, echo and Express do. What would make a dot segment or an empty one if it were a slash
	// after all is invalid. So is a raw " < > ^ ` { | or } beside it, which a path may not hold: net/http splits
	// such a path after decoding it. %5C stays invalid too.
	KeepEncodedSlash
)

// Params says what becomes of ;parameters.
type Params uint8

const (
	// RejectParams makes a ;, encoded or not, invalid. Servlet containers remove ;parameters and all other servers
	// keep them, so that nothing else is right before both.
	RejectParams Params = iota
	// StripParams removes from every segment its first ; and what follows, as servlet containers do. An encoded ; is
	// invalid, since to them it is a byte like any other, and so is an encoded slash among the parameters.
	// ;parameters on a dot segment are invalid too.
	StripParams
	// KeepParams leaves them in the segment. On a dot segment they are invalid.
	KeepParams
)

// Fault is why a target is invalid; zero means that it is not.
type Fault uint8

// When several apply, NotAbsolute comes before RawByte and RawByte before the others; of those, the one met first.
const (
	NoFault        Fault = iota
	NotAbsolute          // no / at the start
	RawByte              // raw space, control, # or non-ASCII byte
	BadEscape            // % without two hexadecimal digits; %u is one
	ControlByte          // escape of a byte below 0x20, or of 0x7F
	EscapedSlash         // %2F or %5C
	Backslash            // \
	DotParams            // ;parameters on . or ..
	AmbiguousDots        // .. that would remove an empty segment
	DoubleEncoded        // %25 and two hexadecimal digits
	EscapedDots          // %2F beside ., .. or nothing, where an encoded slash is kept
	RepeatedSlash        // //
	DotSegment           // . or ..
	Parameters           // ;
	NeedlessEscape       // escape of an unreserved byte
	BadUTF8              // escapes that are not UTF-8
	TrailingSlash        // / at the end
	EscapedParams        // %3B where ;parameters are removed
	OtherCase            // another template but for letter case
	MissingSlash         // no / at the end, where the template has one and another takes what is left
	DotsAndSlash         // a dot segment and %2F, where %2F is a slash
	AmbiguousQuery       // a query parameter that a template names, twice or in a way that servers read differently
	Tunnel               // method CONNECT, whose target is no path
	BadMethod            // method that is not a token
	EmptyTail            // a path that ends where {name...} of a template begins, which some servers serve by it
)

var faults = [...]string{
	NoFault:       "is valid",
	NotAbsolute:   "does not start with /",
	RawByte:       "holds a raw space, control, # or non-ASCII byte",
	BadEscape:     "holds a % without two hexadecimal digits",
	ControlByte:   "holds an encoded control byte",
	EscapedSlash:  `holds an encoded / or \`,
	Backslash:     `holds a \`,
	DotParams:     "holds a . or .. segment with ;parameters",
	AmbiguousDots: "holds a .. that removes an empty segment",
	DoubleEncoded: "is percent-encoded twice",
	EscapedDots:   "holds ., .. or nothing beside an encoded /",

	RepeatedSlash:  "holds repeated slashes",
	DotSegment:     "holds a . or .. segment",
	Parameters:     "holds ;parameters",
	NeedlessEscape: "holds an escape of a letter, a digit or one of - . _ ~",
	BadUTF8:        "holds escapes that are not UTF-8",
	TrailingSlash:  "ends in a slash",
	OtherCase:      "differs from an endpoint in letter case alone",
	MissingSlash:   "lacks the slash at the end",
	EscapedParams:  "holds an encoded ;",
	DotsAndSlash:   "holds a . or .. segment and an encoded /",
	Tunnel:         "is that of CONNECT, which opens a tunnel and has no endpoint",
	BadMethod:      "comes with a method that is not a token",
	EmptyTail:      "ends where {name...} of an endpoint begins",
	AmbiguousQuery: "holds a query parameter that tells endpoints apart twice, beside a ;, or in another way that " +
		"servers read differently",
}

// String is what to tell the client about its target: a sentence without its subject, such as "does not start with /".
func (f Fault) String() string {
	if int(f) < len(faults) {
		return faults[f]
	}
	return "is invalid"
}

// Canonical returns the canonical form of a request target, or why the target is invalid. In the canonical form
// every byte that a path can hold is itself, and the others (space, # % ? { } and non-ASCII) are escapes in upper case:
// so it is a valid target, and equal only for equal decoded paths. Canonical allocates only when the canonical
// form is not simply the beginning of target.
func (p Profile) Canonical(target string) (path string, fault Fault) {
	path, ok := clean(target, p.classes())
	if !ok {
		path, fault = p.rewritten(target)
	}
	return path, fault
}

// rewritten is Canonical of a target that is not clean. It is a function of its own so that its buffer is not in the
// stack frame of the scan.
//
//go:noinline
func (p Profile) rewritten(target string) (path string, fault Fault) {
	var buf [maxStack]byte
	out, fault := p.AppendCanonical(buf[:0], target)
	if fault != NoFault {
		return "", fault
	}
	if strings.HasPrefix(target, string(out)) {
		return target[:len(out)], NoFault
	}
	return string(out), NoFault
}

// AppendCanonical appends the canonical form of target to dst, or nothing when target is invalid. The canonical
// form is longer than target only where that holds raw braces, by two bytes for each.
func (p Profile) AppendCanonical(dst []byte, target string) ([]byte, Fault) {
	if target == "" || target[0] != '/' {
		return dst, NotAbsolute
	}
	if !rawBytesValid(target) {
		return dst, RawByte
	}
	path, _, _ := strings.Cut(target, "?")
	return p.appendPath(dst, path, false)
}

// classes returns what the scan must know about each byte.
func (p Profile) classes() *[256]uint8 {
	last := p.Refuse / RefuseTrailingSlash & 1
	if p.CaseInsensitive {
		return &cleanFoldedBytes[last]
	}
	return &cleanBytes[last]
}

// maxStack is how many bytes of a path that is not canonical are rewritten on the stack. Longer ones allocate.
const maxStack = 512

// What the scan of a clean path must know about a byte. The bit dotOrSlash is one above slash, so that a byte
// and the one before it are judged with a shift.
const (
	slash      = 1 << iota // a segment ends
	dotOrSlash             // suspicious after a slash
	stop                   // end of the path, or not canonical as it stands
	refused                // at the end of the path
)

// The classes of bytes, without and with refusal of a slash at the end.
var (
	cleanBytes       = [2][256]uint8{classify(false, slash|dotOrSlash), classify(false, slash|dotOrSlash|refused)}
	cleanFoldedBytes = [2][256]uint8{classify(true, slash|dotOrSlash), classify(true, slash|dotOrSlash|refused)}
)

func classify(fold bool, ofSlash uint8) (classes [256]uint8) {
	for c := range classes {
		switch b := byte(c); {
		case b == '/':
			classes[c] = ofSlash
		case b == '.':
			classes[c] = dotOrSlash
		case !literal(b), b == ';', fold && 'A' <= b && b <= 'Z':
			classes[c] = stop
		}
	}
	return classes
}

// literal reports whether a canonical path holds b as itself rather than as an escape.
func literal(b byte) bool {
	return ' ' < b && b < 0x7F && !strings.ContainsRune(`#%?\{}`, rune(b))
}

// clean returns the path of a target that is canonical but for its query and one trailing slash. It is the
// answer to nearly every honest request, so it only looks: one table look-up and one branch, hardly ever
// taken, for each byte (BenchmarkCanonicalClean). What a profile may refuse beyond the default is never clean.
func clean(target string, classes *[256]uint8) (path string, ok bool) {
	if target == "" || target[0] != '/' {
		return "", false
	}
	end := len(target)
	before := uint8(slash)
	for i := 1; i < len(target); i++ {
		class := classes[target[i]]
		if class&(stop|before<<1&dotOrSlash) != 0 {
			if target[i] == '?' {
				if !rawBytesValid(target[i:]) {
					return "", false
				}
				end = i
				break
			}
			if target[i] != '.' || startsDotSegment(target[i:]) {
				return "", false
			}
		}
		before = class & slash
	}
	if end > 1 && target[end-1] == '/' {
		if classes['/']&refused != 0 {
			return "", false
		}
		end--
	}
	return target[:end], true
}

// startsDotSegment reports whether s starts with a segment that is . or .. (or may be, once decoded).
func startsDotSegment(s string) bool {
	n := 1
	if len(s) > 1 && s[1] == '.' {
		n = 2
	}
	return len(s) == n || !literal(s[n]) || s[n] == '/' || s[n] == ';'
}

// appendPath appends the canonical form of path, which starts with / and holds no query. In templates, braces
// stand for themselves.
func (p Profile) appendPath(dst []byte, path string, braces bool) ([]byte, Fault) {
	root := len(dst)
	dst = slices.Grow(dst, len(path))
	dots := dotStack{root: root}
	seg := segmentReader{profile: p, classes: p.classes(), path: path, braces: braces}
	slashAtEnd, dotted := false, false
	for seg.next < len(path) {
		start := len(dst)
		var fault Fault
		if dst, fault = seg.append(append(dst, '/')); fault != NoFault {
			return dst[:root], fault
		}
		slashAtEnd = false
		name := dst[start+1 : seg.nameEnd]
		if isDots(name) {
			if fault := seg.dotsFault(); fault != NoFault {
				return dst[:root], fault
			}
			dst = dst[:start]
			slashAtEnd, dotted = true, true
			if len(name) == 2 {
				dst, fault = dots.pop(dst)
			}
			if fault != NoFault {
				return dst[:root], fault
			}
			continue
		}
		if len(dst) == start+1 {
			dst = dst[:start]
			slashAtEnd = !seg.params
			if p.Refuse.has(RefuseRepeatedSlashes) && (seg.params || seg.next < len(path)) {
				return dst[:root], RepeatedSlash
			}
		}
		dots.push(len(name) == 0)
	}
	if slashAtEnd && len(dst) > root && p.Refuse.has(RefuseTrailingSlash) {
		return dst[:root], TrailingSlash
	}
	if len(dst) == root {
		dst = append(dst, '/')
	}
	switch {
	case !seg.escapedSlash:
	case p.EncodedSlash == DecodeEncodedSlash && dotted:
		return dst[:root], DotsAndSlash
	case p.EncodedSlash == KeepEncodedSlash && !braces && strings.ContainsAny(path, "\"<>^`{|}"):
		return dst[:root], EscapedSlash
	}
	if p.Refuse.has(RefuseBadUTF8) && !decodesToUTF8(dst[root:]) {
		return dst[:root], BadUTF8
	}
	return dst, NoFault
}
