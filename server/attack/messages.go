package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf16"
)

// A limit of a tool, a method or a model goes by what stands in a body. Who reads the body before the
// API, and finds another name in it than the API does, counts for another budget, or for none.

// Messages writes the plan's message of JSON-RPC, its request to a language model or its document of GraphQL in
// ways that some servers read as the same. It reports false for other bodies.
func Messages(text string) (a Attack, ok bool) {
	fields := named(text)
	if len(fields) == 0 {
		return Attack{}, false
	}
	a = Attack{
		Name: messagesName, Claim: "other ways to write the same message",
		Fix: "read the body as the API does, or refuse it: one object in plain UTF-8, each name once, in any case. " +
			"What a message asks for must not name a budget before the message has one reading, and what has no " +
			"budget of its own counts with all others",
		Families: envelopes(),
		Stranger: "a name that nobody has given",
		Ask: func(r Request) Request {
			r.Body = edit(r.Body, fields[len(fields)-1].path, func(m []member, at int) []member {
				m[at].value = `"headgate-attack-nothing"`
				return m
			})
			return r
		},
	}
	for _, f := range fields {
		a.Families = append(a.Families, f.twice()...)
		a.Doubtful = append(a.Doubtful, f.respelled()...)
	}
	return a, true
}

const messagesName = "messages"

// batches is Batches for the same message: an object around several is another message, and who does not tell it from
// this one knows no difference.
func (a Attack) batches() Attack {
	b := Batches
	b.Families, b.Doubtful, b.Ask, b.Stranger = nil, nil, a.Ask, a.Stranger
	for _, f := range Batches.Families {
		if strings.Contains(f.Name, "object") {
			b.Doubtful = append(b.Doubtful, f)
		} else {
			b.Families = append(b.Families, f)
		}
	}
	return b
}

// field is one by whose text a message is counted.
type field struct {
	path  []string
	value string // as it stands in the message
}

// named are the fields by which limits tell bodies like this apart, the most special last.
func named(body string) (fields []field) {
	read := func(path ...string) {
		edit(body, path, func(m []member, at int) []member {
			var value string
			if json.Unmarshal([]byte(m[at].value), &value) == nil && value != "" {
				fields = append(fields, field{path, value})
			}
			return m
		})
	}
	if read("method"); len(fields) > 0 {
		read("params", "name")
	} else if read("model"); len(fields) == 0 {
		if read("query"); len(fields) > 0 && !strings.Contains(fields[0].value, "{") { // no document of GraphQL
			return nil
		}
	}
	return fields
}

// member is one of an object, as it is written.
type member struct{ name, value string }

// edit has change edit the members of the object in which the last name of a path stands, of which that is the at-th.
// A text without it comes back as it is.
func edit(text string, path []string, change func(m []member, at int) []member) string {
	d := json.NewDecoder(strings.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return text
	}
	var all []member
	at := -1
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return text
		}
		if name == path[0] {
			at = len(all)
		}
		all = append(all, member{quote(name.(string)), string(value)})
	}
	switch {
	case at < 0:
		return text
	case len(path) > 1:
		all[at].value = edit(all[at].value, path[1:], change)
	default:
		all = change(all, at)
	}
	var b strings.Builder
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.name + ":" + m.value)
	}
	return "{" + b.String() + "}"
}

func quote(s string) string {
	text, _ := json.Marshal(s) // of a string
	return string(text)
}

// change is a family that edits the members around the field.
func (f field) change(name string, edits func(m []member, at, i int) []member) Family {
	return Family{fmt.Sprintf("%s: %s", strings.Join(f.path, "."), name), func(r Request, i int) Request {
		r.Body = edit(r.Body, f.path, func(m []member, at int) []member { return edits(m, at, i) })
		return r
	}}
}

// escaped is text in quotes, with those characters escaped that set says.
func escaped(text string, set int) string {
	return `"` + choose(text, 1+set, func(c byte) bool { return c < 0x80 && c != '"' && c != '\\' },
		func(c byte) string { return fmt.Sprintf(`\u%04x`, c) }) + `"`
}

// twice are families in which the name of the field stands twice, or so that some would not find it.
func (f field) twice() []Family {
	last := f.path[len(f.path)-1]
	other := quote(map[string]string{
		"method": "ping", "name": "nothing", "model": "none", "query": "{__typename}"}[last])
	before := func(what, name, value string) Family {
		return f.change(what, func(m []member, at, _ int) []member {
			return slices.Insert(m, at, member{name, value})
		})
	}
	behind := func(what, name, value string) Family {
		return f.change(what, func(m []member, _, _ int) []member { return append(m, member{name, value}) })
	}
	return []Family{
		before("another before it", quote(last), other),
		behind("another behind it", quote(last), other),
		before("a number before it", quote(last), "1.5"),
		before("nothing before it", quote(last), "null"),
		before("a list before it", quote(last), "["+other+"]"),
		before("another before it, in capitals", quote(strings.ToUpper(last)), other),
		behind("another behind it, in capitals", quote(strings.ToUpper(last)), other),
		behind("another behind it, up to a zero byte", `"`+last+`\u0000"`, other),
		f.change("another behind it, escaped", func(m []member, _, i int) []member {
			return append(m, member{escaped(last, i), other})
		}),
		f.change("its name escaped", func(m []member, at, i int) []member {
			m[at].name = escaped(last, i)
			return m
		}),
		f.change("its value escaped", func(m []member, at, i int) []member {
			m[at].value = escaped(f.value, i)
			return m
		}),
		f.change("as the last member", func(m []member, at, _ int) []member {
			one := m[at]
			return append(slices.Delete(m, at, at+1), one)
		}),
	}
}

// respelled are families with another value, which some servers take for the same.
func (f field) respelled() []Family {
	value := func(what string, spell func(i int) string) Family {
		return f.change(what, func(m []member, at, i int) []member {
			m[at].value = quote(spell(i))
			return m
		})
	}
	last := f.path[len(f.path)-1]
	return []Family{
		value("in another case", func(i int) string { return flipCase(f.value, 1+i) }),
		value("spaces around it", func(i int) string {
			return strings.Repeat(" ", i%7) + f.value + strings.Repeat(" ", 1+i/7)
		}),
		value("a tab behind it", func(i int) string { return f.value + strings.Repeat("\t", 1+i) }),
		value("a zero byte behind it", func(i int) string { return fmt.Sprintf("%s\x00%d", f.value, i) }),
		value("a zero-width space in it", func(i int) string { return f.value + strings.Repeat("\u200b", 1+i) }),
		value("in wide letters", func(i int) string {
			return choose(f.value, 1+i, func(c byte) bool { return c > ' ' && c < 0x7f },
				func(c byte) string { return string(rune(c) + 0xfee0) })
		}),
		value("percent-encoded", func(i int) string { return encode(f.value, 1+i, "%%%02x") }),
		value("slashes around it", func(i int) string { return "/" + f.value + strings.Repeat("/", i) }),
		value("a version behind it", func(i int) string { return fmt.Sprintf("%s-20%02d-01-01", f.value, i%100) }),
		f.change("its name in another case", func(m []member, at, i int) []member {
			m[at].name = quote(flipCase(last, 1+i))
			return m
		}),
	}
}

// envelopes are families that leave what is asked for alone, and change what stands around it.
func envelopes() []Family {
	text := func(name string, change func(body string, i int) string) Family {
		return Family{name, func(r Request, i int) Request {
			r.Body = change(r.Body, i)
			return r
		}}
	}
	format := func(name, format string) Family {
		return text(name, func(body string, _ int) string { return fmt.Sprintf(format, body) })
	}
	with := func(name string, field func(i int) Field) Family {
		return Family{name, func(r Request, i int) Request {
			one := field(i)
			same := func(f Field) bool { return strings.EqualFold(f.Name, one.Name) }
			r.Header = slices.DeleteFunc(slices.Clone(r.Header), same)
			return r.With(one)
		}}
	}
	member := func(name, of string, value func(i int) string) Family {
		return text(name, func(body string, i int) string { return put(body, of, value(i)) })
	}
	id := func(name, value string) Family { return member(name, "id", func(int) string { return value }) }
	return []Family{
		member("another id", "id", func(i int) string { return fmt.Sprint(1000 + i) }),
		member("another id, in words", "id", func(i int) string { return fmt.Sprintf(`"call-%d"`, i) }),
		id("no id", ""),
		id("an id that is null", "null"),
		id("an id with a fraction", "1.5"),
		id("an id that is an object", `{"id":1}`),
		id("a long id", `"`+strings.Repeat("i", 4096)+`"`),
		member("another version of JSON-RPC", "jsonrpc", func(i int) string { return []string{`"1.0"`, "2", ""}[i%3] }),
		member("streamed", "stream", func(i int) string { return []string{"true", `"true"`, "1"}[i%3] }),
		member("another member", "x", func(i int) string { return fmt.Sprint(i) }),
		member("much beside it", "x", func(i int) string {
			return `"` + strings.Repeat("x", padding(i)) + `"`
		}),
		member("deep beside it", "x", func(i int) string {
			depth := 10 << (i % 6)
			return strings.Repeat("[", depth) + strings.Repeat("]", depth)
		}),
		text("spaces before it", func(body string, i int) string { return strings.Repeat(" ", padding(i)) + body }),
		format("an array of one", "[%s]"),
		format("two lines", "%[1]s\n%[1]s"),
		format("behind another document", "{}%s"),
		format("before another document", "%s{}"),
		format("behind a byte order mark", "\ufeff%s"),
		format("behind a comment", "/* {} */%s"),
		format("as an event", "data: %s\n\n"),
		text("a comma too many", func(body string, _ int) string { return strings.TrimSuffix(body, "}") + ",}" }),
		{"in UTF-16", func(r Request, _ int) Request {
			return retyped(r, wide(r.Body), "application/json; charset=utf-16")
		}},
		{"in UTF-16 that is not said", func(r Request, _ int) Request {
			return retyped(r, wide(r.Body), "application/json")
		}},
		{"as text", func(r Request, _ int) Request { return retyped(r, r.Body, "text/plain") }},
		{"as a form", func(r Request, _ int) Request {
			return retyped(r, r.Body, "application/x-www-form-urlencoded")
		}},
		{"as JSON-RPC", func(r Request, _ int) Request { return retyped(r, r.Body, "application/json-rpc") }},
		{"as nothing", func(r Request, _ int) Request { return retyped(r, r.Body, "") }},
		{"compressed", func(r Request, _ int) Request {
			r.Body = compressed(r.Body)
			return r.With(Field{"Content-Encoding", "gzip"})
		}},
		with("another session", func(i int) Field {
			return Field{"Mcp-Session-Id", fmt.Sprintf("%x", digest("session", i)[:16])}
		}),
		with("another version of MCP", func(i int) Field {
			return Field{"Mcp-Protocol-Version", []string{"2024-11-05", "2025-03-26", "2025-06-18", "2099-01-01"}[i%4]}
		}),
		with("answered by events", func(int) Field { return Field{"Accept", "text/event-stream"} }),
		with("as one that goes on", func(i int) Field { return Field{"Last-Event-Id", fmt.Sprint(i)} }),
		{"in the query too", func(r Request, i int) Request {
			return asking(r, []string{"method", "model", "name", "query"}[i%4], fmt.Sprint("x", i))
		}},
	}
}

// put sets a member of an object; an empty value takes it out.
func put(body, name, value string) string {
	taken := edit(body, []string{name}, func(m []member, at int) []member { return slices.Delete(m, at, at+1) })
	rest, ok := strings.CutPrefix(taken, "{")
	switch {
	case !ok || value == "":
		return taken
	case rest == "}":
		return "{" + quote(name) + ":" + value + "}"
	}
	return "{" + quote(name) + ":" + value + "," + rest
}

// padding is how many bytes stand beside a message: some thousands, and now and then more than most servers read.
func padding(i int) int {
	if i%32 == 31 {
		return 1<<20 + 1<<18
	}
	return 1 << (12 + i%5)
}

func retyped(r Request, body, kind string) Request {
	r.Body = body
	r.Header = slices.DeleteFunc(slices.Clone(r.Header), isContentType)
	if kind == "" {
		return r
	}
	return r.With(Field{"Content-Type", kind})
}

func wide(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		b.Write([]byte{byte(unit), byte(unit >> 8)})
	}
	return b.String()
}

// outcome is the status of an answer to a message of JSON-RPC: an answer of 200 may say that the message was refused.
// That is the status which its error says, or 400.
func outcome(status int, header http.Header, text []byte) int {
	if status != http.StatusOK {
		return status
	}
	if strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
		var last []byte
		for line := range bytes.Lines(text) {
			if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				last = data // the answer is the last
			}
		}
		text = last
	}
	var one json.RawMessage
	var all []json.RawMessage
	if json.Unmarshal(text, &one) != nil {
		return status
	}
	if json.Unmarshal(one, &all) != nil {
		all = []json.RawMessage{one}
	}
	refused := 0
	for _, answer := range all {
		var said struct {
			Error *struct {
				Data json.RawMessage `json:"data"`
			} `json:"error"`
		}
		if json.Unmarshal(answer, &said) != nil || said.Error == nil {
			return status
		}
		var data struct {
			Status int `json:"status"`
		}
		refused = http.StatusBadRequest
		if json.Unmarshal(said.Error.Data, &data) == nil && data.Status >= 400 && data.Status <= 599 {
			refused = data.Status
		}
	}
	if refused == 0 { // an empty list
		return status
	}
	return refused
}
