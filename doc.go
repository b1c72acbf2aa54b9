// Package headgate limits the rate of API requests as a security control.
//
// A request travels one way, through stages that are packages of their own:
//
//	endpoint → identity → policy → key → bucket → decision
//
// Its target is brought into one canonical form and matched to a template, so
// that no spelling escapes a limit and no invented path makes a new one. A
// verified credential, or else the client's address by trusted-proxy rules,
// says whose budget it uses. The rules that apply are looked up in an
// immutable set that is refreshed from a database while requests run. Each
// names a bucket, and the request takes its cost from all of them or from
// none.
//
// # Use
//
//	table, err := endpoint.Compile(templates, endpoint.Profile{})
//	set, problems := policy.Compile(document, policy.CompileOptions{Endpoints: table})
//	buckets, err := memory.New(memory.Options{})
//	who, err := identity.New(identity.Options{})
//	lim, err := headgate.New(headgate.Options{
//		Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who,
//	})
//	http.ListenAndServe(":8080", httplimit.Handler(lim, api, httplimit.Options{}))
//
// # Guarantees
//
// In any interval of length t, a bucket of rate r and burst b admits at most
// b + r·t tokens' worth of requests: exactly, in integers, whatever the
// clients send, whatever the table evicts, and however the clock steps back.
// A denied request takes nothing anywhere. Memory is bounded by the options
// of the bucket table, not by what clients invent. Nothing about a request's
// credentials leaves the process.
//
// # Cost
//
// Check reads the clock once, takes one lock a bucket shard and allocates
// nothing.
package headgate
