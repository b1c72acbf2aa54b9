package main

// inFlight are bugs of places among the requests under way.
var inFlight = []Mutant{
	{Name: "charge: a lost place is given back", File: "charge/receipt.go",
		Old: "it.lost = s.Now, c.Shape, r.moved[0] < it.units",
		New: "it.lost = s.Now, c.Shape, false",
		Why: "the place of another is free while its request is under way"},
	{Name: "charge: places are not renewed", File: "charge/receipt.go",
		Old: "case renew && !it.lost && s.Now-it.since < it.shape.Tick/3:",
		New: "case renew:",
		Why: "requests that take long are not counted"},
	{Name: "charge: a stream's messages take places", File: "charge/charge.go",
		Old: "return terms.Concurrent && p.UnderWay || terms",
		New: "return terms",
		Why: "a WebSocket fills its caller's places by itself"},
	{Name: "bucket: a renewed place counts twice", File: "bucket/change.go",
		Old:   "	after = l.Refund(now, sh, units, charged)\n	kept",
		New:   "	after = l\n	kept",
		Why:   "requests that take long fill the places of others",
		Tests: []string{"./charge"}},
	{Name: "bucket: a change of both loses who is under way", File: "bucket/past.go",
		Old:   "h.Log.Counts[0] = uint32(min(owed, math.MaxUint32))",
		New:   "h.Log.Counts[0] = uint32(min(owed, to.Capacity, math.MaxUint32))",
		Why:   "places given back by some are those of others",
		Tests: []string{"./charge"}},
}

// perRequest are bugs of limits on requests beside those on what they cost.
var perRequest = []Mutant{
	{Name: "charge: a limit on requests takes what they cost", File: "charge/charge.go",
		Old: "one: terms.Concurrent || terms.PerRequest}", New: "one: terms.Concurrent}",
		Why: "a caller with large requests has fewer of them than the rule says"},
	{Name: "charge: a guard of a larger tier takes what a request costs", File: "charge/guard.go",
		Old: "Cost:   own.Cost,", New: "Cost:   p.Cost,",
		Why: "whoever names its tier is refused too early"},
	{Name: "charge: a guard of the tier before takes what a request costs", File: "charge/guard.go",
		Old: "moves)-1]), Cost: own.Cost,", New: "moves)-1]), Cost: p.Cost,",
		Why: "whose project moves is refused too early"},
	{Name: "charge: a request that cost nothing is none", File: "charge/receipt.go",
		Old: "if it.one && !s.Void {", New: "if it.one && s.Actual > 0 {",
		Why: "requests whose answers cost nothing are unlimited"},
	{Name: "charge: more for a request counts as another", File: "charge/charge.go",
		Old: "|| terms.PerRequest && p.Further", New: "",
		Why: "a long answer uses up its caller's requests"},
}
