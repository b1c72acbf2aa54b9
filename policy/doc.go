// Package policy decides which limits apply to a request.
//
// A Document is a list of rules, as a table or a file holds them. Compile checks
// it and makes it a Set, which finds the rules of a request in a few dozen
// nanoseconds, whatever their number. A Cache keeps a Set fresh from a Source
// (policy/file, policy/sql, or your own) and never gives up a good Set for a bad
// one.
//
//	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: table})
//	if set == nil {
//		return problems.Err() // every mistake, one line each
//	}
//	applied = set.Resolve(applied[:0], now, table.Match("GET", "/v1/items/7"), "acme", "")
//
// # Precedence
//
// Each subject (principal, ip, …) is ruled on its own, by the first level that
// has a live rule for it: this endpoint for the project, for its tier, for
// everybody; then default for the project, for its tier, for everybody; then
// UNKNOWN. So a tenant's override replaces the limit of the same subject and
// never switches off another's. Rules for "*" apply in addition, by their own
// chain. Requests that match no endpoint see UNKNOWN alone.
//
// # Guarantees
//
// A Set is immutable and safe for concurrent use. Resolve allocates nothing when
// its destination has room. A rule takes 32 bytes in a Set, about 40 with its
// share of the index, and up to 80 when each has a project of its own. A million
// rules compile in about half a second.
package policy
