package graphql_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/graphql"
)

// twin is the slow, obvious price of an operation: every fragment is put in place of its name, each time, and
// each field is asked for with what stands above it. It reads the schema as the library does, values as
// encoding/json does, and adds up in numbers of any size.
type twin struct {
	schema    *ast.Schema
	doc       *ast.QueryDocument
	op        *ast.OperationDefinition
	variables map[string]any
	list      int64
	deep      int
	wide      int
}

// handed is the size that lists of a field's type have from it: those that it names, or all if it names none.
type handed struct {
	size  int64
	names []string
}

func (w *twin) price() *big.Rat {
	root := map[ast.Operation]*ast.Definition{ast.Query: w.schema.Query, ast.Mutation: w.schema.Mutation,
		ast.Subscription: w.schema.Subscription}[w.op.Operation]
	return new(big.Rat).Add(w.weight(root), w.set(w.expand(w.op.SelectionSet, root), nil, 1))
}

// placed is a field with the type that it is one of.
type placed struct {
	*ast.Field
	on *ast.Definition
}

// expand puts fragments in place of their names.
func (w *twin) expand(set ast.SelectionSet, on *ast.Definition) (all []placed) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			all = append(all, placed{s, on})
		case *ast.InlineFragment:
			of := on
			if s.TypeCondition != "" {
				of = w.schema.Types[s.TypeCondition]
			}
			all = append(all, w.expand(s.SelectionSet, of)...)
		case *ast.FragmentSpread:
			def := w.doc.Fragments.ForName(s.Name)
			all = append(all, w.expand(def.SelectionSet, w.schema.Types[def.TypeCondition])...)
		}
	}
	return all
}

func (w *twin) set(fields []placed, from *handed, depth int) *big.Rat {
	sum := new(big.Rat)
	w.wide = max(w.wide, len(fields))
	for _, f := range fields {
		w.deep = max(w.deep, depth)
		sum.Add(sum, w.field(f, from, depth))
	}
	return sum
}

func rat(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

func larger(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// weight is what one object, or one value, weighs; of an interface or a union, the dearest.
func (w *twin) weight(t *ast.Definition) *big.Rat {
	own := new(big.Rat)
	if d := t.Directives.ForName("cost"); d != nil {
		own = rat(d.Arguments.ForName("weight").Value.Raw)
	} else if t.IsCompositeType() {
		own = rat("1")
	}
	if t.IsAbstractType() {
		for _, p := range w.schema.GetPossibleTypes(t) {
			own = larger(own, w.weight(p))
		}
	}
	return own
}

// definitions are those that a field may have.
func (w *twin) definitions(f placed) (all []*ast.FieldDefinition) {
	all = append(all, f.on.Fields.ForName(f.Name))
	if f.on.IsAbstractType() {
		for _, p := range w.schema.GetPossibleTypes(f.on) {
			if d := p.Fields.ForName(f.Name); d != nil {
				all = append(all, d)
			}
		}
	}
	return all
}

func (w *twin) field(f placed, from *handed, depth int) *big.Rat {
	if f.Name == "__typename" {
		return new(big.Rat)
	}
	own, assumed, fixed := new(big.Rat), w.list, false
	defs := w.definitions(f)
	for _, d := range defs {
		one := new(big.Rat)
		if w.schema.Types[d.Type.Name()].IsLeafType() &&
			slices.Contains([]*ast.Definition{w.schema.Query, w.schema.Mutation, w.schema.Subscription}, f.on) {
			one = rat("1")
		}
		if c := d.Directives.ForName("cost"); c != nil {
			one = rat(c.Arguments.ForName("weight").Value.Raw)
		}
		own = larger(own, one)
		if l := d.Directives.ForName("listSize"); l != nil && l.Arguments.ForName("assumedSize") != nil {
			n, _ := strconv.ParseInt(l.Arguments.ForName("assumedSize").Value.Raw, 10, 64)
			assumed, fixed = max(assumed, n), true
			if !f.on.IsAbstractType() {
				assumed = n
			}
		}
	}
	if f.on.IsAbstractType() { // as dear as the dearest
		assumed = 0
		for _, d := range defs {
			n := w.list
			if l := d.Directives.ForName("listSize"); l != nil && l.Arguments.ForName("assumedSize") != nil {
				n, _ = strconv.ParseInt(l.Arguments.ForName("assumedSize").Value.Raw, 10, 64)
			}
			assumed = max(assumed, n)
		}
	}
	d := defs[0]
	for _, a := range f.Arguments {
		if c := d.Arguments.ForName(a.Name).Directives.ForName("cost"); c != nil {
			own = new(big.Rat).Add(own, rat(c.Arguments.ForName("weight").Value.Raw))
		}
	}
	var paths, beneath []string
	directive := d.Directives.ForName("listSize")
	if directive != nil {
		paths, beneath = listed(directive, "slicingArguments"), listed(directive, "sizedFields")
	} else {
		for _, name := range []string{"first", "last", "limit"} {
			if d.Arguments.ForName(name) != nil {
				paths = append(paths, name)
			}
		}
	}
	size, given := int64(0), false
	for _, path := range paths {
		n, said := w.argument(f, d, strings.Split(path, "."), assumed)
		size, given = max(size, n), given || said
	}
	if size == 0 {
		size = assumed
	}
	hold := false
	for _, a := range f.Arguments {
		if t := d.Arguments.ForName(a.Name).Type; t.Elem != nil || w.schema.Types[t.Name()].Kind == ast.InputObject {
			hold = true
			value, _ := w.value(a.Value)
			if !given && !fixed && (len(beneath) > 0 || directive == nil) {
				size = max(size, longest(value))
			}
		}
	}
	lists := 0
	for t := d.Type; t.Elem != nil; t = t.Elem {
		lists++
	}
	of := w.schema.Types[d.Type.Name()]
	var down *handed
	switch {
	case len(beneath) > 0:
		down = &handed{size, beneath}
	case directive == nil && (hold || len(paths) > 0) && lists == 0 && of.IsCompositeType():
		down = &handed{size, nil}
	}
	inner := new(big.Rat).Add(w.weight(of), w.set(w.expand(f.SelectionSet, of), down, depth+1))
	times := int64(1)
	switch {
	case lists == 0:
	case from != nil && (slices.Contains(from.names, f.Name) || from.names == nil && len(paths) == 0 && !fixed):
		times = from.size
	case len(beneath) > 0:
		times = w.list
	default:
		times = size
	}
	for range max(0, lists-1) {
		inner.Mul(inner, new(big.Rat).SetInt64(w.list))
	}
	inner.Mul(inner, new(big.Rat).SetInt64(times))
	return inner.Add(inner, own)
}

func listed(d *ast.Directive, name string) (all []string) {
	if a := d.Arguments.ForName(name); a != nil {
		for _, c := range a.Value.Children {
			all = append(all, c.Value.Raw)
		}
	}
	return all
}

// longest is how many elements the longest list in a value has.
func longest(v any) (n int64) {
	switch v := v.(type) {
	case nullOr:
		return longest(v.otherwise)
	case []any:
		n = int64(len(v))
		for _, one := range v {
			n = max(n, longest(one))
		}
	case map[string]any:
		for _, one := range v {
			n = max(n, longest(one))
		}
	}
	return n
}

// argument is the size at a path, 0 for none. given says that it is one for certain.
func (w *twin) argument(f placed, d *ast.FieldDefinition, path []string, assumed int64) (n int64, given bool) {
	def := d.Arguments.ForName(path[0])
	var value any
	var there bool
	if a := f.Arguments.ForName(path[0]); a != nil {
		value, there = w.value(a.Value)
	}
	n, null := w.at(value, there, def.Type, path[1:])
	given = n > 0 && !null
	if (n == 0 || null) && def.DefaultValue != nil {
		otherwise, _ := w.value(def.DefaultValue)
		m, _ := w.at(otherwise, true, def.Type, path[1:])
		n = max(n, m)
	}
	if null {
		n = max(n, assumed)
	}
	return n, given
}

// nullOr is a null that some servers take for nothing.
type nullOr struct{ otherwise any }

// value is a literal as encoding/json has it. A variable that is null has its default as well.
func (w *twin) value(v *ast.Value) (any, bool) {
	if v.Kind != ast.Variable {
		given, err := v.Value(nil)
		if v.Kind == ast.ObjectValue {
			all := map[string]any{}
			for _, c := range v.Children {
				if one, there := w.value(c.Value); there {
					all[c.Name] = one
				}
			}
			given, err = all, nil
		}
		if err != nil {
			panic(err)
		}
		return given, true
	}
	def := w.op.VariableDefinitions.ForName(v.Raw)
	given, there := w.variables[v.Raw]
	if (!there || given == nil) && def.DefaultValue != nil {
		otherwise, _ := w.value(def.DefaultValue)
		if there {
			otherwise = nullOr{otherwise}
		}
		return otherwise, true
	}
	return given, there
}

func (w *twin) at(v any, there bool, t *ast.Type, path []string) (n int64, null bool) {
	switch v := v.(type) {
	case nil:
		return 0, there
	case nullOr:
		n, _ := w.at(v.otherwise, true, t, path)
		return n, true
	case int64:
		return max(0, v), v <= 0
	case float64:
		return max(0, int64(v)), v <= 0
	case map[string]any:
		f := w.schema.Types[t.Name()].Fields.ForName(path[0])
		inner, there := v[path[0]]
		if !there && f.DefaultValue != nil {
			inner, there = w.value(f.DefaultValue)
		}
		return w.at(inner, there, f.Type, path[1:])
	}
	panic(fmt.Sprintf("%T", v))
}

// writer writes random operations that the schema allows.
type writer struct {
	*rand.Rand
	schema    *ast.Schema
	variables []string // their definitions
	values    []string // as JSON
	fragments []string // the types of those that may be used
}

func (r *writer) pick(of ...string) string { return of[r.IntN(len(of))] }

func (r *writer) set(on *ast.Definition, depth int) string {
	var b strings.Builder
	b.WriteString("{__typename")
	for range r.IntN(4) {
		switch {
		case r.IntN(4) == 0 && len(r.fragments) > 0:
			fmt.Fprintf(&b, " ...F%d", r.IntN(len(r.fragments)))
		case r.IntN(5) == 0:
			possible := r.schema.GetPossibleTypes(on)
			t := possible[r.IntN(len(possible))]
			fmt.Fprintf(&b, " ...on %s%s", t.Name, r.set(t, depth-1))
		case len(on.Fields) > 0:
			b.WriteString(" " + r.field(on.Fields[r.IntN(len(on.Fields))], depth))
		}
	}
	return b.String() + "}"
}

func (r *writer) field(d *ast.FieldDefinition, depth int) string {
	of := r.schema.Types[d.Type.Name()]
	if strings.HasPrefix(d.Name, "__") || of.IsCompositeType() && depth < 1 {
		return "__typename"
	}
	var args []string
	directive := d.Directives.ForName("listSize")
	one := directive != nil && len(listed(directive, "slicingArguments")) > 0 &&
		directive.Arguments.ForName("requireOneSlicingArgument") == nil
	if one {
		names := listed(directive, "slicingArguments")
		args = append(args, names[r.IntN(len(names))]+":"+strconv.Itoa(1+r.IntN(9)))
	}
	for _, a := range d.Arguments {
		slices := directive != nil && slices.Contains(listed(directive, "slicingArguments"), a.Name)
		switch t := a.Type.Name(); {
		case slices && one:
		case r.IntN(3) == 0 && !a.Type.NonNull:
		case t == "Filter" || a.Type.Elem != nil:
			args = append(args, a.Name+":"+r.list(a.Type))
		case t == "Page":
			args = append(args, "page:"+r.page())
		case t == "Boolean":
			args = append(args, a.Name+":true")
		case t == "Int" || t == "BigInt":
			args = append(args, a.Name+":"+r.size())
		default:
			args = append(args, a.Name+`:"x"`)
		}
	}
	text := r.pick("", "", "a:", "b:") + d.Name
	if len(args) > 0 {
		text += "(" + strings.Join(args, " ") + ")"
	}
	text += r.pick("", "", "", " @skip(if:true)")
	if of.IsCompositeType() {
		text += r.set(of, depth-1)
	}
	return text
}

// list is one of IDs, or a filter with some.
func (r *writer) list(t *ast.Type) string {
	ids := strings.Repeat("7 ", r.IntN(40))
	switch as := "[ID!]"; {
	case t.Elem == nil && r.IntN(2) == 0:
		return r.variable("Filter", r.pick("", `={not:{ids:[1 2]}}`), `{"not":{"ids":[`+
			strings.ReplaceAll(strings.TrimSpace(ids), " ", ",")+`]}}`)
	case t.Elem == nil:
		return "{not:{ids:[" + ids + "]}}"
	case r.IntN(2) == 0:
		if t.NonNull {
			as += "!"
		}
		return r.variable(as, r.pick("", "=[1 2 3]"), "["+strings.ReplaceAll(strings.TrimSpace(ids), " ", ",")+"]")
	}
	return "[" + ids + "]"
}

func (r *writer) page() string {
	switch r.IntN(4) {
	case 0:
		return "{}"
	case 1:
		return r.variable("Page", r.pick("", "={size:3}", `={after:"x"}`),
			r.pick("{}", `{"size":8}`, `{"size":null}`, "null"))
	}
	return "{size:" + r.size() + "}"
}

func (r *writer) size() string {
	switch r.IntN(6) {
	case 0:
		return r.pick("null", "0", "-1")
	case 1, 2:
		return r.variable("Int", r.pick("", "=6", "=null"), r.pick("3", "0", "null", "12"))
	}
	return strconv.Itoa(1 + r.IntN(30))
}

func (r *writer) variable(of, otherwise, value string) string {
	name := "v" + strconv.Itoa(len(r.variables))
	r.variables = append(r.variables, "$"+name+":"+of+otherwise)
	if r.IntN(3) > 0 {
		r.values = append(r.values, strconv.Quote(name)+":"+value)
	}
	return "$" + name
}

// document is one with fragments that use those before them.
func (r *writer) document() (doc, variables string) {
	var b strings.Builder
	composite := []string{"User", "Post", "Group", "PostConnection", "Query", "Node", "CommentConnection", "Result"}
	for i := range r.IntN(5) {
		of := r.pick(composite...)
		fmt.Fprintf(&b, " fragment F%d on %s%s", i, of, r.set(r.schema.Types[of], 2))
		r.fragments = append(r.fragments, of)
	}
	root := r.pick("query", "query", "query", "mutation", "subscription")
	set := r.set(map[string]*ast.Definition{"query": r.schema.Query, "mutation": r.schema.Mutation,
		"subscription": r.schema.Subscription}[root], 5)
	if len(r.variables) > 0 {
		root += "(" + strings.Join(r.variables, ",") + ")"
	}
	return root + set + b.String(), "{" + strings.Join(r.values, ",") + "}"
}

func loaded(t testing.TB) *ast.Schema {
	t.Helper()
	schema, err := gqlparser.LoadSchema(&ast.Source{Input: shop +
		`directive @cost(weight: String!) on ARGUMENT_DEFINITION | ENUM | FIELD_DEFINITION | INPUT_FIELD_DEFINITION | OBJECT | SCALAR
		directive @listSize(assumedSize: Int, slicingArguments: [String!], sizedFields: [String!],
			requireOneSlicingArgument: Boolean = true) on FIELD_DEFINITION`})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestRandomOperationsCostWhatTheTwinSays compares the price of random operations with that by putting fragments in
// place of their names.
func TestRandomOperationsCostWhatTheTwinSays(t *testing.T) {
	schema, p := loaded(t), newPricer(t, graphql.Options{MaxDepth: 100, MaxBreadth: 10_000, MaxTokens: 100_000})
	dear, deep := 0, 0
	for seed := range uint64(4000) {
		r := &writer{Rand: rand.New(rand.NewPCG(seed, 17)), schema: schema}
		text, variables := r.document()
		doc, err := parser.ParseQuery(&ast.Source{Input: text})
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		w := &twin{schema: schema, doc: doc, op: doc.Operations[0], list: 10}
		if err := json.Unmarshal([]byte(variables), &w.variables); err != nil {
			t.Fatal(err)
		}
		price := w.price()
		up := new(big.Int).Sub(price.Denom(), big.NewInt(1))
		want := max(1, new(big.Int).Div(up.Add(up, price.Num()), price.Denom()).Int64())
		got, err := p.Document(text, "", []byte(variables))
		if err != nil || got.Tokens != want || got.Depth != w.deep || got.Breadth != w.wide {
			t.Fatalf("seed %d: %s\n%s\ncosts %+v, %v; want %d, %d deep, %d wide", seed, text, variables, got, err, want,
				w.deep, w.wide)
		}
		sum := new(big.Rat)
		for _, portion := range portionsOf(t, p, text, variables) {
			one, _ := new(big.Rat).SetString(strconv.FormatFloat(portion.Cost, 'f', 3, 64))
			sum.Add(sum, one)
		}
		if want < 1<<40 && sum.Cmp(price) != 0 { // beyond, a float64 has no thousandths
			t.Fatalf("seed %d: %s\n%s\nits portions cost %v together, want %v", seed, text, variables, sum, price)
		}
		if want > 1000 {
			dear++
		}
		if w.deep > 4 {
			deep++
		}
	}
	if dear < 200 || deep < 200 {
		t.Errorf("%d operations of more than 1000, %d of more than 4 levels; want 200 of each", dear, deep)
	}
}

// portionsOf are those of a document that is posted.
func portionsOf(t testing.TB, p *graphql.Pricer, text, variables string) []httplimit.Portion {
	t.Helper()
	sent, err := json.Marshal(map[string]any{"query": text, "variables": json.RawMessage(variables)})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/graphql", nil)
	return p.Portions(r, "/graphql", sent)
}

// TestPortionsNameTheDearestFields first, also of what costs too much, and some at most.
func TestPortionsNameTheDearestFields(t *testing.T) {
	var schema, all strings.Builder
	for i := range 30 {
		fmt.Fprintf(&schema, "f%02d(first: Int): [T!] ", i)
		fmt.Fprintf(&all, "f%02d(first: %d) { id } ", i, 100-i)
	}
	p, err := graphql.New("q.graphql", "type Query { "+schema.String()+"} type T { id: ID }",
		graphql.Options{MaxCost: 50})
	if err != nil {
		t.Fatal(err)
	}
	got := portionsOf(t, p, "{ "+all.String()+"}", "{}")
	if len(got) != 21 || got[0] != (httplimit.Portion{What: "Query.f00", Cost: 100}) ||
		got[20] != (httplimit.Portion{What: "all others", Cost: 756}) {
		t.Errorf("%v, want 20 and all others", got)
	}
	if got := portionsOf(t, p, "{ no }", "{}"); got != nil {
		t.Errorf("a document without a price has portions: %v", got)
	}
}

// FuzzDocument: whatever a document is, it has a price of 1 at least or is refused, in bounded time; what is put beside
// an operation makes it no cheaper, and twice as much costs no less.
func FuzzDocument(f *testing.F) {
	schema := loaded(f)
	for seed := range uint64(40) {
		text, variables := (&writer{Rand: rand.New(rand.NewPCG(seed, 18)), schema: schema}).document()
		f.Add(text, variables)
	}
	f.Add(`{...A} fragment A on Query{...B ...B} fragment B on Query{__typename}`, `{}`)
	f.Add(`{__schema{types{fields{type{fields{name}}}}}}`, ``)
	f.Add(`query($n:Int="\u{0}"){users(first:$n){...on Node{id}}} # \u2028`, `{"n":1e999}`)
	p := newPricer(f, graphql.Options{MaxTokens: 2000, MaxBreadth: 2000, MaxDepth: 200})
	f.Fuzz(func(t *testing.T, text, variables string) {
		c, err := p.Document(text, "", []byte(variables))
		if err != nil {
			var why *graphql.Refused
			if !errors.As(err, &why) || why.Fault == body.None || why.Why == "" || len(why.Why) > 512 {
				t.Fatalf("%q: %v is no reason", text, err)
			}
			return
		}
		if c.Tokens < 1 || c.Depth < 1 || c.Breadth < c.Roots || c.Roots < 1 {
			t.Fatalf("%q: %+v", text, c)
		}
		if open := strings.IndexByte(text, '{'); strings.HasPrefix(text, "{") && open == 0 {
			more, err := p.Document("{zz:users(first:3){__typename}"+text[1:], "", []byte(variables))
			if err == nil && more.Tokens < c.Tokens+3 && c.Tokens < 1<<40 {
				t.Fatalf("%q costs %d, and %d with more in it", text, c.Tokens, more.Tokens)
			}
		}
	})
}
