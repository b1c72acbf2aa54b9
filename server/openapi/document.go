package openapi

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/clip"
)

// methods are the keys of a path item that declare an operation. "query" came
// with OpenAPI 3.2; "trace" is not in Swagger 2.0. A document that has one
// before its time means the method all the same.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"}

// document reads the operations of one parsed document.
type document struct {
	file    string
	root    node
	servers bool // false in Swagger 2.0, which has basePath instead
	ops     []Operation

	warnings []Warning // of parts
	faults   []error   // of the whole
	more     int       // faults beyond maxFaults
	part     bool      // what is read is a part that can be left out
}

// maxFaults is how many faults of one document are shown. They mostly repeat.
const maxFaults = 20

// parse reads the operations of one document.
func parse(file string, data []byte) ([]Operation, []Warning, error) {
	root, err := parseText(file, data)
	if err != nil {
		return nil, nil, err
	}
	d := document{file: file, root: root}
	d.read()
	if d.more > 0 {
		d.faults = append(d.faults, fmt.Errorf("%s: %d faults more", file, d.more))
	}
	return d.ops, d.warnings, errors.Join(d.faults...)
}

// parseText decides between JSON and YAML by the text, not by the name: what
// begins like JSON and is not named YAML is JSON, so that its faults are
// reported in JSON's terms.
func parseText(file string, data []byte) (node, error) {
	named := strings.TrimSuffix(strings.ToLower(file), ".gz")
	isYAML := strings.HasSuffix(named, ".yaml") || strings.HasSuffix(named, ".yml")
	if first := data[skipSpace(data, 0)]; first == '{' || first == '[' || strings.HasSuffix(named, ".json") {
		root, offset, err := parseJSON(data)
		if err == nil {
			return root, nil
		}
		if !isYAML {
			line, column := position(data, offset)
			return nil, fmt.Errorf("%s:%d:%d: is not valid JSON: %w", file, line, column, err)
		}
	}
	root, line, err := parseYAML(data)
	switch {
	case err != nil && line > 0:
		return nil, fmt.Errorf("%s:%d: %w", file, line, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return root, nil
}

func (d *document) read() {
	top, ok := d.mapping(d.root, "the document", `a mapping that begins with "openapi" or "swagger"`)
	if !ok || !d.version(top) {
		return
	}
	bases := d.documentBases(top)
	paths := find(top, "paths")
	if paths == nil {
		if find(top, "webhooks") == nil && find(top, "components") == nil {
			d.fault(d.root, "paths is missing, want a mapping of paths to their operations")
		}
		return // since 3.1 a document may hold webhooks or components alone
	}
	items, ok := d.mapping(paths, "paths", "a mapping of paths to their operations")
	if !ok {
		return
	}
	d.part = true
	for _, m := range items {
		if !strings.HasPrefix(m.key, "x-") {
			d.path(m, bases)
		}
	}
}

var (
	version3 = regexp.MustCompile(`^3\.\d+(\.\d+)?([-+].*)?$`)
	version2 = regexp.MustCompile(`^2(\.0)?$`)
)

// version finds out which specification the document follows.
func (d *document) version(top []member) bool {
	openapi, swagger := find(top, "openapi"), find(top, "swagger")
	switch {
	case openapi != nil && swagger != nil:
		d.fault(swagger, "openapi and swagger are both set, want one of them")
	case openapi != nil && !version3.MatchString(openapi.text()):
		d.fault(openapi, "openapi is %s, want a version 3.x such as \"3.1.0\"", shown(openapi))
	case swagger != nil && !version2.MatchString(swagger.text()):
		d.fault(swagger, "swagger is %s, want \"2.0\"", shown(swagger))
	case openapi == nil && swagger == nil:
		d.fault(d.root, "openapi is missing, want an OpenAPI 3.x document (openapi: \"3.1.0\") or a Swagger 2.0 "+
			"one (swagger: \"2.0\")")
	default:
		d.servers = openapi != nil
		return true
	}
	return false
}

// path reads the operations under one path.
func (d *document) path(at member, bases []string) {
	where := "paths " + quoted(at.key)
	if !strings.HasPrefix(at.key, "/") {
		d.faultAt(at.keyAt, "%s does not begin with a slash, want a path such as \"/%s\"", where,
			strings.TrimLeft(shorten(at.key), "./"))
		return
	}
	item, ok := d.pathItem(at.value, where)
	if !ok {
		return
	}
	if servers := find(item, "servers"); servers != nil && d.servers {
		bases = d.serverBases(servers, where+" servers")
	}
	for _, m := range item {
		switch {
		case slices.Contains(methods, m.key):
			d.operation(strings.ToUpper(m.key), at, m, where+" "+m.key, bases)
		case m.key == "additionalOperations" && d.servers: // since OpenAPI 3.2
			more, _ := d.mapping(m.value, where+" additionalOperations", "a mapping of methods to operations")
			for _, m := range more {
				d.operation(m.key, at, m, where+" "+m.key, bases)
			}
		case m.value.kind() == mapping && !strings.HasPrefix(m.key, "x-"):
			// A mapping here was meant as an operation. Left out, its
			// requests would meet no limit.
			d.faultAt(m.keyAt, "%s %s is not a method, want one of %s", where, quoted(m.key),
				strings.Join(methods, ", "))
		}
	}
}

// operation adds one operation under every base path it is served from. Its
// own $ref, if it has one, is not followed: the method is there, and that is
// all that counts.
func (d *document) operation(method string, path, at member, where string, bases []string) {
	op, ok := d.mapping(at.value, where, "an operation")
	if !ok {
		return
	}
	if servers := find(op, "servers"); servers != nil && d.servers {
		bases = d.serverBases(servers, where+" servers")
	}
	var id string
	if n := find(op, "operationId"); n != nil {
		id = n.text()
	}
	key, fragment, _ := strings.Cut(path.key, "#")
	if fragment != "" && strings.HasPrefix(key, "/") {
		d.warnAt(path.keyAt, false, "%s: nobody sends the fragment %s: it is read without", where, quoted("#"+fragment))
	}
	for _, base := range bases {
		t, err := endpoint.ParsePath(method, base+plainNames(key))
		if err != nil {
			d.faultAt(path.keyAt, "%s: %w", where, err)
			return
		}
		d.ops = append(d.ops, Operation{
			Method: method, Path: path.key, BasePath: base, Template: t, OperationID: id, Source: d.file,
		})
	}
}

var (
	parameter    = regexp.MustCompile(`\{[^{}+*]+\}`)
	unusualBytes = regexp.MustCompile(`[^A-Za-z0-9_.\[\]-]`)
)

// plainNames rewrites parameter names to the characters that templates have.
// OpenAPI allows any, {user id} and {größe} too; a name means nothing to
// matching. "+" and "*" are left to be refused: other notations write
// parameters of several segments with them, which here is {name...}.
func plainNames(path string) string {
	return parameter.ReplaceAllStringFunc(path, func(braced string) string {
		return "{" + unusualBytes.ReplaceAllString(braced[1:len(braced)-1], "_") + "}"
	})
}

// maxRefs bounds a chain of references. Nobody writes more than two.
const maxRefs = 16

// pathItem reports the members of a path item, together with those of the path
// items that its $ref leads to inside the document. What the item says itself
// goes before what it refers to.
func (d *document) pathItem(n node, where string) ([]member, bool) {
	var all []member
	for range maxRefs {
		item, ok := d.mapping(n, where, "a path item: a mapping of methods to operations")
		if !ok {
			return nil, false
		}
		for _, m := range item {
			if m.key != "$ref" && find(all, m.key) == nil {
				all = append(all, m)
			}
		}
		ref := find(item, "$ref")
		if ref == nil {
			return all, true
		}
		target, ok := d.local(ref, where)
		if !ok {
			return nil, false
		}
		n = target
	}
	d.fault(n, "%s: $ref leads in a circle, want it to end at a path item", where)
	return nil, false
}

// local finds the target of a path item's $ref inside the document. Which
// methods a path has in another file is not known here, and a path without its
// methods would run without its limits; so such a $ref is a fault.
func (d *document) local(ref node, where string) (node, bool) {
	text := ref.text()
	pointer, ok := strings.CutPrefix(text, "#")
	if !ok {
		d.fault(ref, "%s: $ref is %s, which is outside the document, want the documents bundled into one first",
			where, shown(ref))
		return nil, false
	}
	pointer, err := url.PathUnescape(pointer)
	if err == nil && (pointer == "" || pointer[0] == '/') {
		if n := d.pointed(pointer); n != nil {
			return n, true
		}
	}
	d.fault(ref, "%s: $ref is %s, which is not in the document, want a pointer to a path item", where, shown(ref))
	return nil, false
}

// unescapePointer decodes one step of a JSON pointer (RFC 6901, section 4).
var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// pointed follows a JSON pointer from the root, or reports nil.
func (d *document) pointed(pointer string) node {
	n := d.root
	for pointer != "" {
		var step string
		step, pointer, _ = strings.Cut(pointer[1:], "/")
		if pointer != "" {
			pointer = "/" + pointer
		}
		if n = find(n.members(), unescapePointer.Replace(step)); n == nil {
			return nil
		}
	}
	return n
}

// mapping reports the members of n. It is a fault if n is something else, or
// if a key stands twice: parsers disagree which of the two counts.
func (d *document) mapping(n node, where, want string) ([]member, bool) {
	if n.kind() != mapping {
		d.fault(n, "%s is %s, want %s", where, n.kind(), want)
		return nil, false
	}
	ms := n.members()
	first := make(map[string]int, len(ms))
	for i, m := range ms {
		if j, twice := first[m.key]; twice {
			line, _ := ms[j].keyAt()
			d.faultAt(m.keyAt, "%s: key %s stands twice, first in line %d, want it once", where, quoted(m.key), line)
			continue
		}
		first[m.key] = i
	}
	if len(first) == len(ms) {
		return ms, true
	}
	once := slices.Sorted(maps.Values(first))
	kept := make([]member, len(once))
	for i, j := range once {
		kept[i] = ms[j]
	}
	return kept, true
}

func (d *document) fault(n node, format string, args ...any) {
	d.faultAt(n.at, format, args...)
}

// faultAt notes what is wrong with the document, or with a part of it that is left out for it.
func (d *document) faultAt(at func() (line, column int), format string, args ...any) {
	if d.part {
		d.warnAt(at, true, format, args...)
		return
	}
	if len(d.faults) == maxFaults {
		d.more++
		return
	}
	line, column := at()
	d.faults = append(d.faults, fmt.Errorf("%s:%d:%d: %w", d.file, line, column, fmt.Errorf(format, args...)))
}

func (d *document) warnAt(at func() (line, column int), leftOut bool, format string, args ...any) {
	line, column := at()
	d.warnings = append(d.warnings, Warning{fmt.Sprintf("%s:%d:%d: %v", d.file, line, column,
		fmt.Errorf(format, args...)), leftOut})
}

// shown writes a node's value into a message.
func shown(n node) string {
	if n.kind() != scalar {
		return n.kind().String()
	}
	return quoted(n.text())
}

func quoted(text string) string { return fmt.Sprintf("%q", shorten(text)) }

// shorten keeps a message on a line that people can read.
func shorten(text string) string { return clip.To(text, 80) }
