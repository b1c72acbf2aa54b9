package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Source is the file that settings were read from. It knows on which line each stands.
type Source struct {
	path   string
	lines  map[string]int // by setting
	faults []fault        // of what could not be read
}

// fault is a setting that could not be read.
type fault struct {
	setting string // which it is, or was meant to be; "" is not known
	text    string // with its line
}

// Open is Read that also returns the file, which is nil if nothing of it could be read. If only some settings could
// not, the error has all of those, a line each, and the Config has the others.
func Open(path string) (Config, *Source, error) {
	text, err := readSettings(path)
	if err != nil {
		return Default(), nil, fmt.Errorf("config %s: %w", path, err)
	}
	return parse(path, text)
}

// maxBytes is how long a file of settings may be. What is a thousand times as long as those that people write is
// another file by mistake, and to read it as YAML takes a minute for each gigabyte.
const maxBytes = 16 << 20

func readSettings(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, notRead(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, errors.New("is a folder, want a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, fmt.Errorf("is longer than %d MiB, want a file of settings: rules, documents and lists are in "+
			"files of their own", maxBytes>>20)
	}
	return text, nil
}

func parse(path string, text []byte) (Config, *Source, error) {
	c := Default()
	refuse := func(why any) (Config, *Source, error) { return c, nil, fmt.Errorf("config %s: %v", path, why) }
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	fault := decoder.Decode(&c)
	if fault == nil || errors.Is(fault, io.EOF) {
		fault = nil
		if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
			return refuse("holds more than one YAML document, want one")
		}
	}
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil {
		return refuse(notYAML(text, fault))
	}
	s := &Source{path: path, lines: map[string]int{}}
	if len(document.Content) == 0 {
		return c, s, nil
	}
	w := faultFinder{lines: s.lines}
	w.look(document.Content[0], reflect.TypeFor[Config](), "")
	w.others(fault)
	if s.faults = w.found; len(s.faults) == 0 && fault != nil {
		return refuse(oneLine(fault))
	}
	if len(s.faults) == 0 {
		return c, s, nil
	}
	// What was refused is left out of the document now: the rest is read, so that its faults are told as well.
	c = Default()
	if document.Content[0].Decode(&c) != nil {
		return Default(), nil, s.unread()
	}
	return c, s, s.unread()
}

// unread is an error of what could not be read.
func (s *Source) unread() error {
	var errs []error
	for _, f := range s.faults {
		errs = append(errs, fmt.Errorf("config %s: %s", s.path, f.text))
	}
	return errors.Join(errs...)
}

// Given has a setting stand no longer in the file: a flag says it.
func (s *Source) Given(setting string) {
	if s != nil {
		delete(s.lines, setting)
	}
}

// Complete is c.Complete, and the error begins with what could not be read of the file. What is wrong on a line of it
// has the line. What may be wrong only because something could not be read is not told. A nil Source is no file.
func (s *Source) Complete(c *Config) error {
	err := c.Complete()
	if s == nil {
		return err
	}
	errs := []error{s.unread()}
	if err == nil {
		return errs[0]
	}
	for text := range strings.SplitSeq(err.Error(), "\n") {
		field, _, _ := strings.Cut(text, " is ")
		if slices.ContainsFunc(s.faults, func(f fault) bool { return f.explains(field, text) }) {
			continue
		}
		if line := s.line(field); line > 0 {
			text = fmt.Sprintf("config %s: line %d: %s", s.path, line, text)
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// within reports whether a setting is another one, or in it.
func within(setting, whole string) bool {
	rest, ok := strings.CutPrefix(setting, whole)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// explains reports whether a setting that could not be read may be all that is wrong with another one, by what is said
// of that.
func (f fault) explains(field, text string) bool {
	return f.setting != "" && (within(field, f.setting) || within(f.setting, field) ||
		regexp.MustCompile(`(^|[^\w.])`+regexp.QuoteMeta(f.setting)+`($|[^\w.])`).MatchString(text))
}

// line is where a setting stands, or the smallest group that has it; 0 for nowhere.
func (s *Source) line(field string) int {
	best, line := "", 0
	for setting, at := range s.lines {
		if within(field, setting) && len(setting) > len(best) {
			best, line = setting, at
		}
	}
	return line
}
