package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/policy"
)

// Locate fills in the lines of problems that policy.Lint found in a document
// that Decode read from data. A problem points at its field, or, where the
// field is not written, at its rule. Decode itself keeps no lines, because
// documents without problems need none.
func Locate(data []byte, problems policy.Problems) {
	l := locator{data: data, tokens: json.NewDecoder(bytes.NewReader(data)), line: 1, at: map[string]int{}}
	for i := range problems {
		if path := pathOf(&problems[i]); problems[i].Line == 0 && path != "" {
			l.at[path], l.at[path+"."+problems[i].Field] = 0, 0
		}
	}
	if len(l.at) == 0 {
		return
	}
	l.tokens.UseNumber()
	_ = l.value("", 0) // what cannot be read has no lines, and Decode has said so
	for i := range problems {
		p := &problems[i]
		path := pathOf(p)
		if p.Line != 0 || path == "" {
			continue
		}
		if p.Line = l.at[path+"."+p.Field]; p.Line == 0 {
			p.Line = l.at[path]
		}
	}
}

// pathOf is the place of a problem: rules[3], ignore[0], projects["acme"].
func pathOf(p *policy.Problem) string {
	if p.Rule >= 0 {
		return fmt.Sprintf("rules[%d]", p.Rule)
	}
	for _, list := range []string{"projects", "ignore", "rules"} {
		if strings.HasPrefix(p.Where, list) {
			return p.Where
		}
	}
	return ""
}

// locator walks a document and notes the lines of the paths in at.
type locator struct {
	data   []byte
	tokens *json.Decoder
	offset int // of what line counts
	line   int
	at     map[string]int
}

// token reads a token and follows the lines.
func (l *locator) token() (json.Token, error) {
	t, err := l.tokens.Token()
	end := min(int(l.tokens.InputOffset()), len(l.data))
	l.line += bytes.Count(l.data[l.offset:end], []byte("\n"))
	l.offset = end
	return t, err
}

func (l *locator) note(path string) {
	if seen, wanted := l.at[path]; wanted && seen == 0 {
		l.at[path] = l.line
	}
}

// maxDepth is as deep as a document goes: a field of a rule in the list. What is
// deeper is skipped without depth.
const maxDepth = 3

// value reads a value that stands at path.
func (l *locator) value(path string, depth int) error {
	t, err := l.token()
	if err != nil {
		return err
	}
	l.note(path)
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return l.skip()
	}
	for i := 0; l.tokens.More(); i++ {
		inner := ""
		if open == '{' {
			key, err := l.token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			switch {
			case depth == 0:
				inner = name
			case path == "projects":
				inner = path + "[" + strconv.Quote(name) + "]"
			default:
				inner = path + "." + name
			}
			l.note(inner)
			if path == "projects" {
				l.note(inner + ".tier")
			}
		} else if depth == 1 {
			inner = path + "[" + strconv.Itoa(i) + "]"
		}
		if err := l.value(inner, depth+1); err != nil {
			return err
		}
	}
	_, err = l.token()
	return err
}

// skip reads to the end of a list or object that has begun.
func (l *locator) skip() error {
	for depth := 1; depth > 0; {
		t, err := l.token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}
