// Package graphql says what requests for GraphQL cost before they are answered, by the schema and by what they ask for.
//
// An operation costs what the objects weigh that its answer may hold at most: an object 1, a scalar nothing (1
// at the root), unless the schema (@cost, @listSize; GraphQL Cost Directives, IBM, draft of 2021) or Options
// say otherwise. Of a list that is as many as an argument asks for. With users(first: Int): [User],
//
//	{ users(first: 20) { name friends { name } } }
//
// costs 1 for the query, 20 for users and 20 times 10 for friends, of which nobody has said how many there are: 221.
//
// Whoever executes a document must not find more in it than was priced. So what could be read in two ways is refused: a
// name twice, a field or an argument that the schema does not have, a size that is no number. Of what depends on values
// that only the server knows, the most is taken: fields under @skip and @include count, and so do fragments for each
// type that an object may be of.
//
// A document takes time and memory linear in its tokens, whose number is bounded, whatever it holds: fragments are
// priced once. A Pricer is immutable and safe for concurrent use.
package graphql
