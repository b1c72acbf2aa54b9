// Package wasm makes the edge module: a limiter for proxies and programs that run WebAssembly, as
// the rules, the endpoints and the keys say, in one file. It asks no network, keeps its state in
// memory of fixed size, and decides as Limiter.Check does: by the same arithmetic (bucket.State),
// the same canonical form and automaton (endpoint.Table), the same rules (policy.Set).
//
//	module, err := wasm.Build(wasm.Filter, wasm.Options{Policies: set})
//	os.WriteFile("filter.wasm", module, 0o644)
//
// The code is C in core/, compiled once and kept here (make wasm); Build appends data to it, so that no compiler is
// needed. What the module has no code for, Build refuses and names: nothing is left out silently.
//
// # Guarantees
//
// Each instance of a module has buckets of its own: N workers admit up to N times a limit, but
// for limits that are shared (Options.Shared), which all workers of one proxy count together,
// exactly. A bucket that is forgotten for want of room never grants a token. A module whose data
// is not whole refuses to start.
package wasm
