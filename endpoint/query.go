package endpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/paramname"
)

// Some APIs tell operations apart by a query parameter: POST /rpc?action=login. A template may therefore name
// parameters, and only then is the query read, once:
//
//	GET /rpc                  whatever the query
//	GET /rpc?action=login     action is login
//	GET /rpc?action={action}  action is there, with any value
//
// The query is the easiest part of a target to write in two ways. So what servers are known to read
// differently is invalid on such a path, as far as it touches a parameter that a template names:
// given twice, given beside a ; or a second ? (which some split at: HAProxy at both), under a name
// that some server takes for it (action[], [action]x: see internal/paramname), malformed, or
// encoded twice.

const (
	maxConditions = 8  // in a template
	maxNames      = 16 // that templates of one path name
	maxName       = 64 // bytes of a parameter's name, decoded

	// maxParts is how many parameters a query may have where one of them matters: PHP, Tomcat and
	// qs (Express) leave out those behind the thousandth, so that what is found here need not be
	// there for them.
	maxParts = 1000
)

// condition is what a template asks of one query parameter.
type condition struct {
	name, value string // decoded
	any         bool   // it only has to be there
}

// parseQuery reads the part of a template after the ?, and returns it in canonical form too.
func parseQuery(text string) (conditions []condition, canonical string, err error) {
	for part := range strings.SplitSeq(text, "&") {
		c, err := parseCondition(part)
		if err != nil {
			return nil, "", err
		}
		if slices.ContainsFunc(conditions, func(other condition) bool { return other.name == c.name }) {
			return nil, "", fmt.Errorf("query parameter %q is named twice, want it once", c.name)
		}
		conditions = append(conditions, c)
	}
	if len(conditions) > maxConditions {
		return nil, "", fmt.Errorf("query names %d parameters, want at most %d", len(conditions), maxConditions)
	}
	slices.SortFunc(conditions, func(a, b condition) int { return strings.Compare(a.name, b.name) })
	texts := strings.Split(text, "&")
	slices.SortFunc(texts, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(plain(nameA), plain(nameB))
	})
	return conditions, strings.Join(texts, "&"), nil
}

func parseCondition(text string) (condition, error) {
	name, value, ok := strings.Cut(text, "=")
	switch {
	case name == "":
		return condition{}, fmt.Errorf("query parameter is %q, want name=value or name={value}", text)
	case !ok:
		return condition{}, fmt.Errorf("query parameter is %q, want %q for any value or %q for an empty one", text,
			text+"={value}", text+"=")
	}
	c := condition{name: plain(name), value: plain(value)}
	if inner, ok := strings.CutPrefix(value, "{"); ok {
		inner, ok = strings.CutSuffix(inner, "}")
		if !ok || !isName(inner) {
			return condition{}, fmt.Errorf("query parameter is %q, want %q with letters, digits and _ - . [ ]", text,
				name+"={value}")
		}
		c.value, c.any = "", true
	}
	switch written := escapeQuery(c.name); {
	case len(c.name) > maxName:
		return condition{}, fmt.Errorf("name of query parameter has %d bytes, want at most %d", len(c.name), maxName)
	case written != name:
		return condition{}, fmt.Errorf("name of query parameter is %q, want its canonical form %q", name, written)
	case strings.ContainsFunc(c.name+c.value, func(r rune) bool { return r < ' ' || r == 0x7F }):
		return condition{}, fmt.Errorf("query parameter %q holds a control byte, so no target can match it", text)
	case !c.any && escapeQuery(c.value) != value:
		return condition{}, fmt.Errorf("value of query parameter is %q, want its canonical form %q", value,
			escapeQuery(c.value))
	case c.name[0] == ' ' || c.name[len(c.name)-1] == ' ':
		return condition{}, fmt.Errorf("name of query parameter is %q, want no space at its ends: some servers drop it",
			name)
	case strings.ContainsRune("[]", rune(c.name[0])):
		return condition{},
			fmt.Errorf("name of query parameter is %q, want no bracket at its start: some servers drop it", name)
	}
	return c, nil
}

// plain decodes the escapes of s that are well formed. A + is left, because templates write a space as %20.
func plain(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c, ok := unescape(s, i); ok && s[i] == '%' {
			b.WriteByte(c)
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// escapeQuery writes a name or value as templates have it: what could mean something else in a query is escaped.
func escapeQuery(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if unreserved(c) || strings.IndexByte("!$'()*,/:@[]", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// compareConditions orders two sets that one query may meet: negative if a is the more specific. More parameters come
// before fewer, then more values before fewer.
func compareConditions(a, b []condition) int {
	return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(values(b), values(a)))
}

func values(conditions []condition) (n int) {
	for _, c := range conditions {
		if !c.any {
			n++
		}
	}
	return n
}

// commonQuery returns a query that meets both sets, if there is one.
func commonQuery(a, b []condition) (query string, ok bool) {
	asked := make(map[string]string)
	for _, c := range slices.Concat(a, b) {
		value := c.value
		if c.any {
			value = "x"
		}
		old, known := asked[c.name]
		switch {
		case !known:
			asked[c.name] = value
		case c.any:
		case old == value || slices.ContainsFunc(a,
			func(other condition) bool { return other.name == c.name && other.any }):
			asked[c.name] = value
		default:
			return "", false
		}
	}
	var parts []string
	for name, value := range asked {
		parts = append(parts, escapeQuery(name)+"="+escapeQuery(value))
	}
	slices.Sort(parts)
	return strings.Join(parts, "&"), true
}

// queryRow is what the templates that end in one state ask of the query.
type queryRow struct {
	names    []string
	asked    [][]string  // the values that templates ask for, of each name
	variants [][]variant // for each method, those that come before its ID in Table.ids, the most specific first
}

// variant is a template that names parameters.
type variant struct {
	id    ID
	needs []need
}

// need is a condition on the parameter names[name].
type need struct {
	name  int
	value string
	any   bool
}

// newQueryRow returns nil for routes that name no parameters. The error says that they name too many.
func newQueryRow(routes []*route, methods []string) (*queryRow, error) {
	q := &queryRow{variants: make([][]variant, len(methods))}
	for _, r := range routes {
		for _, c := range r.conditions {
			i := slices.Index(q.names, c.name)
			if i < 0 {
				i = len(q.names)
				q.names, q.asked = append(q.names, c.name), append(q.asked, nil)
			}
			if !c.any {
				q.asked[i] = append(q.asked[i], c.value)
			}
		}
	}
	switch {
	case len(q.names) == 0:
		return nil, nil
	case len(q.names) > maxNames:
		return nil,
			fmt.Errorf("templates that match the same path, such as %q, name %d query parameters, want at most %d",
				routes[0], len(q.names), maxNames)
	}
	for i, method := range methods {
		for _, r := range servingInOrder(routes, method) {
			if len(r.conditions) == 0 {
				break
			}
			v := variant{id: r.id}
			for _, c := range r.conditions {
				v.needs = append(v.needs, need{slices.Index(q.names, c.name), c.value, c.any})
			}
			q.variants[i] = append(q.variants[i], v)
		}
	}
	return q, nil
}

// given are the parameters of a request that templates name, undecoded.
type given struct {
	value   [maxNames]string
	present [maxNames]bool
}

// choose returns the ID of the first variant of the i-th method that the query meets, or otherwise.
func (q *queryRow) choose(i int, g *given, otherwise ID) ID {
	for _, v := range q.variants[i] {
		if v.met(g) {
			return v.id
		}
	}
	return otherwise
}

func (v *variant) met(g *given) bool {
	for _, n := range v.needs {
		if !g.present[n.name] || !n.any && !decodesTo(g.value[n.name], n.value, false) {
			return false
		}
	}
	return true
}

// read finds the named parameters in a query.
func (q *queryRow) read(query string, p Profile, g *given) Fault {
	if strings.Count(query, "&")+strings.Count(query, ";")+strings.Count(query, "?") >= maxParts {
		return AmbiguousQuery
	}
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		first, rest, more := cutPiece(part)
		name, fault := q.readOne(first, p, g)
		if fault != NoFault {
			return fault
		}
		if name >= 0 && more {
			return AmbiguousQuery
		}
		for more {
			first, rest, more = cutPiece(rest)
			name, fault := q.readOne(first, p, g)
			if fault != NoFault {
				return fault
			}
			if name >= 0 {
				return AmbiguousQuery
			}
		}
	}
	return NoFault
}

// cutPiece cuts what & parts where some server goes on: at a ; (Rack, HAProxy) or another ? (HAProxy).
func cutPiece(s string) (before, after string, found bool) {
	for i := range len(s) {
		if s[i] == ';' || s[i] == '?' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// readOne notes a parameter name=value if it is named, and returns which it is, or -1.
func (q *queryRow) readOne(text string, p Profile, g *given) (int, Fault) {
	rawName, value, _ := strings.Cut(text, "=")
	var buf [paramname.Most]byte
	name, whole, fault := readName(rawName, p, buf[:0])
	if fault != NoFault {
		return -1, fault
	}
	for i, named := range q.names {
		if string(name) == named {
			if fault := checkValue(value, p); fault != NoFault {
				return i, fault
			}
			if g.present[i] || q.differsInCase(i, value) || p.Refuse.has(RefuseUnreservedEscapes) &&
				!q.plainly(i, rawName, value) {
				return i, AmbiguousQuery
			}
			g.value[i], g.present[i] = value, true
			return i, NoFault
		}
	}
	if !whole && paramname.Odd(name) {
		return 0, AmbiguousQuery // it may go on with any of them
	}
	for i, named := range q.names {
		if paramname.Alike(name, []byte(named)) {
			return i, AmbiguousQuery
		}
	}
	return -1, NoFault
}

// differsInCase reports whether a value differs from one that a template asks for in letter case alone: nginx (map)
// ignores that, others do not.
func (q *queryRow) differsInCase(i int, value string) bool {
	is := func(fold bool) bool {
		return slices.ContainsFunc(q.asked[i],
			func(asked string) bool { return decodesTo(value, lowerIf(fold, asked), fold) })
	}
	return is(true) && !is(false)
}

func lowerIf(fold bool, s string) string {
	if fold {
		return lower(s)
	}
	return s
}

// plainly reports whether the i-th name, and its value if a template asks for that, are written as
// templates have them: for servers that compare them undecoded, as nginx ($arg_name), HAProxy and
// Envoy do.
func (q *queryRow) plainly(i int, rawName, value string) bool {
	if rawName != escapeQuery(q.names[i]) {
		return false
	}
	return !slices.ContainsFunc(q.asked[i], func(asked string) bool {
		return decodesTo(value, asked, false) &&
			value != escapeQuery(asked)
	})
}

// readName decodes a name into buf, as far as that has room; whole says that it had.
func readName(raw string, p Profile, buf []byte) (name []byte, whole bool, fault Fault) {
	if fault := checkValue(raw, p); fault != NoFault {
		return nil, false, fault
	}
	i := 0
	for i < len(raw) && len(buf) < cap(buf) {
		b, width := queryByte(raw, i)
		i += width
		buf = append(buf, b)
	}
	return buf, i == len(raw), NoFault
}

// checkValue returns why a part of a query has no single reading.
func checkValue(raw string, p Profile) Fault {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			continue
		}
		b, ok := unescape(raw, i)
		switch {
		case !ok:
			return BadEscape
		case b < ' ' || b == 0x7F:
			return ControlByte
		case b == '%' && !p.AllowDoubleEncoding:
			r := segmentReader{path: raw}
			if r.hexAt(i + 3) {
				return DoubleEncoded
			}
		}
		i += 2
	}
	return NoFault
}

// decodesTo reports whether well-formed raw text stands for want.
func decodesTo(raw, want string, fold bool) bool {
	n := 0
	for i := 0; i < len(raw); n++ {
		b, width := queryByte(raw, i)
		i += width
		if fold && 'A' <= b && b <= 'Z' {
			b |= 0x20
		}
		if n == len(want) || want[n] != b {
			return false
		}
	}
	return n == len(want)
}

// queryByte returns the byte that well-formed raw[i:] starts with, and how many bytes spell it. A + is a space, as
// forms have it.
func queryByte(raw string, i int) (b byte, width int) {
	switch b := raw[i]; b {
	case '%':
		b, _ = unescape(raw, i)
		return b, 3
	case '+':
		return ' ', 1
	default:
		return b, 1
	}
}
