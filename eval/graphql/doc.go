// Package graphql holds that what a server of GraphQL resolves for a request is no more than what the request costs: a
// real one, graph-gophers, with its own reading of bodies, documents and values, behind the limiter.
package graphql
