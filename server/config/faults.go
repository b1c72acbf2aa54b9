package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/internal/edits"
)

// renamed are settings of earlier versions, and what they are called now.
var renamed = map[string]string{"key_header": "api_keys.header"}

// goWords is a complaint of the YAML library that speaks of Go's types.
var goWords = regexp.MustCompile(`cannot unmarshal|not found in type`)

// faults says in the words of settings what the YAML library could not read:
// every one of them, by name, with what would be right.
func faults(text []byte, err error) string {
	var refused *yaml.TypeError
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		if line := notUTF8(text); line > 0 {
			return fmt.Sprintf("line %d: is not UTF-8, want the file saved as UTF-8", line)
		}
		return oneLine(err)
	}
	if !errors.As(err, &refused) {
		refused = &yaml.TypeError{} // a type of ours has refused its text, which ends the reading
	}
	var w faultFinder
	w.look(document.Content[0], reflect.TypeFor[Config](), "")
	for _, line := range refused.Errors {
		if !goWords.MatchString(line) {
			w.found = append(w.found, line)
		}
	}
	if len(w.found) == 0 {
		return oneLine(err)
	}
	return strings.Join(w.found, "; ")
}

// notUTF8 is the first line that is not UTF-8, from 1, or 0.
func notUTF8(text []byte) int {
	line := 1
	for one := range bytes.Lines(text) {
		if !utf8.Valid(one) {
			return line
		}
		line++
	}
	return 0
}

// faultFinder compares a document with the type that it should have. Aliases
// can make a small document large, so it looks at so many values only.
type faultFinder struct {
	found  []string
	looked int
}

const (
	mostLooks  = 10_000
	mostFaults = 20
)

func (w *faultFinder) say(n *yaml.Node, format string, args ...any) {
	if len(w.found) < mostFaults {
		w.found = append(w.found, fmt.Sprintf("line %d: ", n.Line)+fmt.Sprintf(format, args...))
	}
}

func (w *faultFinder) look(n *yaml.Node, t reflect.Type, path string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if w.looked++; w.looked > mostLooks || n.ShortTag() == "!!null" {
		return
	}
	want := kindOf(t)
	switch {
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		w.fields(n, t, path)
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			w.look(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case t.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			w.look(n.Content[i+1], t.Elem(), fmt.Sprintf("%s[%s]", path, name(n.Content[i].Value)))
		}
	case path == "":
		w.say(n, "the file is %s, want settings, each as NAME: VALUE", written(n))
	case t.Kind() == reflect.Slice && n.Kind == yaml.ScalarNode:
		w.say(n, "%s is %s, want a list: [%s]", path, written(n), name(n.Value))
	case n.Kind != yaml.ScalarNode || n.Decode(reflect.New(t).Interface()) != nil || isFraction(n, t):
		w.say(n, "%s is %s, want %s", path, written(n), want)
	}
}

// isFraction reports whether the YAML library would cut a number to a whole
// one, as it does without a word.
func isFraction(n *yaml.Node, t reflect.Type) bool {
	return n.ShortTag() == "!!float" && t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
}

// cut says which numbers of a document that could be read were cut to whole
// ones.
func cut(text []byte) error {
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		return nil // read before, and empty
	}
	var w faultFinder
	w.look(document.Content[0], reflect.TypeFor[Config](), "")
	if len(w.found) == 0 {
		return nil
	}
	return errors.New(strings.Join(w.found, "; "))
}

func (w *faultFinder) fields(n *yaml.Node, t reflect.Type, path string) {
	names, types := settings(t)
	if path != "" {
		path += "."
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		field, ok := types[key.Value]
		switch now := renamed[path+key.Value]; {
		case ok:
			w.look(n.Content[i+1], field, path+key.Value)
		case key.ShortTag() == "!!merge":
		case now != "":
			w.say(key, "%s is now %s", path+key.Value, now)
		default:
			w.say(key, "%s is no setting%s", path+name(key.Value), meant(key.Value, path, names))
		}
	}
}

// settings are the names of a struct's settings, in order, and their types.
func settings(t reflect.Type) (names []string, types map[string]reflect.Type) {
	types = map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if option == "inline" {
			inner, of := settings(f.Type)
			names = append(names, inner...)
			maps.Copy(types, of)
			continue
		}
		names, types[name] = append(names, name), f.Type
	}
	return names, types
}

// kindOf says what a value of a type looks like.
func kindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 250ms, 10s or 1h30m"
	case t == reflect.TypeFor[Bytes]():
		return "an amount of memory such as 64MiB"
	case t == reflect.TypeFor[Percent]():
		return "a share from 1% to 99%, such as 50%"
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "settings inside it, each as NAME: VALUE"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Float64:
		return "a number such as 0.1"
	}
	return "a whole number"
}

// mostShown is how many bytes of what a file says a message repeats.
const mostShown = 60

// written is a value as an error shows it.
func written(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	return fmt.Sprintf("%q", clip.To(n.Value, mostShown))
}

// name is a name as it was written, on one line.
func name(s string) string {
	if quoted := strconv.Quote(clip.To(s, mostShown)); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// meant names the setting that an unknown one was probably meant to be.
func meant(unknown, path string, names []string) string {
	best, least := "", 1+min(2, len(unknown)/2) // two letters may be wrong, of a short name fewer
	for _, n := range names {
		d := edits.Distance(clip.To(unknown, mostShown), n, least)
		if d >= least && unknown != "" && strings.HasPrefix(n, unknown+"_") {
			d = least - 1
		}
		if d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return "; docs/settings.md lists them"
	}
	return ", did you mean " + path + best + "?"
}
