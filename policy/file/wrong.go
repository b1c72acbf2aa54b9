package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
)

// unknown reports a field that does not exist and skips its value.
func (d *decoder) unknown(where string, rule int, field, want string) error {
	if field == "rps_limit" {
		want = "limit"
	}
	t, err := d.tokens.Token()
	if err != nil {
		return err
	}
	if err := d.skip(t); err != nil {
		return err
	}
	return d.wrong(where, rule, show(field), "no field of this format", want)
}

// refuse reports a value that started with token t and skips the rest of it.
func (d *decoder) refuse(where string, rule int, field string, t json.Token, want string) error {
	value := ""
	switch t := t.(type) {
	case string:
		value = quote(t)
	case json.Number:
		value = clip.To(string(t), mostQuoted)
	case json.Delim:
		value = "a list"
		if t == '{' {
			value = "an object"
		}
	case nil:
		value = "null"
	default:
		value = fmt.Sprint(t)
	}
	if err := d.skip(t); err != nil {
		return err
	}
	return d.problem(codeOf(where, field), where, rule, field, value, want)
}

// codeOf is the code of a wrong value: the one that a table's or a program's
// same mistake has.
func codeOf(where, field string) string {
	switch {
	case field == "it":
		return "file"
	case where == "rules":
		return field
	case where == "projects", where == "ignore":
		return where
	}
	return "file"
}

// skip reads up to the end of a value that started with token t. It counts
// instead of calling itself, so depth costs no stack.
func (d *decoder) skip(t json.Token) error {
	depth := 0
	for {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth <= 0 {
			return nil
		}
		var err error
		if t, err = d.tokens.Token(); err != nil {
			return err
		}
	}
}

// wrong notes a problem, and ends the reading when there are too many.
func (d *decoder) wrong(where string, rule int, field, value, want string) error {
	return d.problem("file", where, rule, field, value, want)
}

// problem is wrong with a code of its own.
func (d *decoder) problem(code, where string, at int, field, value, want string) error {
	rule := -1
	if at >= 0 {
		if where == "rules" {
			rule = at
		}
		where = fmt.Sprintf("%s[%d]", where, at)
	}
	d.problems = append(d.problems, policy.Problem{
		Code: code, Rule: rule, Source: d.source, Line: d.line(), Where: where, Field: field, Value: value, Want: want,
	})
	if len(d.problems) >= maxProblems {
		return errTooMany
	}
	return nil
}

// line reports the line of what was read last.
func (d *decoder) line() int {
	return 1 + bytes.Count(d.data[:min(int(d.tokens.InputOffset()), len(d.data))], []byte("\n"))
}

// syntax reports where reading had to end.
func (d *decoder) syntax(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errTooMany):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it ends too early")
	case errors.As(err, &syntax):
		err = errors.New(syntax.Error())
	}
	return policy.Problem{
		Code: "file", Rule: -1, Source: d.source, Line: d.line(), Where: "document",
		Field: "it", Value: "no JSON (" + strings.ReplaceAll(err.Error(), "\n", " ") + ")", Want: "a JSON document",
	}
}

// show makes a field's name safe to print.
func show(field string) string {
	for i := 0; i < len(field); i++ {
		if c := field[i]; c <= ' ' || c > '~' {
			return quote(field)
		}
	}
	if field == "" {
		return `""`
	}
	return clip.To(field, mostQuoted)
}

func quote(s string) string { return strconv.Quote(clip.To(s, mostQuoted)) }

// mostQuoted is how many bytes of a file a message quotes.
const mostQuoted = 100
