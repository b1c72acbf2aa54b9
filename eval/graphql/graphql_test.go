package graphql

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	gophers "github.com/graph-gophers/graphql-go"
	"github.com/graph-gophers/graphql-go/relay"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/attack"
	"github.com/headgate-io/headgate/server/graphql"
)

const schema = `
schema { query: Query mutation: Mutation }
type Query {
  people(first: Int): [Person!]!
  person(id: ID!): Person!
  byIDs(ids: [ID!]!): [Person!]!
  feed(first: Int = 3): Feed!
  node(id: ID!): Node!
}
type Mutation { follow(id: ID!): Person! }
interface Node { id: ID! }
type Person implements Node {
  id: ID!
  name: String!
  friends(first: Int, last: Int): [Person!]!
  posts: [Post!]!
  feed(first: Int = 3): Feed!
}
type Feed { edges: [Edge!]! nodes: [Post!]! total: Int! }
type Edge { cursor: String! node: Post! }
type Post implements Node { id: ID! title: String! author: Person! }
`

// counter counts the objects that are resolved.
type counter struct{ objects int64 }

func (c *counter) one() *counter {
	c.objects++
	return c
}

// several is a list as long as is asked for, or of ten.
func several[T any](sizes []*int32, make func() T) (all []T) {
	n := int32(0)
	for _, size := range sizes {
		if size != nil {
			n = max(n, *size)
		}
	}
	if n < 1 {
		n = 10
	}
	for range n {
		all = append(all, make())
	}
	return all
}

type (
	query  struct{ c *counter }
	person struct{ c *counter }
	post   struct{ c *counter }
	edge   struct{ c *counter }
	node   struct{ person }
	feed   struct {
		c     *counter
		first *int32
	}
	first struct{ First *int32 }
	byID  struct{ ID gophers.ID }
)

func (q query) person() person { return person{q.c.one()} }
func (q query) feed(size *int32) *feed {
	if size == nil { // graph-gophers has no default beside null
		size = new(int32)
		*size = 3
	}
	return &feed{q.c.one(), size}
}

func (q query) People(a first) []person { return several([]*int32{a.First}, q.person) }
func (q query) Person(byID) person      { return q.person() }
func (q query) Follow(byID) person      { return q.person() }
func (q query) Node(byID) *node         { return &node{q.person()} }
func (q query) Feed(a first) *feed      { return q.feed(a.First) }
func (q query) ByIDs(a struct{ IDs []gophers.ID }) []person {
	all := []person{}
	for range a.IDs {
		all = append(all, q.person())
	}
	return all
}

func (node) ToPost() (*post, bool)        { return nil, false }
func (n *node) ToPerson() (*person, bool) { return &n.person, true }

func (person) ID() gophers.ID { return "1" }
func (person) Name() string   { return "n" }
func (p person) Friends(a struct{ First, Last *int32 }) []person {
	return several([]*int32{a.First, a.Last}, query(p).person)
}
func (p person) Posts() []post      { return several(nil, func() post { return post{p.c.one()} }) }
func (p person) Feed(a first) *feed { return query(p).feed(a.First) }

func (f *feed) Edges() []edge {
	return several([]*int32{f.first}, func() edge { return edge{f.c.one()} })
}
func (f *feed) Nodes() []post {
	return several([]*int32{f.first}, func() post { return post{f.c.one()} })
}
func (*feed) Total() int32 { return 3 }

func (edge) Cursor() string { return "c" }
func (e edge) Node() post   { return post{e.c.one()} }

func (post) ID() gophers.ID   { return "1" }
func (post) Title() string    { return "t" }
func (p post) Author() person { return query(p).person() }

// writer writes random documents.
type writer struct {
	*rand.Rand
	fragments, variables, values []string
	aliases                      int
}

func (r *writer) pick(of ...string) string { return of[r.IntN(len(of))] }

// fields are those of each type: with their arguments, and the type of what they return.
var fields = map[string][][3]string{
	"Query": {{"people", "first", "Person"}, {"person", "id", "Person"}, {"byIDs", "ids", "Person"},
		{"feed", "first", "Feed"}, {"node", "id", "Node"}},
	"Mutation": {{"follow", "id", "Person"}},
	"Node":     {{"id", "", ""}},
	"Person": {{"id", "", ""}, {"name", "", ""}, {"friends", "first", "Person"}, {"friends", "last", "Person"},
		{"friends", "first last", "Person"}, {"posts", "", "Post"}, {"feed", "first", "Feed"}},
	"Feed": {{"edges", "", "Edge"}, {"nodes", "", "Post"}, {"total", "", ""}},
	"Edge": {{"cursor", "", ""}, {"node", "", "Post"}},
	"Post": {{"id", "", ""}, {"title", "", ""}, {"author", "", "Person"}},
}

func (r *writer) set(of string, depth int) string {
	var b strings.Builder
	b.WriteString("{__typename")
	for range 1 + r.IntN(3) {
		switch r.IntN(8) {
		case 0:
			name := "F" + strconv.Itoa(len(r.fragments))
			r.fragments = append(r.fragments, "")
			r.fragments[len(r.fragments)-1] = " fragment " + name + " on " + of + r.set(of, depth-1)
			b.WriteString(strings.Repeat(" ..."+name, 1+r.IntN(3)))
		case 1:
			b.WriteString(" ..." + r.pick("", " on "+of, " @include(if:true)") + r.set(of, depth-1))
		default:
			b.WriteString(r.field(of, depth))
		}
	}
	return b.String() + "}"
}

func (r *writer) field(of string, depth int) string {
	f := fields[of][r.IntN(len(fields[of]))]
	if f[2] != "" && depth < 1 {
		return " __typename"
	}
	r.aliases++ // the server refuses two of one name that differ
	alias := "a" + strconv.Itoa(r.aliases)
	text := " " + alias + ":" + f[0]
	var args []string
	for _, name := range strings.Fields(f[1]) {
		switch {
		case name == "id":
			args = append(args, `id:"1"`)
		case name == "ids":
			args = append(args, "ids:"+r.ids())
		case r.IntN(4) > 0:
			args = append(args, name+r.pick(":", " : ", ",:#c\n")+r.size())
		}
	}
	if len(args) > 0 {
		text += "(" + strings.Join(args, r.pick(" ", ",", "\r\n")) + ")"
	}
	text += r.pick("", "", "", " @skip(if:true)", " @include(if:true)")
	if f[2] != "" {
		text += r.set(f[2], depth-1)
	}
	return text
}

func (r *writer) size() string {
	switch r.IntN(5) {
	case 0:
		return r.pick("null", "0", "-1")
	case 1, 2:
		return r.variable("Int", r.pick("", "=6", "=null"), r.pick("3", "0", "null", "9", "4.0", "1e1"))
	}
	return strconv.Itoa(1 + r.IntN(12))
}

func (r *writer) ids() string {
	list := "[" + strings.TrimSuffix(strings.Repeat(`"7",`, r.IntN(25)), ",") + "]"
	if r.IntN(2) == 0 {
		return r.variable("[ID!]!", "", list)
	}
	return list
}

func (r *writer) variable(of, otherwise, value string) string {
	name := "v" + strconv.Itoa(len(r.variables))
	r.variables = append(r.variables, "$"+name+":"+of+otherwise)
	if strings.HasSuffix(of, "!") || r.IntN(3) > 0 {
		r.values = append(r.values, strconv.Quote(name)+":"+value)
	}
	return "$" + name
}

// request is the body of a request for a random operation, and sometimes a second one beside it.
func (r *writer) request() string {
	root := r.pick("Query", "Query", "Mutation")
	set := r.set(root, 4)
	if root == "Mutation" {
		set = strings.Replace(set, "{__typename", "{", 1) + " "
		set = "{__typename" + strings.TrimPrefix(strings.TrimSpace(set), "{")
	}
	text := strings.ToLower(root) + " A"
	if len(r.variables) > 0 {
		text += "(" + strings.Join(r.variables, " ") + ")"
	}
	text += set + strings.Join(r.fragments, "")
	name := `null`
	if r.IntN(4) == 0 {
		text, name = "query B{person(id:1){id}}"+text, `"A"`
	}
	quoted, _ := json.Marshal(text)
	return `{"query":` + string(quoted) + `,"operationName":` + name + `,"variables":{` +
		strings.Join(r.values, ",") + "}}"
}

// spoilt is a body with some bytes changed, taken out or put twice, or with what some read in another way.
func (r *writer) spoilt(text string) string {
	for range 1 + r.IntN(8)/6 {
		at := r.IntN(len(text))
		switch r.IntN(5) {
		case 0:
			text = text[:at] + r.pick(`{`, `}`, `"`, `\"`, `#`, `\n`, `,`, `:`, `$`, `...`, ` `, `\u2028`,
				`\r`, `9`, `0`, `-`, `@`, `"""`, `\\`, `\u0000`, `\ufeff`, `[`, `]`, `(`, `)`) + text[at:]
		case 1:
			text = text[:at] + text[min(len(text), at+1+r.IntN(4)):]
		case 2:
			end := min(len(text), at+1+r.IntN(40))
			text = text[:end] + text[at:]
		case 3:
			text = strings.Replace(text, `"query"`, r.pick(`"query":"{person(id:1){id}}","Query"`, `"QUERY"`,
				`"query":"{person(id:1){id}}","query"`, `"que\u0072y"`, `"query":null,"query"`), 1)
		default:
			text = strings.Replace(text, `"variables":{`, r.pick(`"variables":{"v0":1,`,
				`"Variables":{"v0":11},"variables":{`, `"variables":{"v0":1,"v1":2,`, `"variables":{"V0":12,`), 1)
		}
		if text == "" {
			return "x"
		}
	}
	return text
}

// site is the server behind the limiter.
type site struct {
	http.Handler
	*counter
	price httplimit.Price // of the newest request
}

func newSite(t *testing.T) *site {
	t.Helper()
	pricer, err := graphql.New("schema.graphql", schema, graphql.Options{MaxCost: 20_000, MaxDepth: 50})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /graphql 1000000000/s", "default 1/s"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{counter: &counter{}}
	calls, err := httplimit.NewCalls(httplimit.CallOptions{Endpoints: lim.Endpoints(), Priced: []httplimit.Priced{{
		Endpoint: "POST /graphql", Refuse: graphql.Refuse,
		Price: func(r *http.Request, target string, text []byte) httplimit.Price {
			s.price = pricer.Price(r, target, text)
			return s.price
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	api := gophers.MustParseSchema(strings.ReplaceAll(schema, " = 3", ""), &query{s.counter}, gophers.MaxParallelism(1))
	s.Handler = httplimit.Handler(lim, &relay.Handler{Schema: api}, httplimit.Options{Calls: calls})
	return s
}

// send sends a request, and fails if more is resolved for it than it costs.
func (s *site) send(t *testing.T, what any, text string, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	s.objects, s.price = 0, httplimit.Price{Fault: body.Unread} // by another than Price
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, r)
	if s.objects > max(0, s.price.Cost-1) { // beside the root
		t.Fatalf("%v: %d objects, and it cost %d (%v): %s\n%.300s", what, s.objects, s.price.Cost, s.price.Fault, text,
			answer.Body)
	}
	return answer
}

// TestAttacksGetNoMoreThanTheyPay: a document that is written in every way that headgate attack knows.
func TestAttacksGetNoMoreThanTheyPay(t *testing.T) {
	s := newSite(t)
	const text = `{"query":"{people(first:20){name}}"}`
	a, ok := attack.Messages(text)
	if !ok {
		t.Fatalf("%s is no message", text)
	}
	through, sent := 0, 0
	for _, f := range append(append(a.Families, a.Doubtful...), attack.Batches.Families...) {
		for i := range 33 {
			made := f.Make(attack.Request{Method: "POST", Target: "/graphql", Body: text}.With(
				attack.Field{Name: "Content-Type", Value: "application/json"}), i)
			r := httptest.NewRequest(made.Method, made.Target, strings.NewReader(made.Body))
			for _, one := range made.Header {
				r.Header.Add(one.Name, one.Value)
			}
			s.send(t, f.Name, made.Body, r)
			if sent++; s.objects > 0 {
				through++
			}
		}
	}
	if through < 200 || sent-through < 500 {
		t.Errorf("%d of %d were answered, want some of both", through, sent)
	}
}

// TestNoRequestHoldsMoreThanItCosts: honest requests are priced, and neither they nor those that are spoilt make the
// server resolve more objects than they cost.
func TestNoRequestHoldsMoreThanItCosts(t *testing.T) {
	s := newSite(t)
	most, tight, ran, refused, passed := int64(0), 0, 0, 0, 0
	for seed := range uint64(3000) {
		r := &writer{Rand: rand.New(rand.NewPCG(seed, 20))}
		text := r.request()
		spoilt := seed%3 > 0
		if spoilt {
			text = r.spoilt(text)
		}
		request := httptest.NewRequest("POST", "/graphql", strings.NewReader(text))
		request.Header.Set("Content-Type", "application/json")
		answer := s.send(t, seed, text, request)
		switch price := s.price; {
		case price.Fault != body.None && !spoilt && price.Fault != body.Costly && price.Fault != body.Many:
			t.Fatalf("seed %d: refused, %v, %s: %s", seed, price.Fault, price.Why, text)
		case price.Fault != body.None:
			refused++
		case strings.Contains(answer.Body.String(), `"errors"`):
			if !spoilt {
				t.Fatalf("seed %d: the server refuses %s: %.300s", seed, text, answer.Body)
			}
		default:
			if ran++; spoilt {
				passed++
			}
			most = max(most, s.objects)
			if s.objects == price.Cost-1 {
				tight++
			}
		}
	}
	t.Logf("%d ran, %d of them spoilt, %d refused; %d objects at most, %d cost what they had", ran, passed, refused,
		most, tight)
	if ran < 900 || passed < 100 || refused < 500 || most < 1000 || tight < 100 {
		t.Error("the generator should make more of each")
	}
}
