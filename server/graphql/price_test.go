package graphql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/server/graphql"
)

// shop is a schema with all that sizes and weights can be said by.
const shop = `
interface Node { id: ID! related: [Node!] @listSize(assumedSize: 4) }
type User implements Node {
  id: ID!
  name: String
  age: Int @cost(weight: "2.0")
  related: [Node!]
  friends(first: Int, last: Int): [User!]!
  posts(first: Int = 20): PostConnection!
  groups(page: Page = {size: 7}): [Group!] @listSize(slicingArguments: ["page.size"], requireOneSlicingArgument: false)
  grid: [[Point!]!]
}
type Group { title: String members(max: Int, top: Int): [User!] @listSize(slicingArguments: ["max", "top"]) }
input Page { size: Int = 5 after: String }
type Point { x: Float y: Float }
type PostConnection { edges: [PostEdge!]! nodes: [Post!]! total: Int tags: [Tag!] @listSize(assumedSize: 3) }
type PostEdge { cursor: String node: Post! }
type Post implements Node @cost(weight: "3") {
  id: ID! title: String related: [Node!] author: User! tags: [Tag!]
  comments(first: Int!): CommentConnection @listSize(slicingArguments: ["first"], sizedFields: ["items"])
}
type CommentConnection { items: [Comment!] others: [Comment!] }
type Comment { text: String by: User likes: [User!] @listSize(assumedSize: 50) }
type Tag { name: String }
type Report @cost(weight: "0.5") { rows(limit: Int): [Row!]! }
type Row { cells: [String!]! }
union Result = User | Post | Report
type Query {
  me: User
  user(id: ID!, deep: Boolean @cost(weight: "4")): User
  users(first: Int): [User!]!
  node(id: ID!): Node
  search(text: String!, limit: BigInt = 25): [Result!] @cost(weight: 10)
  report: Report
  hello(name: String): String
  ping: String @cost(weight: "0")
  nodes(ids: [ID!]!): [Node]!
  found(ids: [ID!], filter: Filter): PostConnection
}
input Filter { ids: [ID!] not: Filter }
scalar BigInt
type Mutation @cost(weight: "10") {
  rename(name: String!): User
  login(password: String!): Boolean
}
type Subscription { added: Post }
`

func newPricer(t testing.TB, o graphql.Options) *graphql.Pricer {
	t.Helper()
	p, err := graphql.New("shop.graphql", shop, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDocument(t *testing.T) {
	for _, c := range []struct {
		query, operation, variables string
		want                        int64
		fault                       body.Fault
	}{
		{query: `{me{name}}`, want: 2},
		{query: `{__typename}`, want: 1},
		{query: `{me{age}}`, want: 4},
		{query: `query{users(first:20){name}}`, want: 21},
		{query: `{users{name}}`, want: 11},
		{query: `{users(first:3){friends(first:5){name}}}`, want: 1 + 3*(1+5)},
		{query: `{users(first:3){friends(first:5,last:9){name}}}`, want: 1 + 3*(1+9)},
		{query: `{users(first:3){name} more:users(first:4){name}}`, want: 8},
		{query: `{users(first:0){name}}`, want: 11},
		{query: `{users(first:-5){name}}`, want: 11},
		{query: `{users(first:null){name}}`, want: 11},
		{query: `{users(first:2.5){name}}`, want: 4},
		{query: `{users(first:"7"){name}}`, want: 8},
		{query: `{users(first:"seven"){name}}`, fault: body.Kind},
		{query: `{users(first:[7]){name}}`, fault: body.Kind},
		{query: `{users(first:true){name}}`, fault: body.Kind},
		{query: `{users(first:SEVEN){name}}`, fault: body.Kind},
		{query: `{users(first:1,first:9){name}}`, fault: body.Twice},
		{query: `{users(first:99999999999999999999999){name}}`, want: 1 + 1<<40},
		{query: `{users(first:1e400){name}}`, want: 1 + 1<<40},

		// Sizes that are handed down.
		{query: `{me{posts{nodes{title}}}}`, want: 1 + 1 + 1 + 20*3},
		{query: `{me{posts(first:5){nodes{title} edges{node{title}} total}}}`, want: 1 + 1 + 1 + 5*3 + 5*(1+3)},
		{query: `{me{posts(first:5){tags{name}}}}`, want: 1 + 1 + 1 + 3},
		{query: `{me{posts(first:5){...C}}} fragment C on PostConnection{nodes{title} ...D} ` +
			`fragment D on PostConnection{edges{cursor}}`, want: 1 + 1 + 1 + 5*3 + 5},
		{query: `{me{posts(first:5){nodes{comments(first:2){items{text} others{text}}}}}}`,
			want: 3 + 5*(3+1+2+10)},
		{query: `{me{posts(first:5){nodes{comments{items{text}}}}}}`, fault: body.Missing},

		// @listSize.
		{query: `{me{groups{title}}}`, want: 2 + 7},
		{query: `{me{groups(page:{size:3}){title}}}`, want: 2 + 3},
		{query: `{me{groups(page:{size:30}){title}}}`, want: 2 + 30},
		{query: `{me{groups(page:{after:"x"}){title}}}`, want: 2 + 5},
		{query: `query($p:Page){me{groups(page:$p){title}}}`, variables: `{"p":{"size":31}}`, want: 2 + 31},
		{query: `query($p:Page){me{groups(page:$p){title}}}`, variables: `{"p":{"size":31,"size":1}}`, fault: body.Twice},
		{query: `query($p:Page){me{groups(page:$p){title}}}`, variables: `{"p":7}`, fault: body.Kind},
		{query: `query($n:Int){me{groups(page:{size:$n}){title}}}`, variables: `{"n":32}`, want: 2 + 32},
		{query: `{me{groups(page:{size:1,size:9}){title}}}`, fault: body.Twice},
		{query: `{me{groups{members(max:2){name}}}}`, want: 2 + 7*(1+2)},
		{query: `{me{groups{members{name}}}}`, fault: body.Missing},
		{query: `{me{groups{members(max:2,top:3){name}}}}`, fault: body.Missing},
		{query: `{me{grid{x}}}`, want: 2 + 100},

		// Lists in arguments.
		{query: `{nodes(ids:["a" "b"]){id}}`, want: 1 + 10*3},
		{query: `query($i:[ID!]!){nodes(ids:$i){id}}`, variables: `{"i":[` + strings.Repeat("7,", 29) + `7]}`,
			want: 1 + 30*3},
		{query: `query($i:ID!){nodes(ids:[` + strings.Repeat("$i ", 20) + `]){id}}`, variables: `{"i":7}`,
			want: 1 + 20*3},
		{query: `query($f:Filter){found(filter:$f){nodes{title} tags{name}}}`,
			variables: `{"f":{"not":{"ids":[` + strings.Repeat("7,", 29) + `7]}}}`, want: 1 + 1 + 30*3 + 3},
		{query: `{found(filter:{not:{ids:["` + strings.Repeat(`a" "`, 29) + `"]}}){nodes{title}}}`, want: 2 + 30*3},

		// Weights.
		{query: `{user(id:1){name}}`, want: 2},
		{query: `{user(id:1,deep:true){name}}`, want: 6},
		{query: `{report{rows(limit:3){cells}}}`, want: 5}, // 1 + 0.5 + 3, rounded up
		{query: `{search(text:"x"){...on Report{rows{cells}}}}`, want: 1 + 10 + 25*(3+10)},
		{query: `{search(text:"x",limit:"2"){__typename}}`, want: 1 + 10 + 2*3},
		{query: `mutation{rename(name:"x"){name}}`, want: 11},
		{query: `subscription{added{title}}`, want: 1 + 3},
		{query: `{hello ping a:hello(name:"x") b:__typename}`, want: 3},
		{query: `mutation{a:login(password:"1") b:login(password:"2") c:login(password:"3")}`, want: 10 + 3},
		{query: `{node(id:1){related{id}}}`, want: 1 + 3 + 10*3},

		// Variables.
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"n":30}`, want: 31},
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"n":null}`, want: 11},
		{query: `query($n:Int){users(first:$n){name}}`, want: 11},
		{query: `query($n:Int=40){users(first:$n){name}}`, want: 41},
		{query: `query($n:Int=40){users(first:$n){name}}`, variables: `{"n":2}`, want: 3},
		{query: `query($n:Int=40){users(first:$n){name}}`, variables: `{"n":null}`, want: 41},
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"\u006e":6}`, want: 7},
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"n":1,"n":900}`, fault: body.Twice},
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"n":"x"}`, fault: body.Kind},
		{query: `query($n:Int,$n:Int){users(first:$n){name}}`, fault: body.Twice},
		{query: `{users(first:$n){name}}`, fault: body.Missing},
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"n":1e3}`, want: 1001},
		{query: `query($n:Int){users(first:$n){name}}`, variables: `{"n":12`, fault: body.Syntax},

		// Fragments and directives.
		{query: `{...A ...A} fragment A on Query{me{name}}`, want: 3},
		{query: `{users(first:2){...on User{friends(first:2){name}} ...on Node{id}}}`, want: 1 + 2*3},
		{query: `{me @skip(if:true){name} users(first:5) @include(if:false){name}}`, want: 7},
		{query: `{...A} fragment A on Query{...B} fragment B on Query{...A}`, fault: body.Depth},
		{query: `{me{...A}} fragment A on User{friends{...A}}`, fault: body.Depth},
		{query: `{...A}`, fault: body.Missing},
		{query: `{...A} fragment A on Nothing{id}`, fault: body.Schema},
		{query: `{...A} fragment A on Query{me{id}} fragment A on Query{users{id}}`, fault: body.Twice},
		{query: `{...A} fragment A($n:Int=1) on Query{users(first:$n){id}}`, fault: body.Syntax},

		// Which operation.
		{query: `query A{me{id}} query B{users{id}}`, operation: "A", want: 2},
		{query: `query A{me{id}} query B{users{id}}`, operation: "B", want: 11},
		{query: `query A{me{id}} query B{users{id}}`, fault: body.Missing},
		{query: `query A{me{id}} query B{users{id}}`, operation: "C", fault: body.Missing},
		{query: `query A{me{id}}`, operation: "B", fault: body.Missing},
		{query: `{me{id}}`, operation: "B", fault: body.Missing},
		{query: `query A{me{id}} query A{users{id}}`, operation: "A", fault: body.Twice},
		{query: `fragment A on Query{me{id}}`, fault: body.Missing},

		// What the schema does not have, and what is no document.
		{query: `{nothing}`, fault: body.Schema},
		{query: `{me{name{x}}}`, fault: body.Schema},
		{query: `{me}`, fault: body.Schema},
		{query: `{users(count:1000){name}}`, fault: body.Schema},
		{query: `{me{id}`, fault: body.Syntax},
		{query: ``, fault: body.Missing},
		{query: "{me{id}} # \u2028 more", fault: body.Syntax},
		{query: "{me{id}} # \x00", fault: body.Syntax},
		{query: "\ufeff{me{id}}", fault: body.Syntax},

		// The schema itself.
		{query: `{__schema{queryType{name}}}`, want: 11},
		{query: `{__type(name:"User"){fields{name}}}`, want: 21},
		{query: `{a:__type(name:"User"){name} b:__type(name:"User"){name}}`, want: 21},
		{query: `{__schema{types{fields{type{fields{name}}}}}}`, want: 31},
		{query: `{__schema{types{fields{type{fields{type{fields{name}}}}}}}}`, fault: body.Depth},
		{query: `{__schema{types{...T}}} fragment T on __Type{fields{type{...U}}} ` +
			`fragment U on __Type{fields{type{possibleTypes{name}}}}`, fault: body.Depth},
	} {
		p := newPricer(t, graphql.Options{})
		got, err := p.Document(c.query, c.operation, []byte(c.variables))
		var why *graphql.Refused
		errors.As(err, &why)
		switch {
		case c.fault == body.None && err != nil:
			t.Errorf("%s %s: refused, %v; want %d", c.query, c.variables, err, c.want)
		case c.fault == body.None && got.Tokens != c.want:
			t.Errorf("%s %s costs %d, want %d", c.query, c.variables, got.Tokens, c.want)
		case c.fault != body.None && (why == nil || why.Fault != c.fault):
			t.Errorf("%s %s: %v, %+v; want the fault %v", c.query, c.variables, err, got, c.fault)
		}
	}
}

// TestToolsLearnTheSchema: what tools ask of a schema (graphql-js, getIntrospectionQuery) is within the default bounds.
func TestToolsLearnTheSchema(t *testing.T) {
	of := "kind name"
	for range 9 {
		of = "kind name ofType {" + of + "}"
	}
	c, err := newPricer(t, graphql.Options{}).Document(`query IntrospectionQuery { __schema { description
		queryType { name kind } mutationType { name kind } subscriptionType { name kind } types { ...FullType }
		directives { name description isRepeatable locations args(includeDeprecated: true) { ...InputValue } } } }
		fragment FullType on __Type { kind name description specifiedByURL isOneOf
		fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue }
		type { ...TypeRef } isDeprecated deprecationReason } inputFields(includeDeprecated: true) { ...InputValue }
		interfaces { ...TypeRef } enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason }
		possibleTypes { ...TypeRef } }
		fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated
		deprecationReason } fragment TypeRef on __Type { `+of+` }`, "", nil)
	if err != nil || c.Tokens != 51 || c.Depth != graphql.DefaultDepth {
		t.Errorf("%+v, %v; want 51 tokens, and %d fields deep", c, err, graphql.DefaultDepth)
	}
}

func TestBounds(t *testing.T) {
	p := newPricer(t, graphql.Options{MaxDepth: 4, MaxBreadth: 6, MaxTokens: 60})
	for _, c := range []struct {
		query string
		fault body.Fault
	}{
		{`{me{friends{friends{name}}}}`, body.None},
		{`{me{friends{friends{friends{name}}}}}`, body.Depth},
		{`{me{...A}} fragment A on User{friends{...B}} fragment B on User{friends{name}}`, body.None},
		{`{me{...A}} fragment A on User{friends{...B}} fragment B on User{friends{friends{name}}}`, body.Depth},
		{`{` + aliases(6) + `}`, body.None},
		{`{` + aliases(7) + `}`, body.Many},
		{`{me{...A ...A ...A}} fragment A on User{id name}`, body.None},
		{`{me{...A ...A ...A id}} fragment A on User{id name}`, body.Many},
		{`{me{` + strings.Repeat(" id", 54) + `}}`, body.Many},
		{`{me{id}} #` + strings.Repeat("\n#", 53), body.None},
		{`{me{id}} #` + strings.Repeat("\n#", 54), body.Many},
	} {
		_, err := p.Document(c.query, "", nil)
		var why *graphql.Refused
		if errors.As(err, &why) && why.Fault != c.fault || why == nil && c.fault != body.None {
			t.Errorf("%.80s: %v, want %v", c.query, err, c.fault)
		}
	}
}

func aliases(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " a%d:__typename", i)
	}
	return b.String()
}

// TestDoublingFragmentsTakeNoTime: each fragment uses the next one twice, so that the operation has 2^999 fields.
func TestDoublingFragmentsTakeNoTime(t *testing.T) {
	p := newPricer(t, graphql.Options{MaxTokens: graphql.MostTokens, MaxBreadth: graphql.MostBreadth})
	var doc strings.Builder
	doc.WriteString("{...F0}")
	for i := range 999 {
		fmt.Fprintf(&doc, " fragment F%d on Query{...F%d ...F%d}", i, i+1, i+1)
	}
	doc.WriteString(" fragment F999 on Query{users{id}}")
	_, err := p.Document(doc.String(), "", nil)
	var why *graphql.Refused
	if !errors.As(err, &why) || why.Fault != body.Many {
		t.Errorf("%v, want too many fields", err)
	}
	deep := strings.Repeat(" friends{", 498)
	if _, err := newPricer(t, graphql.Options{MaxDepth: 500, MaxTokens: graphql.MostTokens}).Document(
		"{me{"+deep+"id"+strings.Repeat("}", 500), "", nil); err != nil {
		t.Errorf("500 fields deep: %v, want a cost that is as large as one may be", err)
	}
}

// TestSchemasNameEveryFault holds what is said of schemas and settings that do not fit.
func TestSchemasNameEveryFault(t *testing.T) {
	for _, c := range []struct {
		schema string
		o      graphql.Options
		want   []string
	}{
		{schema: `type Query { a: Missing }`, want: []string{"test.graphql:1", "Missing"}},
		{schema: `type Query {`, want: []string{"test.graphql:1"}},
		{schema: `type User { id: ID }`, want: []string{"no type Query"}},
		{schema: `type Query { a: Int @cost(weight: "much") b: [Int] @listSize(slicingArguments: ["n"]) }`,
			want: []string{`test.graphql:1: @cost of Query.a: weight is "much", want a number from 0`, `@listSize of Query.b: slicingArguments has "n"`}},
		{schema: `type Query { a(n: String): Q @listSize(sizedFields: ["x"]) } type Q { x: Int }`,
			want: []string{`sizedFields has "x", want a field of Q that is a list`}},
		{schema: `type Query { a: Int @cost(weight: "-1") }`, want: []string{`is "-1", want a number from 0 to 1000000000`}},
		{schema: `type Query { a: [Int] }`, o: graphql.Options{Costs: map[string]float64{"Usr": 1, "Query.b": 1},
			Sizes: map[string]int64{"Query.c": 1, "Query.a": 0}, SizeArguments: []string{"last", "fist"}},
			want: []string{`costs has "Usr"`, `costs has "Query.b"`, `list_sizes has "Query.c"`,
				`list_sizes[Query.a] is 0, want 1`, `size_arguments has "fist", want`}},
		{schema: `type Query { a: [Int] }`, o: graphql.Options{Costs: map[string]float64{"Query.a": -1}},
			want: []string{"costs[Query.a] is -1, want 0 to 1000000000"}},
		{schema: `type Query { a: Int }`, o: graphql.Options{MaxDepth: -1, MaxTokens: 1e6},
			want: []string{"MaxDepth is -1, want 1 to 500", "MaxTokens is 1000000, want 1 to 100000"}},
	} {
		_, err := graphql.New("test.graphql", c.schema, c.o)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", c.schema, err, want)
			}
		}
	}
	// Directives of the same name that say something else are left alone, and those that a schema declares are its own.
	for _, schema := range []string{
		`directive @cost(complexity: Int) on FIELD_DEFINITION type Query { a: Int @cost(complexity: 5) }`,
		`directive @cost(weight: Int!) on FIELD_DEFINITION type Query { a: Int @cost(weight: 5) }`,
	} {
		if _, err := graphql.New("test.graphql", schema, graphql.Options{}); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
