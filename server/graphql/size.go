package graphql

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/headgate-io/headgate/body"
)

// number is a size as a request gives it.
type number struct {
	there bool  // it is given
	open  bool  // as null or a number below 1, of which servers think differently
	value int64 // 0 for none
}

// variable is one of the operation.
type variable struct {
	given     []byte     // as JSON; nil if it is not
	otherwise *ast.Value // its default, or nil
}

// readVariables finds the values of those that an operation has.
func readVariables(defined ast.VariableDefinitionList, values []byte) (map[string]variable, error) {
	all := make(map[string]variable, len(defined))
	for _, d := range defined {
		if _, there := all[d.Variable]; there {
			return nil, refused(body.Twice, "The operation has the variable %s twice.", shown(d.Variable))
		}
		all[d.Variable] = variable{otherwise: d.DefaultValue}
	}
	if len(values) == 0 {
		return all, nil
	}
	fault := body.Members(values, func(name, value []byte) body.Fault {
		v, there := all[string(name)]
		switch {
		case !there:
			return body.None
		case v.given != nil:
			return body.Twice
		}
		v.given = value
		all[string(name)] = v
		return body.None
	})
	if fault != body.None {
		return nil, refused(fault, "The variables are not one JSON object with each name once.")
	}
	return all, nil
}

// size is how long the list is that a field returns, or those beneath that it says the size of.
func (w *walk) size(f *ast.Field, d *field, on *typ) (int64, error) {
	given, size := 0, int64(0)
	for _, s := range d.sizes {
		n := number{}
		if a := f.Arguments.ForName(s.path[0]); a != nil {
			var err error
			if n, err = w.literal(a.Value, s.path[1:], s.within); err != nil {
				return 0, notASize(err, on, d, s)
			}
		}
		if n.value > 0 && !n.open {
			given++
			size = max(size, n.value)
			continue
		}
		otherwise, err := w.literal(s.otherwise, s.path[1:], s.within) // the schema's
		if err != nil {
			return 0, notASize(err, on, d, s)
		}
		size = max(size, n.value, otherwise.value)
		if n.open || otherwise.open {
			size = max(size, d.assumed)
		}
	}
	if d.one && (given > 1 || given == 0 && size == 0) {
		return 0, refused(body.Missing, "%s.%s has %d of the arguments that say how long it is, want one: %s.", on.name,
			d.name, given, d.sizeNames())
	}
	if given > 0 || d.fixed || d.lists == 0 && d.passes == nil {
		return cmp.Or(size, d.assumed), nil
	}
	size = max(size, cmp.Or(size, d.assumed))
	for _, a := range f.Arguments {
		if d.args[a.Name].lists {
			size = max(size, w.longest(a.Value))
		}
	}
	return size, nil
}

// longest is how many elements the longest list in a value has.
func (w *walk) longest(v *ast.Value) (n int64) {
	if v == nil {
		return 0
	}
	if v.Kind == ast.Variable {
		if n, known := w.lists[v.Raw]; known {
			return n
		}
		of := w.variables[v.Raw]
		n = max(longestJSON(of.given, 0), w.longest(of.otherwise))
		w.lists[v.Raw] = n
		return n
	}
	if v.Kind == ast.ListValue {
		n = int64(len(v.Children))
	}
	for _, child := range v.Children {
		n = max(n, w.longest(child.Value))
	}
	return n
}

// mostNested is how deep lists are looked for in the values of variables: each level is read again.
const mostNested = 4

func longestJSON(v []byte, depth int) int64 {
	if len(v) == 0 || depth == mostNested {
		return 0
	}
	own, within := int64(0), int64(0)
	look := func(value []byte) body.Fault {
		within = max(within, longestJSON(value, depth+1))
		return body.None
	}
	switch v[0] { // which was read before, as a part of the variables
	case '[':
		_ = body.Elements(v, func(value []byte) body.Fault {
			own++
			return look(value)
		})
	case '{':
		_ = body.Members(v, func(_, value []byte) body.Fault { return look(value) })
	}
	return max(own, within)
}

func (d *field) sizeNames() (names string) {
	for i, s := range d.sizes {
		if i > 0 {
			names += " or "
		}
		names += s.path[0]
		for _, name := range s.path[1:] {
			names += "." + name
		}
	}
	return names
}

func notASize(err error, on *typ, d *field, s sizing) error {
	if err != errNoSize {
		return err
	}
	return refused(body.Kind, "%s.%s has an argument %s that is no number.", on.name, d.name, s.path[0])
}

var errNoSize = refused(body.Kind, "A size is no number.")

// literal reads the size at a path of a value in the document.
func (w *walk) literal(v *ast.Value, path []string, within *ast.Value) (number, error) {
	switch {
	case v == nil:
		return number{}, nil
	case v.Kind == ast.NullValue:
		return number{there: true, open: true}, nil
	case v.Kind == ast.Variable:
		return w.variable(v.Raw, path, within)
	case len(path) > 0 && v.Kind == ast.ObjectValue:
		var at *ast.Value
		for _, child := range v.Children {
			if child.Name != path[0] {
				continue
			}
			if at != nil {
				return number{}, refused(body.Twice, "An argument has the field %s twice.", shown(path[0]))
			}
			at = child.Value
		}
		n, err := w.literal(at, path[1:], within)
		if err == nil && !n.there && len(path) == 1 { // also of a variable that nobody gives
			return w.literal(within, nil, nil)
		}
		return n, err
	case len(path) > 0:
		return number{}, errNoSize
	case v.Kind == ast.IntValue, v.Kind == ast.FloatValue:
		return parse(v.Raw)
	case v.Kind == ast.StringValue, v.Kind == ast.BlockValue:
		return parseText(v.Raw)
	}
	return number{}, errNoSize
}

// wanted is a size that a value of a variable says.
type wanted struct {
	name, path string
	within     *ast.Value
}

// variable is literal for a variable, whose value is read once for all fields that have it.
func (w *walk) variable(name string, path []string, within *ast.Value) (n number, err error) {
	key := wanted{name, strings.Join(path, "."), within}
	n, known := w.sizes[key]
	if known {
		return n, nil
	}
	if n, err = w.valueOf(name, path, within); err == nil { // else it is refused
		w.sizes[key] = n
	}
	return n, err
}

func (w *walk) valueOf(name string, path []string, within *ast.Value) (number, error) {
	v, there := w.variables[name]
	if !there {
		return number{}, refused(body.Missing, "The operation has no variable %s.", shown(name))
	}
	n := number{}
	if v.given != nil {
		var err error
		if n, err = w.json(v.given, path, within); err != nil || n.value > 0 {
			return n, err
		}
		if string(v.given) != "null" {
			return n, nil
		}
	}
	// Some take null for nothing.
	otherwise, err := w.literal(v.otherwise, path, within)
	return number{n.there || otherwise.there, n.open || otherwise.open, otherwise.value}, err
}

// json is literal for a value of a variable.
func (w *walk) json(v []byte, path []string, within *ast.Value) (number, error) {
	switch c := v[0]; {
	case c == 'n':
		return number{there: true, open: true}, nil
	case len(path) > 0 && c == '{':
		var at []byte
		fault := body.Members(v, func(name, value []byte) body.Fault {
			switch {
			case string(name) != path[0]:
				return body.None
			case at != nil:
				return body.Twice
			}
			at = value
			return body.None
		})
		if fault != body.None {
			return number{}, refused(fault, "A variable has the field %s twice.", shown(path[0]))
		}
		if at == nil && len(path) == 1 {
			return w.literal(within, nil, nil)
		}
		if at == nil {
			return number{}, nil
		}
		return w.json(at, path[1:], within)
	case len(path) > 0:
		return number{}, errNoSize
	case c == '"':
		text, _ := body.Unquote(v)
		return parseText(text)
	case c == '-' || '0' <= c && c <= '9':
		return parse(string(v))
	}
	return number{}, errNoSize
}

// parse reads a number of GraphQL or JSON, whose forms are the same. A fraction counts as the next whole number.
func parse(text string) (number, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil && math.IsInf(value, 0) {
		err = nil // beyond what a float holds
	}
	if err != nil {
		return number{}, errNoSize
	}
	size := int64(math.Ceil(max(0, min(value, 1<<40))))
	return number{true, size == 0, size}, nil
}

// parseText reads a number that stands in quotes, as clients write what is larger than an Int.
func parseText(text string) (number, error) {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return number{}, errNoSize
		}
	}
	return parse(text)
}
