package endpoint

import "strings"

// Disguised reports whether the path of a target is spelled as no client needs to spell it: with repeated slashes, with
// a . or .. segment, or with an escape of a letter, a digit or one of - . _ (RFC 3986 section 2.3: those need none).
// Such targets mean the same as plain ones, and who looks for a way past a filter tries them. It says nothing of a
// slash at the end, of letter case, of other escapes, nor of ~, which older libraries escape; and what of a target is
// a fault, Match says.
func Disguised(target string) bool {
	if end := strings.IndexByte(target, '?'); end >= 0 {
		target = target[:end]
	}
	for i := 0; i < len(target); i++ {
		switch target[i] {
		case '/':
			rest := target[i+1:]
			if strings.HasPrefix(rest, "/") {
				return true
			}
			if rest, dot := strings.CutPrefix(rest, "."); dot {
				if rest = strings.TrimPrefix(rest, "."); rest == "" || rest[0] == '/' {
					return true
				}
			}
		case '%':
			if b, ok := unescape(target, i); ok && b != '~' && unreserved(b) {
				return true
			}
		}
	}
	return false
}
