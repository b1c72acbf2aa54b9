package endpoint_test

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/endpoint"
)

// The slow, obvious twins of Canonical and Match. slowCanonical takes the profile one rule after
// the other, on decoded text.

var (
	needless = regexp.MustCompile(`(?i)%(2[de]|3\d|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])`)
	// An escaped ; that would begin parameters, or a slash among them that is escaped (\x01 where it is kept).
	strippedEscape = regexp.MustCompile(`(?i)(^|/|%2f)[^/;]*%3b|;[^/]*(%2f|\x01)`)
	dotted         = regexp.MustCompile(`(^|/)\.\.?(/|$)`)
	token          = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
	escaped        = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	kept           = strings.NewReplacer("%2f", "\x01", "%2F", "\x01")
)

// slowCanonical returns the canonical form, or the number of the rule that the target breaks.
func slowCanonical(p endpoint.Profile, target string) (path, fault string) {
	// 1.
	if !strings.HasPrefix(target, "/") {
		return "", "1"
	}
	for _, c := range []byte(target) {
		if c <= ' ' || c > '~' || c == '#' {
			return "", "1"
		}
	}
	// 2.
	path, _, _ = strings.Cut(target, "?")
	// 3. and 4.
	if strings.Contains(path, `\`) {
		return "", "4"
	}
	lower := strings.ToLower(path)
	if strings.Contains(lower, "%5c") || strings.Contains(lower, "%2f") &&
		p.EncodedSlash == endpoint.RejectEncodedSlash {
		return "", "4"
	}
	if p.EncodedSlash == endpoint.KeepEncodedSlash {
		// A control byte stands for the kept slash; so encoded ones are looked for before.
		if strings.Contains(path, "%01") {
			return "", "3"
		}
		path = kept.Replace(path)
	}
	if p.Refuse&endpoint.RefuseUnreservedEscapes != 0 && needless.MatchString(path) {
		return "", "4"
	}
	raw := path
	path, err := url.PathUnescape(path)
	if err != nil || strings.ContainsFunc(path, func(r rune) bool {
		return r < ' ' && r != 1 || r == 0x7F || r == 1 && p.EncodedSlash != endpoint.KeepEncodedSlash
	}) {
		return "", "3"
	}
	if p.Params == endpoint.RejectParams && strings.Contains(path, ";") {
		return "", "7"
	}
	if p.Params == endpoint.StripParams && strippedEscape.MatchString(raw) {
		return "", "4 or 7"
	}
	if p.EncodedSlash == endpoint.DecodeEncodedSlash && strings.Contains(lower, "%2f") && dotted.MatchString(path) {
		return "", "4"
	}
	// 10., before the parameters are gone.
	for i := range len(path) {
		if _, err := url.PathUnescape(path[i:min(i+3, len(path))]); path[i] == '%' && err == nil &&
			!p.AllowDoubleEncoding {
			return "", "10"
		}
	}
	// 4., again: what is beside a kept slash, and every dot segment.
	for i, s := range strings.Split(path[1:], "/") {
		last := i == strings.Count(path[1:], "/")
		for _, part := range strings.Split(s, "\x01") {
			name, _, params := strings.Cut(part, ";")
			if (name == "." || name == "..") && (part != s || params || p.Refuse&endpoint.RefuseDotSegments != 0) ||
				name == "" && part != s {
				return "", "4, 6 or 7"
			}
		}
		name, _, params := strings.Cut(s, ";")
		gone := s == "" || name == "" && p.Params == endpoint.StripParams
		if p.Refuse&endpoint.RefuseRepeatedSlashes != 0 && gone && (!last || params) {
			return "", "5"
		}
	}
	if p.EncodedSlash == endpoint.KeepEncodedSlash && strings.Contains(path, "\x01") &&
		strings.ContainsAny(raw, "\"<>^`{|}") {
		return "", "4"
	}
	// 5. and 6.
	var merged, named []string
	for _, s := range strings.Split(path[1:], "/") {
		name, _, params := strings.Cut(s, ";")
		if params && (name == "." || name == "..") {
			return "", "7"
		}
		if s != "" {
			merged = append(merged, s)
		}
		if name != "" {
			named = append(named, s)
		}
	}
	if removesNameless(strings.Split(path[1:], "/")) {
		return "", "6"
	}
	segments := removeDots(merged)
	for _, otherReading := range [][]string{named, strings.Split(path[1:], "/")} {
		if !slices.Equal(names(removeDots(otherReading)), names(segments)) {
			panic("rule 6 accepts what servers read differently: " + target)
		}
	}
	// 7.
	if p.Params == endpoint.StripParams {
		segments = names(segments)
	}
	// 8. and 9.
	all := strings.Split(path[1:], "/")
	if last := all[len(all)-1]; p.Refuse&endpoint.RefuseTrailingSlash != 0 && len(segments) > 0 &&
		(last == "" || last == "." || last == "..") {
		return "", "8"
	}
	path = "/" + strings.Join(segments, "/")
	if p.Refuse&endpoint.RefuseBadUTF8 != 0 && !utf8.ValidString(path) {
		return "", "11"
	}
	var out strings.Builder
	for _, c := range []byte(path) {
		switch {
		case c == 1:
			out.WriteString("%2F")
		case c <= ' ' || c > '~' || strings.Contains(`#%?{}`, string(rune(c))):
			fmt.Fprintf(&out, "%%%02X", c)
		case p.CaseInsensitive:
			out.WriteString(strings.ToLower(string(rune(c))))
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), ""
}

func removeDots(segments []string) (out []string) {
	for _, s := range segments {
		switch {
		case s == "..":
			out = out[:max(len(out)-1, 0)]
		case s != ".":
			out = append(out, s)
		}
	}
	return out
}

// removesNameless reports whether a .. removes a segment without a name from above one that has a name.
func removesNameless(segments []string) bool {
	var stack []string
	for _, s := range segments {
		name, _, _ := strings.Cut(s, ";")
		switch top := len(stack) - 1; {
		case s == ".":
		case s != "..":
			stack = append(stack, name)
		case top >= 0 && stack[top] == "" && strings.Join(stack, "") != "":
			return true
		default:
			stack = stack[:max(top, 0)]
		}
	}
	return false
}

// names returns segments without parameters, and without those that then are empty.
func names(segments []string) (out []string) {
	for _, s := range segments {
		if name, _, _ := strings.Cut(s, ";"); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// slowMatch returns the most specific of all templates that match.
func slowMatch(templates []endpoint.Template, p endpoint.Profile, method, target string) (best endpoint.Template,
	status endpoint.Status) {
	path, fault := slowCanonical(p, target)
	if fault != "" || method == "CONNECT" || !token.MatchString(method) {
		return best, endpoint.Invalid
	}
	var matching, serving []endpoint.Template
	names := make(map[string][]string)
	for _, t := range templates {
		if slowMatches(slowSegments(t.Path(), p), slowSegments(path, p)) {
			matching = append(matching, t)
			for name, value := range slowConditions(t, p) {
				names[name] = append(names[name], value)
			}
		}
	}
	_, query, _ := strings.Cut(target, "?")
	given, ok := slowQuery(query, names, p)
	if !ok {
		return best, endpoint.Invalid
	}
	for _, t := range matching {
		met := true
		for name, want := range slowConditions(t, p) {
			value, ok := given[name]
			met = met && ok && (want == "{}" || want == value)
		}
		if !met {
			continue
		}
		status = max(status, endpoint.UnknownMethod)
		if t.Method() == method || t.Method() == "GET" && method == "HEAD" {
			serving = append(serving, t)
		}
	}
	if len(serving) == 0 {
		return best, status
	}
	return slices.MaxFunc(serving, func(a, b endpoint.Template) int {
		c := slices.Compare(slowSpecificity(a.Path()), slowSpecificity(b.Path()))
		if c == 0 {
			c = slices.Compare(slowAsked(a, p), slowAsked(b, p))
		}
		if c == 0 {
			c = strings.Compare(a.Method(), b.Method()) // HEAD after GET
		}
		return c
	}), endpoint.Known
}

// slowConditions returns the values that a template asks for by name, "{}" for any.
func slowConditions(t endpoint.Template, p endpoint.Profile) map[string]string {
	asked := make(map[string]string)
	if t.Query() == "" {
		return asked
	}
	for part := range strings.SplitSeq(t.Query(), "&") {
		name, value, _ := strings.Cut(part, "=")
		if strings.HasPrefix(value, "{") {
			value = "{}"
		}
		name, _ = url.PathUnescape(name)
		value, _ = url.PathUnescape(value)
		asked[name] = value
	}
	return asked
}

// slowAsked returns how many parameters a template names, and how many values.
func slowAsked(t endpoint.Template, p endpoint.Profile) []int {
	values := 0
	for _, value := range slowConditions(t, p) {
		if value != "{}" {
			values++
		}
	}
	return []int{len(slowConditions(t, p)), values}
}

// slowQuery returns the named parameters of a query; ok says that servers read them alike.
func slowQuery(query string, names map[string][]string, p endpoint.Profile) (given map[string]string, ok bool) {
	given = make(map[string]string)
	if len(names) == 0 {
		return given, true
	}
	decode := func(s string) (string, bool) {
		text, err := url.QueryUnescape(s)
		bad := strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7F })
		if !p.AllowDoubleEncoding {
			raw, _ := url.PathUnescape(s)
			bad = bad || escaped.MatchString(raw)
		}
		return text, err == nil && !bad
	}
	for _, part := range strings.Split(query, "&") {
		if part == "" {
			continue
		}
		for _, piece := range regexp.MustCompile(`[;?]`).Split(part, -1) {
			rawName, rawValue, _ := strings.Cut(piece, "=")
			name, ok := decode(rawName)
			if !ok {
				return nil, false
			}
			if long := name; len(long) > 256 { // as much of it as is looked at
				if name = long[:256]; strings.ContainsAny(name, "[]\x00") || name != strings.Trim(name, " ") {
					return nil, false
				}
			}
			if names[name] == nil {
				for named := range names {
					if slowAlike(name, named) {
						return nil, false
					}
				}
				continue
			}
			value, ok := decode(rawValue)
			if _, twice := given[name]; !ok || twice || piece != part {
				return nil, false
			}
			if !slices.Contains(names[name], value) && slices.ContainsFunc(names[name],
				func(asked string) bool { return asked != "{}" && asciiLower(asked) == asciiLower(value) }) {
				return nil, false
			}
			given[name] = value
		}
	}
	return given, true
}

var (
	// what stands before a variable, its name, its members
	parts   = regexp.MustCompile(`(?s)^([\[\] ]*)([^\[\]]*)(.*)$`)
	pairs   = regexp.MustCompile(`^(\[[^\[\]]*\])*$`)
	member  = regexp.MustCompile(`(?s)^.([^\[\]]*)\]`)
	dots    = regexp.MustCompile(`\.([^.\[]+)`)
	mangled = regexp.MustCompile(`[ .\[]`)
)

// slowAlike reports whether a name may be taken for another: without letter case, dots and
// brackets, as far as the first bracket, unless both go on with names in brackets that differ; with
// dots for brackets too.
func slowAlike(name, named string) bool {
	name, _, _ = strings.Cut(name, "\x00")
	trimmed := func(s string) string { return strings.Trim(s, " ") }
	same := func(a, b string) bool {
		under := strings.NewReplacer(" ", "_", ".", "_")
		return strings.EqualFold(under.Replace(trimmed(a)), under.Replace(trimmed(b)))
	}
	sameMember := func(name, named string) bool {
		m, n := parts.FindStringSubmatch(name), parts.FindStringSubmatch(named)
		if !same(m[2], n[2]) {
			return false
		}
		first := func(members string) string { return trimmed(append(member.FindStringSubmatch(members), "", "")[1]) }
		a, b := first(m[3]), first(n[3])
		return m[1] != "" || !pairs.MatchString(m[3]) || a == "" || b == "" || same(a, b)
	}
	underscored := func(s string) string { return mangled.ReplaceAllString(trimmed(s), "_") }
	return strings.EqualFold(underscored(name), underscored(named)) || sameMember(name, named) ||
		sameMember(dots.ReplaceAllString(name, "[$1]"), dots.ReplaceAllString(named, "[$1]"))
}

// slowSegments returns the decoded segments of a canonical path or a template's, whose braces it turns into
// control bytes to tell them from decoded ones.
func slowSegments(path string, p endpoint.Profile) []string {
	path = strings.NewReplacer("{", "\x01", "...}", "\x03", "}", "\x02").Replace(path)
	if path == "/" {
		return nil
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		segments[i], _ = url.PathUnescape(s)
		if p.CaseInsensitive {
			segments[i] = asciiLower(segments[i])
		}
	}
	return segments
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func slowMatches(template, path []string) bool {
	if len(template) == 0 || len(path) == 0 {
		return len(template) == len(path)
	}
	before, after, isParameter := strings.Cut(template[0], "\x01")
	between := slowBetween(after)
	after = after[strings.LastIndexByte(after, '\x02')+1:]
	switch {
	case strings.HasSuffix(template[0], "\x03"):
		return true
	case !isParameter && template[0] != path[0]:
		return false
	case isParameter && !(len(path[0]) > len(before)+len(after) && strings.HasPrefix(path[0], before) &&
		strings.HasSuffix(path[0], after)):
		return false
	}
	if isParameter && len(between) > 0 && !slowHolds(between, path[0][len(before):len(path[0])-len(after)]) {
		return false
	}
	return slowMatches(template[1:], path[1:])
}

// slowBetween returns the literal texts between the parameters of a segment, of which the first has begun.
func slowBetween(segment string) (texts []string) {
	parts := regexp.MustCompile(`[^\x01\x02]*\x02`).Split(segment, -1)
	if len(parts) < 2 {
		return nil
	}
	for _, part := range parts[1 : len(parts)-1] {
		if text := strings.Trim(part, "\x01"); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// slowHolds reports whether decoded text has all texts in their order with something around each.
func slowHolds(texts []string, in string) bool {
	ends := map[int]bool{0: true} // where the texts so far may end, in every way there is
	for _, text := range texts {
		next := make(map[int]bool)
		for end := range ends {
			for i := end + 1; i < len(in); i++ {
				if strings.HasPrefix(in[i:], text) {
					next[i+len(text)] = true
				}
			}
		}
		ends = next
	}
	for end := range ends {
		if end < len(in) {
			return true
		}
	}
	return false
}

// slowSpecificity returns a number for each segment of a template's path, higher for the more specific.
func slowSpecificity(path string) (ranks []int) {
	for s := range strings.SplitSeq(path, "/") {
		before, after, isParameter := strings.Cut(s, "{")
		name, _, _ := strings.Cut(after, "}")
		after = after[strings.LastIndexByte(after, '}')+1:]
		switch {
		case strings.HasSuffix(name, "..."):
			ranks = append(ranks, 0)
		case !isParameter:
			ranks = append(ranks, 1<<20)
		default:
			ranks = append(ranks, 1+len(before)+len(after)+
				len(strings.Join(slowBetween(strings.NewReplacer("{", "\x01", "}", "\x02").Replace(s[len(before)+1:])),
					"")))
		}
	}
	return ranks
}
