package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/server/graphql"
)

// GraphQL has requests for operations of GraphQL cost what they ask for, at some endpoints. Endpoints and Schema are
// required.
type GraphQL struct {
	// Endpoints are some of openapi or routes, with the methods POST and GET: "POST /graphql".
	Endpoints []string `yaml:"endpoints"`

	// Schema is the file of the schema, in the schema definition language. It is read again with the settings.
	Schema string `yaml:"schema"`

	// MaxCost is what a request may cost at most; a dearer one is refused. Default 1000.
	MaxCost int64 `yaml:"max_cost"`

	// MaxDepth is how many fields may stand within each other. Default 15.
	MaxDepth int64 `yaml:"max_depth"`

	// MaxBreadth is how many fields may stand beside each other, those of fragments among them. Default 100.
	MaxBreadth int64 `yaml:"max_breadth"`

	// MaxTokens is how many words and signs the documents of a request may have. Default 5000.
	MaxTokens int64 `yaml:"max_tokens"`

	// Costs are what an object of a type costs, by the type (User), or what a field costs beside its objects
	// (Query.search), in place of @cost. Default 1 for an object, and nothing for a field or a scalar.
	Costs map[string]float64 `yaml:"costs"`

	// ListSizes are how long lists are whose length no argument says, by field (Query.tags). Default list_size.
	ListSizes map[string]int64 `yaml:"list_sizes"`

	// ListSize is for all other lists. Default 10.
	ListSize int64 `yaml:"list_size"`

	// SizeArguments are the arguments that say how long a list is, where the schema has no @listSize. Default
	// first, last, limit.
	SizeArguments []string `yaml:"size_arguments"`

	// Introspection says what happens to operations that ask for the schema: count (default), or refuse.
	Introspection string `yaml:"introspection"`

	// IntrospectionCost is what asking for the schema costs. Default 10.
	IntrospectionCost int64 `yaml:"introspection_cost"`

	// Persisted says what happens to requests that name a document that the API has: refuse (default), or count.
	Persisted string `yaml:"persisted"`

	// PersistedCost is what they cost. Default max_cost.
	PersistedCost int64 `yaml:"persisted_cost"`

	// Upgrades says what happens to requests for a WebSocket, in whose messages operations may stand: refuse
	// (default), or pass.
	Upgrades string `yaml:"upgrades"`

	// Batches says what happens to an array of requests: count (default), or refuse.
	Batches string `yaml:"batches"`

	// MaxParts is how many there may be. Default 10.
	MaxParts int64 `yaml:"max_parts"`

	// MaxBytes is the longest body that is read. Default 1MiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// ReadTimeout is how long that may take to arrive. Default 10s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
}

// Options are g, which is complete, as package graphql has them.
func (g GraphQL) Options() graphql.Options {
	o := graphql.Options{
		Costs: g.Costs, Sizes: g.ListSizes, ListSize: g.ListSize, SizeArguments: g.SizeArguments,
		MaxCost: g.MaxCost, MaxDepth: int(g.MaxDepth), MaxBreadth: int(g.MaxBreadth), MaxTokens: int(g.MaxTokens),
		MaxParts: int(g.MaxParts), Introspection: g.IntrospectionCost, Upgrades: g.Upgrades == "pass",
	}
	if g.Introspection == "refuse" {
		o.Introspection = -1
	}
	if g.Persisted == "count" {
		o.Persisted = g.PersistedCost
	}
	if g.Batches == "refuse" {
		o.MaxParts = 1
	}
	return o
}

// graphQL checks the list and fills in what its entries leave out; whether the registry has the endpoints, and what is
// wrong with the schema, is found when that is built.
func (c *checker) graphQL(conf *Config) {
	for n := range conf.GraphQL {
		g := &conf.GraphQL[n]
		field := func(name string) string { return fmt.Sprintf("graphql[%d].%s", n, name) }
		if len(g.Endpoints) == 0 {
			c.wrong(field("endpoints"), "", "an endpoint at least, such as POST /graphql")
		}
		for _, endpoint := range g.Endpoints {
			c.once(field("endpoints"), endpoint)
			if method, _, _ := strings.Cut(endpoint, " "); method != "POST" && method != "GET" {
				c.wrong(field("endpoints"), endpoint, "one with POST or GET, by which operations are sent")
			}
		}
		c.text(field("schema"), g.Schema, "the file of the schema, such as schema.graphql")
		fill(&g.MaxCost, graphql.DefaultCost)
		fill(&g.MaxDepth, graphql.DefaultDepth)
		fill(&g.MaxBreadth, graphql.DefaultBreadth)
		fill(&g.MaxTokens, graphql.DefaultTokens)
		fill(&g.ListSize, graphql.DefaultListSize)
		fill(&g.Introspection, "count")
		fill(&g.IntrospectionCost, graphql.DefaultIntrospection)
		fill(&g.Persisted, "refuse")
		fill(&g.Upgrades, "refuse")
		fill(&g.Batches, "count")
		fill(&g.MaxParts, graphql.DefaultParts)
		fill(&g.MaxBytes, body.DefaultBatchBytes)
		fill(&g.ReadTimeout, 10*time.Second)
		if len(g.SizeArguments) == 0 {
			g.SizeArguments = graphql.DefaultSizeArguments()
		}
		for i, name := range g.SizeArguments {
			c.text(field(fmt.Sprintf("size_arguments[%d]", i)), name, "the name of an argument, such as first")
		}
		for _, name := range slices.Sorted(maps.Keys(g.Costs)) {
			if cost := g.Costs[name]; !(cost >= 0 && cost <= graphql.MostCost) {
				c.wrong(field("costs["+name+"]"), fmt.Sprint(cost), fmt.Sprint("0 to ", graphql.MostCost))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g.ListSizes)) {
			if size := g.ListSizes[name]; size < 1 || size > graphql.MostSize {
				c.wrong(field("list_sizes["+name+"]"), fmt.Sprint(size), fmt.Sprint("1 to ", graphql.MostSize))
			}
		}
		c.between(field("max_cost"), g.MaxCost, 1, graphql.MostCost)
		c.between(field("max_depth"), g.MaxDepth, 1, graphql.MostDepth)
		c.between(field("max_breadth"), g.MaxBreadth, 1, graphql.MostBreadth)
		c.between(field("max_tokens"), g.MaxTokens, 1, graphql.MostTokens)
		c.between(field("list_size"), g.ListSize, 1, graphql.MostSize)
		c.oneOf(field("introspection"), g.Introspection, "count", "refuse")
		c.between(field("introspection_cost"), g.IntrospectionCost, 1, graphql.MostCost)
		c.oneOf(field("persisted"), g.Persisted, "refuse", "count")
		c.between(field("persisted_cost"), cmp.Or(g.PersistedCost, 1), 1, graphql.MostCost)
		if g.MaxCost >= 1 && g.PersistedCost > g.MaxCost {
			c.wrong(field("persisted_cost"), fmt.Sprint(g.PersistedCost), fmt.Sprintf("%d or less, which max_cost is",
				g.MaxCost))
		}
		fill(&g.PersistedCost, g.MaxCost) // once it is checked: what is wrong with max_cost is said of that alone
		c.oneOf(field("upgrades"), g.Upgrades, "refuse", "pass")
		c.oneOf(field("batches"), g.Batches, "count", "refuse")
		c.between(field("max_parts"), g.MaxParts, 1, graphql.MostParts)
		c.size(field("max_bytes"), g.MaxBytes, 64, body.MostBatchBytes)
		c.duration(field("read_timeout"), g.ReadTimeout, time.Millisecond, 10*time.Minute)
	}
	if len(conf.GraphQL) > 0 && !conf.Gateway() {
		c.wrong("graphql", fmt.Sprintf("%d entries", len(conf.GraphQL)),
			"nothing: with listen none, no body is seen; say what a request costs where it is asked about")
	}
}
