package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// usual are the names under which programs write the parts of a request; a.b is b in the object a.
var usual = map[string][]string{
	"time": {"time", "ts", "timestamp", "@timestamp", "time_iso8601", "start_time", "StartUTC"},
	"client": {
		"client",
		"client_ip",
		"remote_addr",
		"remote_ip",
		"ip",
		"clientIP",
		"downstream_remote_address",
		"request.client_ip",
		"request.remote_ip",
		"ClientHost",
	},
	"method": {"method", "request_method", "http_method", "request.method", "RequestMethod"},
	"target": {
		"target",
		"request_uri",
		"uri",
		"path",
		"url",
		"http_path",
		"x-envoy-original-path",
		"x-envoy-origin-path",
		"request.uri",
		"RequestPath",
	},
	"user":   {"user", "user_id", "remote_user", "ClientUsername"},
	"status": {"status", "response_code", "status_code", "DownstreamStatus"},
}

// inJSON makes what reads an object a line.
func inJSON(fields map[string]string) func(line string, e *Entry) error {
	wanted := &object{}
	part := func(name string) func() (string, bool) {
		names := usual[name]
		if own, ok := fields[name]; ok {
			names = []string{own}
		}
		return wanted.first(names...)
	}
	at, client, method, target := part("time"), part("client"), part("method"), part("target")
	user, status := part("user"), part("status")
	whole := wanted.first("request") // the request line, as nginx has it
	return func(line string, e *Entry) error {
		if err := wanted.read(line); err != nil {
			return err
		}
		*e = Entry{}
		var missing []string
		text := func(name string, find func() (string, bool)) string {
			value, ok := find()
			if !ok {
				missing = append(missing, name)
			}
			return value
		}
		when, who := text("time", at), text("client", client)
		if line, ok := whole(); !ok || e.request(line) != nil {
			e.Method, e.Target = text("method", method), text("target", target)
		}
		if len(missing) > 0 {
			return fmt.Errorf(
				"it has no %s: name the member with --field, such as %s=NAME",
				strings.Join(missing, " and no "),
				missing[0],
			)
		}
		var err, err2 error
		e.At, err = instant(when)
		e.Client, err2 = address(who)
		if e.User, _ = user(); e.User == "-" {
			e.User = ""
		}
		if text, ok := status(); ok {
			e.Status, _ = strconv.Atoi(text)
		}
		return errors.Join(err, err2)
	}
}

// object reads JSON objects for the texts and numbers of some members. It goes over an object once,
// and makes nothing of what nobody asks for; package encoding/json would make maps of all of it. Of
// a member that stands twice the last one counts, as there. What stands behind the object is not
// looked at.
type object struct {
	members member
	found   []string // by place
	has     []bool

	text string
	at   int
}

// member is one that is asked for, or has some in it that are.
type member struct {
	under  map[string]*member
	places []int // in object.found, for what is asked for itself
	all    []int // those of members in it as well
}

// first asks for the first of some names that is there, a text or a number. What it returns says what the object that
// was read last has.
func (o *object) first(names ...string) func() (string, bool) {
	from := len(o.found)
	for i, name := range names {
		at := &o.members
		for step := range strings.SplitSeq(name, ".") {
			next := at.under[step]
			if next == nil {
				next = &member{}
				if at.under == nil {
					at.under = map[string]*member{}
				}
				at.under[step] = next
			}
			at = next
			at.all = append(at.all, from+i)
		}
		at.places = append(at.places, from+i)
	}
	o.found = append(o.found, names...)
	o.has = make([]bool, len(o.found))
	to := len(o.found)
	return func() (string, bool) {
		if i := slices.Index(o.has[from:to], true); i >= 0 {
			return o.found[from+i], true
		}
		return "", false
	}
}

// read reads the object that begins a line. What is found lasts as long as the line.
func (o *object) read(line string) error {
	o.text, o.at = line, 0
	clear(o.has)
	switch o.next() {
	case '{':
		return o.value(&o.members, 0)
	case 'n':
		return o.word("null") // as package encoding/json has it: an object without members
	}
	return o.fault()
}

// fault says where the text is no JSON.
func (o *object) fault() error {
	if o.at >= len(o.text) {
		return errors.New("it is no JSON object: it ends too early")
	}
	return fmt.Errorf("it is no JSON object: byte %d is %q", o.at+1, o.text[o.at])
}

// next is the next byte that is no space, 0 at the end.
func (o *object) next() byte {
	for ; o.at < len(o.text); o.at++ {
		switch c := o.text[o.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// deepest is how deep package encoding/json reads.
const deepest = 10_000

// value reads a value, which is that of m if m is not nil.
func (o *object) value(m *member, depth int) error {
	switch c := o.next(); {
	case c == '{' && depth < deepest:
		return o.inside(m, '}', depth+1)
	case c == '[' && depth < deepest:
		return o.inside(nil, ']', depth+1)
	case c == '"':
		text, err := o.string(m != nil)
		if m != nil && err == nil {
			o.note(m, text)
		}
		return err
	case c == '-' || '0' <= c && c <= '9':
		text, err := o.number()
		if m != nil && err == nil {
			o.note(m, text)
		}
		return err
	case c == 't':
		return o.word("true")
	case c == 'f':
		return o.word("false")
	case c == 'n':
		return o.word("null")
	}
	return o.fault()
}

func (o *object) note(m *member, text string) {
	for _, place := range m.places {
		o.found[place], o.has[place] = text, true
	}
}

// inside reads an object or an array, up to its end.
func (o *object) inside(m *member, end byte, depth int) error {
	o.at++
	if o.next() == end {
		o.at++
		return nil
	}
	for {
		var of *member
		if end == '}' {
			if o.next() != '"' {
				return o.fault()
			}
			name, err := o.string(m != nil && m.under != nil)
			if err != nil {
				return err
			}
			if o.next() != ':' {
				return o.fault()
			}
			o.at++
			if m != nil {
				if of = m.under[name]; of != nil {
					for _, place := range of.all { // what stood there before counts for nothing
						o.has[place] = false
					}
				}
			}
		}
		if err := o.value(of, depth); err != nil {
			return err
		}
		switch o.next() {
		case ',':
			o.at++
		case end:
			o.at++
			return nil
		default:
			return o.fault()
		}
	}
}

// string reads a string, and returns what it says if it is of use.
func (o *object) string(use bool) (string, error) {
	from, plain := o.at, true
	for o.at++; o.at < len(o.text); o.at++ {
		switch c := o.text[o.at]; {
		case c == '"':
			o.at++
			switch {
			case !use:
				return "", nil
			case plain:
				return o.text[from+1 : o.at-1], nil
			}
			var text string
			err := json.Unmarshal([]byte(o.text[from:o.at]), &text)
			return text, err
		case c == '\\':
			plain = false
			o.at++
			if o.at < len(o.text) && o.text[o.at] == 'u' {
				for range 4 {
					if o.at++; o.at >= len(o.text) ||
						!strings.ContainsRune("0123456789abcdefABCDEF", rune(o.text[o.at])) {
						return "", o.fault()
					}
				}
			} else if o.at >= len(o.text) || strings.IndexByte(`"\/bfnrt`, o.text[o.at]) < 0 {
				return "", o.fault()
			}
		case c < ' ':
			return "", o.fault()
		case c >= 0x80:
			plain = false // it may be no UTF-8
		}
	}
	return "", o.fault()
}

// number reads a number and returns it as it is written.
func (o *object) number() (string, error) {
	from := o.at
	if o.text[o.at] == '-' {
		o.at++
	}
	if o.peek() == '0' {
		o.at++
	} else if !o.digits() {
		return "", o.fault()
	}
	if o.peek() == '.' {
		if o.at++; !o.digits() {
			return "", o.fault()
		}
	}
	if c := o.peek(); c == 'e' || c == 'E' {
		o.at++
		if c := o.peek(); c == '+' || c == '-' {
			o.at++
		}
		if !o.digits() {
			return "", o.fault()
		}
	}
	return o.text[from:o.at], nil
}

func (o *object) peek() byte {
	if o.at < len(o.text) {
		return o.text[o.at]
	}
	return 0
}

// digits passes over digits, and reports whether there is one.
func (o *object) digits() bool {
	from := o.at
	for c := o.peek(); '0' <= c && c <= '9'; c = o.peek() {
		o.at++
	}
	return o.at > from
}

func (o *object) word(want string) error {
	for i := range len(want) {
		if o.peek() != want[i] {
			return o.fault()
		}
		o.at++
	}
	return nil
}
