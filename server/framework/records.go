package framework

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

//go:embed scripts/django.py
var djangoScript string

//go:embed scripts/express.cjs
var expressScript string

//go:embed scripts/fastapi.py
var fastapiScript string

// Script is the program that prints the routes of an application, or "" where the framework has a command that does.
// Command says how it is run.
func Script(name string) string {
	return map[string]string{"django": djangoScript, "express": expressScript, "fastapi": fastapiScript}[name]
}

// record is a line that a script prints: a route, or what is none.
type record struct {
	Framework string   `json:"framework"` // django, express, express4 or starlette
	Methods   []string `json:"methods"`   // none for all
	Path      []piece  `json:"path"`
	Left      string   `json:"left"` // why the path is none that can be carried over
}

// piece is a part of a path, as nested lists of routes have it.
type piece struct {
	Text  string            `json:"text"`
	Regex string            `json:"regex"`
	Flags string            `json:"flags"` // i: letter case means nothing
	Where map[string]string `json:"where"` // the expressions of parameters
}

// records reads what a script printed, a line of JSON for each route.
func records(r *report, text string) error {
	if strings.HasPrefix(strings.TrimSpace(text), "{") && strings.Contains(text[:min(len(text), 4096)], `"openapi"`) {
		return fmt.Errorf("%s: is an OpenAPI document: serve reads it by --openapi", r.file)
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if len(line) > maxLine {
			return fmt.Errorf("%s:%d: line has more than %d bytes", r.file, number, maxLine)
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var one record
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		err := d.Decode(&one)
		if err == nil && d.More() {
			err = errors.New("it goes on behind its end")
		}
		if err != nil {
			return fmt.Errorf("%s:%d: is %s, want a line of JSON as the script prints it: %w", r.file, number,
				clip(line), err)
		}
		if err := r.record(number, one); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) record(line int, one record) error {
	pattern := one.pattern()
	if one.Left != "" {
		r.lost(line, "%s: %s", pattern, one.Left)
		return nil
	}
	var parts []part
	anchored := true
	for n, p := range one.Path {
		more, ends, err := one.read(p)
		if err != nil {
			r.lost(line, "%s: %v", pattern, err)
			return nil
		}
		if anchored = ends || p.Regex == ""; anchored && n < len(one.Path)-1 && p.Regex != "" {
			r.lost(line, "%s: an expression ends, and more follows", pattern)
			return nil
		}
		parts = append(parts, more...)
	}
	if !anchored { // whatever begins so
		if n := len(parts) - 1; n < 0 || parts[n].optional != nil || !strings.HasSuffix(parts[n].text, "/") {
			r.lost(line, "%s: its expression has no $ at its end, and no slash before it", pattern)
			return nil
		}
		parts = append(parts, part{optional: []part{{token: token{name: "rest", slash: true}}}})
	}
	ways, err := alternatives(parts)
	if err != nil {
		r.lost(line, "%s: %v", pattern, err)
		return nil
	}
	return r.add(line, one.Methods, pattern, ways)
}

func (one record) read(p piece) (parts []part, anchored bool, err error) {
	switch {
	case p.Regex != "":
		return expression(strings.ReplaceAll(p.Regex, `\Z`, `\z`), strings.Contains(p.Flags, "i"))
	case one.Framework == "express":
		parts, err = colons(p.Text, '{', '}', p.Where)
	case one.Framework == "express4":
		parts, err = express4(p.Text)
	case one.Framework == "django":
		parts, err = angles(p.Text, p.Where)
	case one.Framework == "starlette":
		parts, err = braces(p.Text, p.Where)
	default:
		err = fmt.Errorf("framework is %s, want django, express, express4 or starlette", clip(one.Framework))
	}
	return parts, true, err
}

// pattern is the path as it is shown.
func (one record) pattern() string {
	var b strings.Builder
	for _, p := range one.Path {
		b.WriteString(p.Text + p.Regex)
	}
	if b.Len() > 200 {
		return b.String()[:200] + "..."
	}
	return fmt.Sprintf("%q", b.String())
}

// spring reads the mappings of an actuator.
func spring(r *report, text string) error {
	type condition struct {
		Name    string  `json:"name"`
		Value   *string `json:"value"`
		Negated bool    `json:"negated"`
	}
	type mapping struct {
		Handler   string `json:"handler"`
		Predicate string `json:"predicate"`
		Details   *struct {
			Conditions struct {
				Methods  []string    `json:"methods"`
				Patterns []string    `json:"patterns"`
				Params   []condition `json:"params"`
				Headers  []condition `json:"headers"`
			} `json:"requestMappingConditions"`
		} `json:"details"`
	}
	var doc struct {
		Contexts map[string]struct {
			Mappings struct {
				Servlets map[string][]mapping `json:"dispatcherServlets"`
				Handlers map[string][]mapping `json:"dispatcherHandlers"` // of WebFlux
			} `json:"mappings"`
		} `json:"contexts"`
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("%s: is no JSON, want what /actuator/mappings answers: %w", r.file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: goes on behind its end, want what /actuator/mappings answers", r.file)
	}
	if doc.Contexts == nil {
		return fmt.Errorf("%s: has no contexts, want what /actuator/mappings answers", r.file)
	}
	// In the order of their names, so that the list is the same each time.
	for _, context := range sorted(doc.Contexts) {
		for _, list := range append(sorted(context.Mappings.Servlets), sorted(context.Mappings.Handlers)...) {
			for _, m := range list {
				if m.Details == nil {
					r.lost(0, "%s is served by %s, not by a controller: add lines if clients may ask for it",
						clip(m.Predicate), clip(m.Handler))
					continue
				}
				c := m.Details.Conditions
				query := ""
				for _, p := range c.Params {
					switch {
					case p.Negated:
						r.differs(0, "%s: that there is no parameter %q is not asked for", clip(m.Predicate), p.Name)
					case p.Value != nil:
						query += "&" + p.Name + "=" + *p.Value
					default:
						query += "&" + p.Name + "={" + safe(p.Name) + "}"
					}
				}
				if len(c.Headers) > 0 {
					r.differs(0, "%s: fields of the head are not asked for", clip(m.Predicate))
				}
				if query != "" {
					query = "?" + query[1:]
				}
				for _, p := range c.Patterns {
					parts, err := springPattern(p)
					var ways [][]token
					if err == nil {
						ways, err = alternatives(parts)
					}
					if err != nil {
						r.lost(0, "%s: %v", clip(p), err)
						continue
					}
					from := len(r.routes)
					if err := r.add(0, c.Methods, p+query, ways); err != nil {
						return err
					}
					for i := range r.routes[from:] {
						r.routes[from+i].query = query
					}
				}
			}
		}
	}
	return nil
}

// springPattern reads a PathPattern: {name}, {name:expression}, {*name}, ?, * and **.
func springPattern(text string) (parts []part, err error) {
	if text != "" && text[0] != '/' {
		text = "/" + text
	}
	for text != "" {
		switch {
		case text[0] == '{':
			end := 0
			for depth := 0; end < len(text); end++ {
				if text[end] == '{' {
					depth++
				} else if text[end] == '}' {
					if depth--; depth == 0 {
						break
					}
				}
			}
			if end == len(text) {
				return nil, errors.New("a brace is not closed")
			}
			name, expression, _ := strings.Cut(text[1:end], ":")
			text = text[end+1:]
			if rest, ok := strings.CutPrefix(name, "*"); ok {
				name, expression = rest, ".*"
			}
			p, err := parameter(name, expression)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		case strings.HasPrefix(text, "**"):
			p, _ := parameter("rest", ".*")
			parts, text = append(parts, p), text[2:]
		case text[0] == '*' || text[0] == '?':
			p := part{token: token{name: "part"}}
			alone := strings.HasSuffix(lastText(parts), "/") && (len(text) == 1 || text[1] == '/')
			if text[0] == '?' {
				p, _ = parameter("letter", "[^/]")
			} else if !alone { // beside text, it may be nothing
				p = part{optional: []part{p}}
			}
			parts, text = append(parts, p), text[1:]
		default:
			n := strings.IndexAny(text, "{*?")
			if n < 0 {
				n = len(text)
			}
			parts, text = append(parts, plain(text[:n])), text[n:]
		}
	}
	return parts, nil
}

func lastText(parts []part) string {
	if len(parts) == 0 {
		return ""
	}
	return parts[len(parts)-1].text
}
