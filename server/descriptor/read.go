package descriptor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/rate"
)

// Read reads configurations: files, and the .yaml and .yml files of folders. The
// error names each fault with its file, line, field and value, and what would be
// right.
func Read(paths ...string) (*Limits, error) { return read(false, paths) }

// ReadMerged is Read for configurations of which several may have one domain: it has the descriptors
// of all of them.
func ReadMerged(paths ...string) (*Limits, error) { return read(true, paths) }

func read(merge bool, paths []string) (*Limits, error) {
	r := reader{limits: &Limits{domains: map[string]*node{}}, places: map[string]string{}, merge: merge}
	for _, path := range paths {
		files, err := filesAt(path)
		if err != nil {
			r.errs = append(r.errs, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				r.errs = append(r.errs, err)
				continue
			}
			r.file = file
			r.documents(text)
		}
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return r.limits, nil
}

func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries { // sorted by name
		// Kubernetes mounts each file as a link, beside folders whose names begin with a dot.
		if ext := filepath.Ext(e.Name()); (ext == ".yaml" || ext == ".yml") && e.Name()[0] != '.' {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no .yaml file, want one", path)
	}
	return files, nil
}

// reader collects limits and faults.
type reader struct {
	limits *Limits
	places map[string]string // of domains, where they stand
	merge  bool              // a domain may stand in several places
	file   string
	errs   []error
}

func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s", r.file, n.Line, fmt.Sprintf(format, args...)))
}

func (r *reader) place(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.file, n.Line) }

func (r *reader) documents(text []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var document yaml.Node
		err := decoder.Decode(&document)
		switch {
		case errors.Is(err, io.EOF) && n == 0: // as it is while somebody writes it, and then nothing would be limited
			r.errs = append(r.errs, fmt.Errorf("%s is empty, want a domain", r.file))
			return
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			r.errs = append(r.errs, fmt.Errorf("%s: %s", r.file, strings.TrimPrefix(err.Error(), "yaml: ")))
			return
		}
		r.domain(document.Content[0])
	}
}

func (r *reader) domain(n *yaml.Node) {
	fields, ok := r.fields(n, "a domain", "name", "domain", "descriptors")
	if !ok {
		return
	}
	name := r.text(fields["domain"])
	if name == "" {
		r.wrong(n, "domain is missing, want the one that Envoy's filter names")
		return
	}
	if first := r.places[name]; first != "" && !r.merge {
		r.wrong(fields["domain"], "domain is %q, which stands at %s too, want each once", name, first)
		return
	}
	r.places[name] = r.place(n)
	root := r.limits.domains[name]
	if root == nil {
		root = newNode()
		r.limits.domains[name] = root
	}
	r.descriptors(fields["descriptors"], root, name, nil)
}

// descriptors reads the children of a node, which stands at path.
func (r *reader) descriptors(list *yaml.Node, under *node, path string, shared []string) {
	if absent(list) {
		return
	}
	if list.Kind != yaml.SequenceNode {
		r.wrong(list, "descriptors is %s, want a list", kindOf(list))
		return
	}
	for _, n := range list.Content {
		r.descriptor(resolved(n), under, path, shared)
	}
}

func (r *reader) descriptor(n *yaml.Node, under *node, path string, shared []string) {
	fields, ok := r.fields(n, "a descriptor", "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata")
	if !ok {
		return
	}
	key, value := r.text(fields["key"]), r.text(fields["value"])
	if key == "" {
		r.wrong(n, "key is missing, want the one of an entry that Envoy sends")
		return
	}
	path += "/" + key
	if value != "" {
		path += "=" + value
	}
	next := newNode()
	next.place = r.place(n)
	wild := strings.Contains(value, "*")
	shares := ""
	if r.flag(fields["share_threshold"]) {
		if !wild {
			r.wrong(fields["share_threshold"], "share_threshold is true for the value %q, want a value with *", value)
		}
		shares = value
	}
	var twin *node
	switch {
	case wild:
		if i := slices.IndexFunc(under.wild, func(w wildcard) bool {
			return w.key == key &&
				w.value == value
		}); i >= 0 {
			twin = under.wild[i].node
		}
		under.wild = append(under.wild, wildcard{key, value, next})
	case value == "":
		twin = under.defaults[key]
		under.defaults[key] = next
	default:
		twin = under.exact[Entry{key, value}]
		under.exact[Entry{key, value}] = next
	}
	if twin != nil {
		r.wrong(n, "key is %q with the value %q, as at %s, want each once", key, value, twin.place)
		return
	}
	shared = append(slices.Clip(shared), shares)
	if !absent(fields["rate_limit"]) {
		next.limit = r.limit(fields["rate_limit"], path)
		if next.limit != nil {
			next.limit.Shadow, next.limit.Quota, next.limit.shared = r.flag(fields["shadow_mode"]),
				r.flag(fields["quota_mode"]), shared
			next.limit.Metadata = r.metadata(fields["metadata"])
			r.limits.all = append(r.limits.all, next.limit)
		}
	}
	r.descriptors(fields["descriptors"], next, path, shared)
}

// metadata reads what is passed on as it stands.
func (r *reader) metadata(n *yaml.Node) map[string]any {
	if absent(n) {
		return nil
	}
	var fields map[string]any
	if err := n.Decode(&fields); err != nil || n.Kind != yaml.MappingNode {
		r.wrong(n, "metadata is %s, want a mapping of texts", kindOf(n))
		return nil
	}
	plain, ok := plainOf(fields)
	if !ok {
		r.wrong(n, "metadata has a value that is neither a text, a number, true or false, nor a list or mapping of "+
			"them by texts")
		return nil
	}
	return plain.(map[string]any)
}

// plainOf is a value of YAML as encoding/json would decode it, if it can be written in JSON.
func plainOf(value any) (any, bool) {
	switch v := value.(type) {
	case nil, bool:
		return v, true
	case string:
		return v, utf8.ValidString(v) // what is !!binary may be anything
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			var ok bool
			if all[i], ok = plainOf(v[i]); !ok {
				return nil, false
			}
		}
		return all, true
	case map[string]any:
		all := make(map[string]any, len(v))
		for key := range v {
			var ok bool
			if all[key], ok = plainOf(v[key]); !ok {
				return nil, false
			}
		}
		return all, true
	}
	return nil, false
}

func (r *reader) limit(n *yaml.Node, path string) *Limit {
	fields, ok := r.fields(n, "a rate_limit", "name", "replaces", "unit", "requests_per_unit", "unlimited")
	if !ok {
		return nil
	}
	l := &Limit{
		Path:      path,
		Place:     r.place(n),
		Name:      r.text(fields["name"]),
		Unlimited: r.flag(fields["unlimited"]),
		Replaces:  r.replaces(fields["replaces"], r.text(fields["name"])),
	}
	if l.Unlimited {
		if !absent(fields["unit"]) && r.text(fields["unit"]) != "" {
			r.wrong(fields["unit"], "unit is %q beside unlimited, want one of both", r.text(fields["unit"]))
		}
		return l
	}
	unit := r.text(fields["unit"])
	if l.Unit = units[strings.ToLower(unit)]; l.Unit == 0 {
		r.wrong(at(fields["unit"], n), "unit is %q, want second, minute, hour, day, week, month or year", unit)
		return nil
	}
	text := r.text(fields["requests_per_unit"])
	requests, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		r.wrong(at(fields["requests_per_unit"], n), "requests_per_unit is %q, want 0 to %d", text,
			uint32(math.MaxUint32))
		return nil
	}
	l.Requests, l.Nothing = uint32(requests), requests == 0
	if l.Nothing {
		return l
	}
	if l.Shape, err = rate.Compile(rate.Limit{Tokens: int64(requests), Per: l.Unit.Duration(),
		Burst: int64(requests)}); err != nil {
		r.wrong(at(fields["requests_per_unit"], n), "requests_per_unit is %d per %s: %v", requests,
			strings.ToLower(unit), err)
		return nil
	}
	return l
}

func (r *reader) replaces(list *yaml.Node, own string) (names []string) {
	if absent(list) {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		r.wrong(list, "replaces is %s, want a list", kindOf(list))
		return nil
	}
	for _, n := range list.Content {
		fields, ok := r.fields(resolved(n), "an element of replaces", "name")
		if !ok {
			continue
		}
		name := r.text(fields["name"])
		if name == "" || name == own {
			r.wrong(n, "name is %q, want that of another limit", name)
			continue
		}
		names = append(names, name)
	}
	return names
}

// fields returns those of a mapping by name, if it is one.
func (r *reader) fields(n *yaml.Node, what string, known ...string) (map[string]*yaml.Node, bool) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, "%s is %s, want a mapping with %s", what, kindOf(n), strings.Join(known, ", "))
		return nil, false
	}
	fields := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolved(n.Content[i+1])
		switch {
		case !slices.Contains(known, name.Value):
			r.wrong(name, "%q is no field of %s, want one of %s", name.Value, what, strings.Join(known, ", "))
		case fields[name.Value] != nil:
			r.wrong(name, "%s stands there twice, want it once", name.Value)
		default:
			fields[name.Value] = value
		}
	}
	return fields, true
}

// text returns a scalar as it is written.
func (r *reader) text(n *yaml.Node) string {
	switch {
	case absent(n):
		return ""
	case n.Kind != yaml.ScalarNode:
		r.wrong(n, "there is %s, want a text", kindOf(n))
		return ""
	}
	return n.Value
}

func (r *reader) flag(n *yaml.Node) bool {
	if absent(n) {
		return false
	}
	var on bool
	if n.Kind != yaml.ScalarNode || n.Decode(&on) != nil {
		r.wrong(n, "there is %q, want true or false", n.Value)
	}
	return on
}

// absent reports whether a field is not there, or null.
func absent(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// at returns n, or where it is missing.
func at(n, missing *yaml.Node) *yaml.Node {
	if n == nil {
		return missing
	}
	return n
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch {
	case absent(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%q", n.Value)
}
