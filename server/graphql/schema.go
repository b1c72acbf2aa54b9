package graphql

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
)

// The bounds of Options.
const (
	MostDepth   = 500
	MostTokens  = 100_000
	MostBreadth = MostTokens
	MostCost    = 1_000_000_000
	MostSize    = 1_000_000_000
	MostParts   = 1000

	// MostSchemaBytes is how long a schema may be.
	MostSchemaBytes = 16 << 20
)

// Options say what counts. The zero value is a safe default.
type Options struct {
	// Costs are what objects of a type cost, "Report", or what a field costs each time it is asked for beside
	// the objects that it returns, "Query.search"; in place of @cost. 0 to 1,000,000,000. An interface or a
	// union costs what the dearest of its types does, at least.
	Costs map[string]float64

	// Sizes are how long lists are that no argument says the length of, by field, "Query.tags". 1 to 1,000,000,000.
	Sizes map[string]int64

	// ListSize is for all other lists. Default 10.
	ListSize int64

	// SizeArguments are the arguments that say how long a list is, where the schema has no @listSize. Default first,
	// last and limit.
	SizeArguments []string

	MaxCost    int64 // of a request; default 1000
	MaxDepth   int   // fields within each other; default 15
	MaxBreadth int   // fields beside each other, also by fragments and aliases; default 100
	MaxTokens  int   // of all documents of a request; default 5000
	MaxParts   int   // operations in an array; default 10. 1 refuses arrays.

	// Introspection is what each __schema and __type costs. Default 10; below 0 they are refused.
	Introspection int64

	// Persisted is what a request costs that names a document by an ID or a hash, in place of holding it.
	// Default 0: it is refused.
	Persisted int64

	// Upgrades lets pass requests for another protocol, such as WebSocket, that hold no document. They cost what their
	// endpoint does, and nobody looks at what follows. Default false: they are refused.
	Upgrades bool
}

// The defaults of Options.
const (
	DefaultListSize      = 10
	DefaultCost          = 1000
	DefaultDepth         = 15
	DefaultBreadth       = 100
	DefaultTokens        = 5000
	DefaultParts         = 10
	DefaultIntrospection = 10
)

// DefaultSizeArguments returns those of Options.
func DefaultSizeArguments() []string { return []string{"first", "last", "limit"} }

// amount is a cost in thousandths, as weights may be fractions. It stays at most where sums would be more.
type amount int64

const (
	unit amount = 1000
	most amount = 1 << 60
)

func (a amount) plus(b amount) amount { return min(most, a+b) }

func (a amount) times(b int64) amount {
	if a != 0 && b > int64(most/a) {
		return most
	}
	return a * amount(b)
}

// whole is a in tokens, rounded up.
func (a amount) whole() int64 { return int64((a + unit - 1) / unit) }

// typ is a type of the schema.
type typ struct {
	name   string
	leaf   bool // a scalar or an enum
	meta   bool // of the schema about itself
	weight amount
	fields map[string]*field
}

// field is one of a type.
type field struct {
	name  string
	own   amount // each time it is asked for
	of    *typ
	lists int // within each other that it returns; 0 is none
	args  map[string]argument

	sizes   []sizing // arguments that say how long
	one     bool     // of which exactly one must stand there
	assumed int64    // how long, if none says it
	fixed   bool     // somebody has said so of this field
	passes  *sized   // the size is that of lists right beneath, not of this one; nil if it is
}

// argument is one of a field.
type argument struct {
	weight amount
	lists  bool // it may hold lists, of IDs for one: what a field returns for them may be as many
}

// sizing is the way to a size: an argument, and fields of what it holds.
type sizing struct {
	path      []string
	otherwise *ast.Value // of the argument, if it has a default
	within    *ast.Value // of the last of the fields
}

// sized are the fields beneath one that have its size: those with a name, or all lists that say nothing of theirs.
type sized struct{ names map[string]bool }

var allLists = &sized{}

// Pricer prices requests by a schema.
type Pricer struct {
	options Options
	types   map[string]*typ
	roots   map[ast.Operation]*typ

	portions *portions // nil unless somebody asks what costs are made of
}

// directives are those of the specification, for schemas that use them and do not declare them.
const directives = `
directive @cost(weight: String!) on ARGUMENT_DEFINITION | ENUM | FIELD_DEFINITION | INPUT_FIELD_DEFINITION | OBJECT | SCALAR
directive @listSize(assumedSize: Int, slicingArguments: [String!], sizedFields: [String!],
  requireOneSlicingArgument: Boolean = true) on FIELD_DEFINITION
`

// New returns a Pricer by a schema in the schema definition language, or an error that names all that is wrong. name is
// that of the schema's file, for errors.
func New(name, schema string, o Options) (*Pricer, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if len(schema) > MostSchemaBytes {
		return nil, fmt.Errorf("%s has %d bytes, want %d at most", name, len(schema), MostSchemaBytes)
	}
	source := &ast.Source{Name: name, Input: schema}
	sources := []*ast.Source{validator.Prelude, source}
	declared, err := parser.ParseSchema(source)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	for definition := range strings.SplitSeq(strings.TrimSpace(directives), "\ndirective ") {
		definition = "directive " + strings.TrimPrefix(definition, "directive ")
		_, directive, _ := strings.Cut(definition, "@")
		directive, _, _ = strings.Cut(directive, "(")
		if declared.Directives.ForName(directive) == nil {
			sources = append(sources, &ast.Source{Name: "@" + directive, Input: definition})
		}
	}
	loaded, err := validator.LoadSchema(sources...)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if loaded.Query == nil {
		return nil, fmt.Errorf("schema: %s has no type Query, want one, or schema { query: … }", name)
	}
	c := compiler{schema: loaded, Pricer: &Pricer{options: o, types: map[string]*typ{},
		roots: map[ast.Operation]*typ{}}, sets: map[string]*sized{}}
	return c.compile()
}

// complete fills in the defaults and checks the rest.
func (o *Options) complete() error {
	o.ListSize = cmp.Or(o.ListSize, DefaultListSize)
	o.MaxCost, o.MaxDepth = cmp.Or(o.MaxCost, DefaultCost), cmp.Or(o.MaxDepth, DefaultDepth)
	o.MaxBreadth, o.MaxTokens = cmp.Or(o.MaxBreadth, DefaultBreadth), cmp.Or(o.MaxTokens, DefaultTokens)
	o.MaxParts, o.Introspection = cmp.Or(o.MaxParts, DefaultParts), cmp.Or(o.Introspection, DefaultIntrospection)
	if len(o.SizeArguments) == 0 {
		o.SizeArguments = DefaultSizeArguments()
	}
	var errs []error
	between := func(name string, value, low, high int64) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("%s is %d, want %d to %d", name, value, low, high))
		}
	}
	between("ListSize", o.ListSize, 1, MostSize)
	between("MaxCost", o.MaxCost, 1, MostCost)
	between("MaxDepth", int64(o.MaxDepth), 1, MostDepth)
	between("MaxBreadth", int64(o.MaxBreadth), 1, MostBreadth)
	between("MaxTokens", int64(o.MaxTokens), 1, MostTokens)
	between("MaxParts", int64(o.MaxParts), 1, MostParts)
	between("Introspection", o.Introspection, -1, MostCost)
	between("Persisted", o.Persisted, 0, MostCost)
	return errors.Join(errs...)
}

// compiler makes a Pricer of a schema.
type compiler struct {
	*Pricer
	schema *ast.Schema
	sets   map[string]*sized // by their names
	errs   []error
}

func (c *compiler) wrong(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// wrongIn is wrong for a directive that stands at what has a name.
func (c *compiler) wrongIn(d *ast.Directive, name, format string, args ...any) {
	c.wrong("%s:%d: @%s of %s: %s", d.Position.Src.Name, d.Position.Line, d.Name, name, fmt.Sprintf(format, args...))
}

func (c *compiler) compile() (*Pricer, error) {
	names := slices.Sorted(maps.Keys(c.schema.Types))
	for _, name := range names {
		def := c.schema.Types[name]
		t := &typ{name: name, leaf: def.IsLeafType(), meta: strings.HasPrefix(name, "__")}
		if def.IsCompositeType() {
			t.weight = unit
		}
		t.weight = c.weight(def.Directives, t.weight, "type "+name)
		if cost, ok := c.options.Costs[name]; ok {
			t.weight = c.cost(name, cost)
		}
		if t.leaf || def.IsCompositeType() {
			c.types[name] = t
		}
	}
	for _, name := range names {
		if def := c.schema.Types[name]; def.IsCompositeType() {
			c.fields(c.types[name], def)
		}
	}
	for _, name := range names {
		if def := c.schema.Types[name]; def.IsAbstractType() {
			c.abstract(c.types[name], def)
		}
	}
	c.settings()
	for operation, def := range map[ast.Operation]*ast.Definition{ast.Query: c.schema.Query,
		ast.Mutation: c.schema.Mutation, ast.Subscription: c.schema.Subscription} {
		if def != nil {
			c.roots[operation] = c.types[def.Name]
		}
	}
	return c.Pricer, errors.Join(c.errs...)
}

// settings finds those that name what the schema does not have.
func (c *compiler) settings() {
	for _, name := range slices.Sorted(maps.Keys(c.options.Costs)) {
		of, at, isField := strings.Cut(name, ".")
		t := c.types[of]
		if t == nil || isField && t.fields[at] == nil {
			c.wrong("costs has %q, want a type that the schema has, such as User, or a field, such as Query.users",
				name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.options.Sizes)) {
		of, at, _ := strings.Cut(name, ".")
		switch t := c.types[of]; {
		case t == nil || t.fields[at] == nil || t.fields[at].lists == 0:
			c.wrong("list_sizes has %q, want a field that the schema has and that is a list, such as Query.users",
				name)
		case c.options.Sizes[name] < 1 || c.options.Sizes[name] > MostSize:
			c.wrong("list_sizes[%s] is %d, want 1 to %d", name, c.options.Sizes[name], int64(MostSize))
		}
	}
	for _, name := range c.options.SizeArguments {
		if !slices.Contains(DefaultSizeArguments(), name) && !c.hasArgument(name) {
			c.wrong("size_arguments has %q, want an argument that some field of the schema has, such as first", name)
		}
	}
}

func (c *compiler) hasArgument(name string) bool {
	for _, t := range c.types {
		for _, f := range t.fields {
			if _, ok := f.args[name]; ok {
				return true
			}
		}
	}
	return false
}

func (c *compiler) fields(t *typ, def *ast.Definition) {
	t.fields = make(map[string]*field, len(def.Fields)+1)
	t.fields["__typename"] = &field{name: "__typename", of: c.types["String"]}
	for _, d := range def.Fields {
		name := t.name + "." + d.Name
		f := &field{name: d.Name, of: c.types[d.Type.Name()], assumed: c.options.ListSize,
			args: make(map[string]argument, len(d.Arguments))}
		for of := d.Type; of.Elem != nil; of = of.Elem {
			f.lists++
		}
		own := amount(0)
		if f.of.leaf && c.isRoot(def) {
			own = unit // else a hundred logins that return a word would cost nothing
		}
		f.own = c.weight(d.Directives, own, name)
		if cost, ok := c.options.Costs[name]; ok {
			f.own = c.cost(name, cost)
		}
		for _, a := range d.Arguments {
			f.args[a.Name] = argument{c.weight(a.Directives, 0, name+"("+a.Name+")"), c.holdsLists(a.Type)}
		}
		for _, a := range f.args {
			if a.lists && f.lists == 0 && !f.of.leaf {
				f.passes = allLists
			}
		}
		if directive := d.Directives.ForName("listSize"); directive != nil {
			c.listSize(f, d, directive, name)
		} else {
			c.bySizeArguments(f, d)
		}
		if size, ok := c.options.Sizes[name]; ok {
			f.assumed, f.fixed = size, true
		}
		t.fields[d.Name] = f
	}
}

func (c *compiler) isRoot(def *ast.Definition) bool {
	return def == c.schema.Query || def == c.schema.Mutation || def == c.schema.Subscription
}

// bySizeArguments finds out by the names of arguments how long a list is, or those beneath.
func (c *compiler) bySizeArguments(f *field, d *ast.FieldDefinition) {
	for _, a := range d.Arguments {
		def := c.schema.Types[a.Type.Name()]
		if a.Type.Elem != nil || def == nil || def.Kind != ast.Scalar ||
			slices.Contains([]string{"String", "ID", "Boolean"}, def.Name) ||
			!slices.Contains(c.options.SizeArguments, a.Name) {
			continue
		}
		f.sizes = append(f.sizes, sizing{path: []string{a.Name}, otherwise: a.DefaultValue})
	}
	if len(f.sizes) > 0 && f.lists == 0 && !f.of.leaf {
		f.passes = allLists
	}
}

// listSize does what the directive of this name says.
func (c *compiler) listSize(f *field, d *ast.FieldDefinition, directive *ast.Directive, name string) {
	f.one, f.passes = true, nil
	for _, a := range directive.Arguments {
		switch a.Name {
		case "assumedSize":
			if a.Value.Kind == ast.NullValue {
				continue
			}
			size, err := strconv.ParseInt(a.Value.Raw, 10, 64)
			if err != nil || size < 0 || size > MostSize {
				c.wrongIn(directive, name, "assumedSize is %s, want 0 to %d", a.Value.Raw, int64(MostSize))
			}
			f.assumed, f.fixed = max(1, size), true
		case "slicingArguments":
			for _, text := range texts(a.Value) {
				path := strings.Split(text, ".")
				argument := d.Arguments.ForName(path[0])
				if argument == nil || len(path) > 4 {
					c.wrongIn(directive, name, "slicingArguments has %q, want an argument of the field", text)
					continue
				}
				within, ok := c.reach(argument.Type, path[1:])
				if !ok {
					c.wrongIn(directive, name, "slicingArguments has %q, want an argument that is a number, such as "+
						"first, or the way to a field of one that is, such as page.size", text)
				}
				f.sizes = append(f.sizes, sizing{path, argument.DefaultValue, within})
			}
		case "sizedFields":
			of := c.schema.Types[d.Type.Name()]
			for _, text := range texts(a.Value) {
				if of.Fields.ForName(text) == nil || of.Fields.ForName(text).Type.Elem == nil {
					c.wrongIn(directive, name, "sizedFields has %q, want a field of %s that is a list", text, of.Name)
				}
			}
			f.passes = c.set(texts(a.Value))
		case "requireOneSlicingArgument":
			f.one = a.Value.Raw != "false"
		}
	}
	f.one = f.one && len(f.sizes) > 0
}

// reach follows fields of input objects to a size, and returns the default of the last.
func (c *compiler) reach(t *ast.Type, path []string) (within *ast.Value, ok bool) {
	for _, name := range path {
		def := c.schema.Types[t.Name()]
		if t.Elem != nil || def.Kind != ast.InputObject || def.Fields.ForName(name) == nil {
			return nil, false
		}
		t, within = def.Fields.ForName(name).Type, def.Fields.ForName(name).DefaultValue
	}
	return within, t.Elem == nil && c.schema.Types[t.Name()].Kind == ast.Scalar
}

// holdsLists reports whether a value of a type may have lists in it; of a scalar that the schema defines nobody knows.
func (c *compiler) holdsLists(t *ast.Type) bool {
	if t.Elem != nil {
		return true
	}
	switch def := c.schema.Types[t.Name()]; {
	case def.Kind == ast.Enum:
		return false
	case def.Kind == ast.Scalar:
		return !def.BuiltIn
	}
	return true
}

// set is one for each choice of names.
func (c *compiler) set(names []string) *sized {
	if len(names) == 0 {
		return nil
	}
	names = slices.Sorted(slices.Values(names))
	key := strings.Join(names, " ")
	if c.sets[key] == nil {
		s := &sized{names: map[string]bool{}}
		for _, name := range names {
			s.names[name] = true
		}
		c.sets[key] = s
	}
	return c.sets[key]
}

// texts are those of a list, or of one text, which GraphQL takes for a list of one.
func texts(v *ast.Value) (all []string) {
	if v.Kind == ast.StringValue || v.Kind == ast.BlockValue {
		return []string{v.Raw}
	}
	for _, child := range v.Children {
		all = append(all, child.Value.Raw)
	}
	return all
}

// abstract makes an interface or a union as dear as the dearest of its types.
func (c *compiler) abstract(t *typ, def *ast.Definition) {
	possible := c.schema.GetPossibleTypes(def)
	for _, p := range possible {
		one := c.types[p.Name]
		t.weight = max(t.weight, one.weight)
		for name, f := range t.fields {
			other := one.fields[name]
			if other == nil || other == f {
				continue
			}
			f.own, f.assumed, f.fixed = max(f.own, other.own), max(f.assumed, other.assumed), f.fixed || other.fixed
			for name, a := range f.args {
				a.weight = max(a.weight, other.args[name].weight)
				f.args[name] = a
			}
			if len(f.sizes) == 0 && f.passes == nil {
				f.sizes, f.passes, f.one = other.sizes, other.passes, other.one
			}
		}
	}
}

// weight is what @cost says, or else.
func (c *compiler) weight(on ast.DirectiveList, otherwise amount, name string) amount {
	directive := on.ForName("cost")
	if directive == nil {
		return otherwise
	}
	argument := directive.Arguments.ForName("weight")
	if argument == nil { // another directive of this name
		return otherwise
	}
	weight, err := strconv.ParseFloat(argument.Value.Raw, 64)
	if err != nil || !(weight >= 0 && weight <= MostCost) {
		c.wrongIn(directive, name, "weight is %q, want a number from 0 to %d", argument.Value.Raw, int64(MostCost))
		return 0
	}
	return amountOf(weight)
}

// cost is what Options say.
func (c *compiler) cost(name string, weight float64) amount {
	if !(weight >= 0 && weight <= MostCost) {
		c.wrong("costs[%s] is %v, want 0 to %d", name, weight, int64(MostCost))
		return 0
	}
	return amountOf(weight)
}

func amountOf(weight float64) amount { return amount(math.Ceil(weight * float64(unit))) }
