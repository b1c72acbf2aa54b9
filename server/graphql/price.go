package graphql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/headgate-io/headgate/body"
)

// Cost is what is known of an operation before it is executed.
type Cost struct {
	Tokens  int64 // that it costs, 1 at least
	Depth   int   // fields within each other, at most
	Breadth int   // fields beside each other, at most
	Roots   int   // of those, at its root
}

// Refused says why nothing is executed.
type Refused struct {
	Fault body.Fault
	Why   string // for its client
}

func (r *Refused) Error() string { return r.Why }

func refused(fault body.Fault, format string, args ...any) error {
	return &Refused{fault, fmt.Sprintf(format, args...)}
}

// shown is a name that a client wrote, short.
func shown(name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	return strconv.Quote(name)
}

// Document prices one operation of a document: the one with a name, or the only one. variables is a JSON object, or
// nothing. The error is a Refused.
func (p *Pricer) Document(query, operation string, variables []byte) (Cost, error) {
	return p.document(query, operation, variables, p.options.MaxTokens)
}

func (p *Pricer) document(query, operation string, variables []byte, tokens int) (Cost, error) {
	if !plain(query) {
		return Cost{}, refused(body.Syntax,
			"The document has control characters, or marks that some take for the end of a line.")
	}
	// No limit to the parser is none, and a text of many lines takes more memory there than it has bytes.
	if tokens < 1 || strings.Count(query, "\n")+strings.Count(query, "\r") > tokens {
		return Cost{}, refused(body.Many, "The documents have more than %d tokens, or lines.", p.options.MaxTokens)
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: query}, tokens)
	if err != nil {
		if tokensOf(query, tokens) > tokens {
			return Cost{}, refused(body.Many, "The documents have more than %d tokens, or lines.",
				p.options.MaxTokens)
		}
		return Cost{}, refused(body.Syntax, "The document cannot be read: %s", shown(err.Error()))
	}
	op, err := chosen(doc, operation)
	if err != nil {
		return Cost{}, err
	}
	w := &walk{Pricer: p, fragments: make(map[string]*ast.FragmentDefinition, len(doc.Fragments)),
		priced: map[spread]*sums{}, lists: map[string]int64{}, sizes: map[wanted]number{}}
	for _, f := range doc.Fragments {
		if w.fragments[f.Name] != nil {
			return Cost{}, refused(body.Twice, "The document has the fragment %s twice.", shown(f.Name))
		}
		if len(f.VariableDefinition) > 0 {
			return Cost{}, refused(body.Syntax, "The fragment %s has variables.", shown(f.Name))
		}
		w.fragments[f.Name] = f
	}
	if w.variables, err = readVariables(op.VariableDefinitions, variables); err != nil {
		return Cost{}, err
	}
	root := p.roots[op.Operation]
	if root == nil {
		return Cost{}, refused(body.Schema, "The schema has no %s.", op.Operation)
	}
	all, err := w.set(op.SelectionSet, root, nil)
	if err != nil {
		return Cost{}, err
	}
	p.portions.told(root, &all)
	c := Cost{Tokens: max(1, root.weight.plus(all.cost).whole()), Depth: all.depth,
		Breadth: max(w.breadth, all.breadth), Roots: all.breadth}
	switch o := &p.options; {
	case c.Depth > o.MaxDepth:
		return c, refused(body.Depth, "The operation is %d fields deep, of %d at most.", c.Depth, o.MaxDepth)
	case c.Breadth > o.MaxBreadth:
		return c, refused(body.Many, "The operation asks for %d fields beside each other, of %d at most.", c.Breadth,
			o.MaxBreadth)
	}
	return c, nil
}

// plain reports whether a document has nothing that is the end of a line, or of a text, to some and not to others.
func plain(query string) bool {
	for _, c := range query {
		switch {
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c == 0x7f,
			c == 0x85, c == 0x2028, c == 0x2029, c == 0xfeff:
			return false
		}
	}
	return true
}

// tokensOf counts the tokens of a document, up to one more than limit.
func tokensOf(query string, limit int) (n int) {
	l := lexer.New(&ast.Source{Input: query})
	for n <= limit {
		if t, err := l.ReadToken(); err != nil || t.Kind == lexer.EOF {
			break
		}
		n++
	}
	return n
}

// chosen is the operation of a document that is executed.
func chosen(doc *ast.QueryDocument, name string) (op *ast.OperationDefinition, err error) {
	if len(doc.Operations) > 1 && name == "" {
		return nil, refused(body.Missing, "The document has %d operations, and the request names none.",
			len(doc.Operations))
	}
	for _, o := range doc.Operations {
		if o.Name != name && name != "" {
			continue
		}
		if op != nil {
			return nil, refused(body.Twice, "The document has the operation %s twice.", shown(name))
		}
		op = o
	}
	if op == nil {
		return nil, refused(body.Missing, "The document has no operation %s.", shown(name))
	}
	return op, nil
}

// sums are what is known of fields beside each other.
type sums struct {
	cost    amount // but for what follows
	per     amount // for each element of lists whose size stands above
	depth   int
	breadth int                // how many there are
	mirror  int                // lists of types within each other, in what a schema says of itself
	of      map[string]portion // what cost and per are made of, by field; nil unless somebody asks
}

// spread is a fragment where sizes may stand above it.
type spread struct {
	name string
	from *sized
}

// walk goes through one operation.
type walk struct {
	*Pricer
	fragments map[string]*ast.FragmentDefinition
	priced    map[spread]*sums // nil while it is being done
	variables map[string]variable
	lists     map[string]int64  // the longest in the values of variables, of those that were read
	sizes     map[wanted]number // the same of sizes
	breadth   int               // the most so far
}

// set adds up what fields of a type cost. from says which of them have their size from above.
func (w *walk) set(selections ast.SelectionSet, on *typ, from *sized) (all sums, err error) {
	for _, s := range selections {
		var one sums
		switch s := s.(type) {
		case *ast.Field:
			one, err = w.field(s, on, from)
		case *ast.InlineFragment:
			of := on
			if s.TypeCondition != "" {
				if of, err = w.composite(s.TypeCondition); err != nil {
					return sums{}, err
				}
			}
			one, err = w.set(s.SelectionSet, of, from)
		case *ast.FragmentSpread:
			one, err = w.fragment(s.Name, from)
		}
		if err != nil {
			return sums{}, err
		}
		all.cost, all.per = all.cost.plus(one.cost), all.per.plus(one.per)
		all.depth, all.mirror = max(all.depth, one.depth), max(all.mirror, one.mirror)
		all.breadth = min(1<<30, all.breadth+one.breadth)
		all.add(&one)
	}
	return all, nil
}

func (w *walk) composite(name string) (*typ, error) {
	if t := w.types[name]; t != nil && !t.leaf {
		return t, nil
	}
	return nil, refused(body.Schema, "The schema has no type %s with fields.", shown(name))
}

// fragment is priced once, however often it is used.
func (w *walk) fragment(name string, from *sized) (sums, error) {
	key := spread{name, from}
	if done, ok := w.priced[key]; ok {
		if done == nil {
			return sums{}, refused(body.Depth, "The fragment %s holds itself.", shown(name))
		}
		return *done, nil
	}
	def := w.fragments[name]
	if def == nil {
		return sums{}, refused(body.Missing, "The document has no fragment %s.", shown(name))
	}
	on, err := w.composite(def.TypeCondition)
	if err != nil {
		return sums{}, err
	}
	w.priced[key] = nil
	all, err := w.set(def.SelectionSet, on, from)
	if err != nil {
		return sums{}, err
	}
	w.priced[key] = &all
	return all, nil
}

// mostMirror is how many lists of types may stand within each other in what a schema says of itself, as with
// graphql-js: every tool asks for what types hold, and an answer grows with each more by all types.
const mostMirror = 2

func (w *walk) field(f *ast.Field, on *typ, from *sized) (sums, error) {
	d := on.fields[f.Name]
	if d == nil {
		return sums{}, refused(body.Schema, "The type %s has no field %s.", on.name, shown(f.Name))
	}
	if d.of.leaf != (len(f.SelectionSet) == 0) {
		want := "fields of it have to be asked for"
		if d.of.leaf {
			want = "it has none"
		}
		return sums{}, refused(body.Schema, "%s.%s is a %s: %s.", on.name, d.name, d.of.name, want)
	}
	own, err := w.arguments(f, d, on)
	if err != nil {
		return sums{}, err
	}
	size, err := w.size(f, d, on)
	if err != nil {
		return sums{}, err
	}
	inner, err := w.set(f.SelectionSet, d.of, d.passes)
	if err != nil {
		return sums{}, err
	}
	w.breadth = max(w.breadth, inner.breadth)
	all := sums{cost: own, depth: inner.depth + 1, breadth: 1, mirror: inner.mirror}
	if d.of.meta || on.meta {
		all.cost = inner.cost
		if all, err = w.introspection(all, d, on); err == nil && w.portions != nil {
			all.of = inner.of
			all.add(&sums{of: map[string]portion{on.name + "." + d.name: {cost: all.cost - inner.cost}}})
		}
		return all, err
	}
	// An element costs what its type weighs and what is asked of it, and there are so many.
	many := int64(1)
	each := func(weight, cost, per amount) amount {
		one := weight.plus(cost).plus(per.times(size))
		for range d.lists - 1 { // those within the outermost
			one = one.times(w.options.ListSize)
		}
		return one.times(many)
	}
	above := false
	switch {
	case d.lists == 0:
	case from.has(d):
		above = true
	case d.passes != nil:
		many = w.options.ListSize
	default:
		many = size
	}
	if all.cost = own; above {
		all.per = each(d.of.weight, inner.cost, inner.per)
	} else {
		all.cost = own.plus(each(d.of.weight, inner.cost, inner.per))
	}
	if w.portions != nil {
		all.of = portionsOf(on.name+"."+d.name, own, d.of.weight, above, inner.of, each)
	}
	return all, nil
}

// has reports whether a list has its size from above.
func (s *sized) has(d *field) bool {
	if s == allLists {
		return !d.fixed && len(d.sizes) == 0
	}
	return s != nil && s.names[d.name]
}

// introspection adds what a field about the schema itself costs: as much for each list of what types hold as for the
// first look.
func (w *walk) introspection(all sums, d *field, on *typ) (sums, error) {
	price := amount(w.options.Introspection) * unit
	switch {
	case price < 0:
		return sums{}, refused(body.Schema, "The schema is not told.")
	case !on.meta:
		all.cost = all.cost.plus(price)
	case d.name == "fields", d.name == "interfaces", d.name == "possibleTypes", d.name == "inputFields":
		all.mirror++
		all.cost = all.cost.plus(price)
	}
	if all.mirror > mostMirror {
		return sums{}, refused(body.Depth,
			"What is asked of the schema holds more than %d lists of types within each other.", mostMirror)
	}
	return all, nil
}

// arguments adds what they cost to what the field does.
func (w *walk) arguments(f *ast.Field, d *field, on *typ) (own amount, err error) {
	own = d.own
	var seen map[string]bool
	for i, a := range f.Arguments {
		of, ok := d.args[a.Name]
		if !ok {
			return 0, refused(body.Schema, "%s.%s has no argument %s.", on.name, d.name, shown(a.Name))
		}
		own = own.plus(of.weight)
		if i == 0 && len(f.Arguments) > 1 {
			seen = make(map[string]bool, min(len(f.Arguments), len(d.args)+1))
		}
		if seen[a.Name] {
			return 0, refused(body.Twice, "%s.%s has the argument %s twice.", on.name, d.name, shown(a.Name))
		}
		if seen != nil {
			seen[a.Name] = true
		}
	}
	return own, nil
}
