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

// notYAML is why a text is none, by what the YAML library said.
func notYAML(text []byte, err error) string {
	if line := notUTF8(text); line > 0 {
		return fmt.Sprintf("line %d: is not UTF-8, want the file saved as UTF-8", line)
	}
	if line := unquotedBrace(text); line > 0 && strings.Contains(err.Error(), "did not find expected ',' or") {
		return fmt.Sprintf("line %d: between brackets or braces a text with { in it wants quotes, such as "+
			`["GET /v1/items/{id}"]`, line)
	}
	if line := tabbed(text); line > 0 && strings.Contains(err.Error(), "found character that cannot start any token") {
		return fmt.Sprintf("line %d: begins with a tab, want spaces", line)
	}
	return oneLine(err)
}

// tabbed is the first line that begins with a tab, behind spaces or none, from 1, or 0.
func tabbed(text []byte) int {
	line := 1
	for one := range bytes.Lines(text) {
		if bytes.HasPrefix(bytes.TrimLeft(one, " "), []byte{'\t'}) && len(bytes.TrimSpace(one)) > 0 {
			return line
		}
		line++
	}
	return 0
}

// braceInList is an item of a list in brackets, or a name in braces, that has a brace in it and no quotes.
var braceInList = regexp.MustCompile(`[\[,{]\s*[^\s"'\[\],{}][^"'\[\],{}]*[^\s:"'\[\],{}]\{`)

// unquotedBrace is the first line with such an item, from 1, or 0. Templates have braces, and YAML takes
// them for its own.
func unquotedBrace(text []byte) int {
	line := 1
	for one := range bytes.Lines(text) {
		if braceInList.Match(one) {
			return line
		}
		line++
	}
	return 0
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

// faultFinder compares a document with the type that it should have, says in
// the words of settings what the YAML library could not read, and leaves that
// out of the document. Aliases can make a small document large, so it looks at
// so many values only.
type faultFinder struct {
	found  []fault
	lines  map[string]int // on which each setting stands
	looked int
}

const (
	mostLooks  = 10_000
	mostFaults = 20
)

// say notes what is wrong with a setting.
func (w *faultFinder) say(n *yaml.Node, setting, format string, args ...any) {
	if len(w.found) < mostFaults {
		w.found = append(w.found, fault{setting, fmt.Sprintf("line %d: ", n.Line) + fmt.Sprintf(format, args...)})
	}
}

// refuse notes a value and leaves it out.
func (w *faultFinder) refuse(n *yaml.Node, setting, want string) {
	w.say(n, setting, "%s is %s, want %s", setting, written(n), want)
	*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line}
}

// others notes what the YAML library says that is no matter of types, such as a name that is there twice.
func (w *faultFinder) others(err error) {
	var refused *yaml.TypeError
	if !errors.As(err, &refused) {
		return // a type of ours has refused its text, which ends the reading
	}
	for _, line := range refused.Errors {
		if !goWords.MatchString(line) && len(w.found) < mostFaults {
			w.found = append(w.found, fault{text: line})
		}
	}
}

func (w *faultFinder) look(n *yaml.Node, t reflect.Type, path string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if w.looked++; w.looked > mostLooks || n.ShortTag() == "!!null" {
		return
	}
	w.lines[path] = max(1, n.Line)
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
		w.say(n, "", "the file is %s, want settings, each as NAME: VALUE", written(n))
	case t.Kind() == reflect.Slice && n.Kind == yaml.ScalarNode:
		w.refuse(n, path, "a list: ["+name(n.Value)+"]")
	case n.Kind != yaml.ScalarNode || n.Decode(reflect.New(t).Interface()) != nil || isFraction(n, t):
		w.refuse(n, path, kindOf(t))
	}
}

// isFraction reports whether the YAML library would cut a number to a whole
// one, as it does without a word.
func isFraction(n *yaml.Node, t reflect.Type) bool {
	return n.ShortTag() == "!!float" && t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64
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
			w.lines[path+key.Value] = key.Line
		case key.ShortTag() == "!!merge":
		case now != "":
			w.say(key, now, "%s is now %s", path+key.Value, now)
		default:
			best := meant(key.Value, names)
			if best == "" && path != "" {
				w.say(key, "", "%s is no setting, want one of %s", path+name(key.Value), strings.Join(names, ", "))
				continue
			}
			if best == "" {
				w.say(key, "", "%s is no setting; docs/settings.md lists them", path+name(key.Value))
				continue
			}
			w.say(key, path+best, "%s is no setting, did you mean %s?", path+name(key.Value), path+best)
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

// meant is the setting that an unknown one was probably meant to be, or none.
func meant(unknown string, names []string) string {
	best, least := "", 1+min(2, len(unknown)/2) // two letters may be wrong, of a short name fewer
	for _, n := range names {
		d := edits.Distance(clip.To(unknown, mostShown), n, least)
		if d >= least && unknown != "" &&
			(strings.HasPrefix(n, unknown+"_") || strings.HasSuffix(n, "_"+unknown)) {
			d = least - 1
		}
		if d < least {
			best, least = n, d
		}
	}
	return best
}
