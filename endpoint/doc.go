// Package endpoint turns a raw request target into one template, or says that it has none.
//
// A rate limiter that counts by path counts what the client chose to spell: /v1/items/7, /v1//items/7 and
// /v1/items/%37 would be three budgets for one resource. Here every target is first brought to one canonical
// form by one written [Profile] (or refused, see [Fault]) and then matched against a [Table] of templates,
// so that only the template, never the spelling, reaches a bucket.
//
//	list, err := endpoint.ParseTemplate("GET /v1/items")
//	item, err := endpoint.ParseTemplate("GET /v1/items/{id}")
//	table, err := endpoint.Compile([]endpoint.Template{list, item}, endpoint.Profile{})
//	m := table.Match("GET", "/v1/x/..//items/%37?full=1") // m.Status == Known, m.ID is that of item
//
// Guarantees. A Table never changes after [Compile] and may be used by any number of goroutines. Match reads
// the target once or twice, whatever the number of templates: it follows a compiled automaton that never goes
// back, so a target made to match nothing costs no more than one that matches. It allocates nothing for
// paths that are already canonical, nor for others of up to 512 bytes (a raw brace counts as three). The answer
// does not depend on the order in which templates were given, and neither do the IDs.
package endpoint
