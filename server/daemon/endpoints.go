package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/openapi"
	"github.com/headgate-io/headgate/slot"
)

// Unseen are the subjects that the gateway cannot tell apart: without a table
// of regions, without claims that tokens are read for, and because it reads no bodies but those of Registry.Identified.
func Unseen(c config.Config) []policy.Subject {
	unseen := []policy.Subject{policy.SubjectIdentifier, policy.SubjectIdentifierIP}
	if len(c.RegionFiles) == 0 {
		unseen = append(unseen, policy.SubjectRegion)
	}
	if !c.Tokens.On() || len(c.Tokens.Claims) == 0 {
		unseen = append(unseen, policy.SubjectClaim)
	}
	return unseen
}

// CompileOptions is how rules are compiled, and checked, under c. Without r
// nothing is known of the endpoints.
func CompileOptions(c config.Config, r *Registry) policy.CompileOptions {
	o := policy.CompileOptions{
		Settings:     "configuration",
		ClassesBy:    policy.ClassesBy{Tiers: classes(c.Priority.Tiers), Claim: c.Priority.Claim},
		BurstPercent: c.BurstPercent, ScoreTiers: c.Anomalies.TierNames(), AgentTiers: c.SignedAgents.TierNames(),
		Unseen: Unseen(c), UnknownRefused: c.Unknown == "reject",
		Shared: c.Store.On(), Gossips: c.Gossip.On(),
		Keeps: keeps(c.Store), Free: c.Store.Free(), OneByOne: c.Store.Throttles(),
	}
	if o.Times.SameMoment = c.RetryAfter == "truth"; !o.Times.SameMoment {
		o.Times.UpTo, o.Times.Reserves = slot.MaxAhead, c.RetryAfter == "reserved"
	}
	if c.Tokens.On() {
		o.Claims = c.Tokens.Claims
	}
	if r != nil {
		o.Endpoints, o.Costs, o.Identified, o.Parts = r.Table, r.Costs, r.Identified, r.Parts
		o.Metered, o.Dearest, o.ClassesBy.Endpoints = r.Metered, r.Dearest, r.Classes
		o.Followed = followed(r)
	}
	return o
}

// Registry is which endpoints exist.
type Registry struct {
	Operations []openapi.Operation
	Table      *endpoint.Table
	Costs      map[endpoint.ID]int64
	Classes    map[endpoint.ID]policy.Class
	CountWhen  map[string]*policy.Statuses  // by template
	WebSockets map[string]gateway.WebSocket // by the template that opens them
	Streams    map[string]gateway.Stream    // by the template of the method
	Identified []endpoint.ID                // where bodies are read for identifiers
	Parts      map[endpoint.ID]int64        // how many requests one may hold, where it may be several
	Metered    []endpoint.ID                // where requests cost what their bodies have
	Dearest    map[endpoint.ID]int64        // what one request may cost there at most
	Priced     []httplimit.Priced           // where operations of GraphQL say what requests cost
	Adaptive   map[string]adaptive.Settings // by template

	// Warnings are what is wrong with parts of the documents: operations that are left out, and such as count as one.
	Warnings []openapi.Warning
}

// Endpoints builds the Registry that c names, or returns every fault found in
// the documents. Parts of OpenAPI documents that are at fault are left out with
// a warning, unless c says otherwise.
func Endpoints(c config.Config) (*Registry, error) {
	var operations []openapi.Operation
	var warnings []openapi.Warning
	var faults []error
	add := func(read func(...string) ([]openapi.Operation, error), files []string) {
		if len(files) == 0 {
			return
		}
		found, err := read(files...)
		operations = append(operations, found...)
		faults = append(faults, err)
	}
	add(func(files ...string) ([]openapi.Operation, error) {
		if c.OpenAPIStrict {
			return openapi.Load(files...)
		}
		found, notes, err := openapi.LoadMost(files...)
		warnings = notes
		return found, err
	}, c.OpenAPI)
	documented := len(operations)
	socketed := counting[gateway.WebSocket]{"websockets", c.WebSockets,
		func(s gateway.WebSocket) gateway.WebSocket { return s }}
	sockets, messages, err := socketed.read()
	faults = append(faults, err)
	called := counting[gateway.Stream]{"grpc_streams", c.GRPCStreams,
		func(s gateway.WebSocket) gateway.Stream { return gateway.Stream(s) }}
	streams, more, err := called.read()
	messages, faults = append(messages, more...), append(faults, err)
	for _, file := range c.Routes {
		add(func(files ...string) ([]openapi.Operation, error) { return openapi.Routes(files[0]) }, []string{file})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(sockets)+len(streams) > 0 {
		openings, _, err := compileEndpoints(c, operations[:documented], operations[documented:])
		if err != nil {
			return nil, err
		}
		if err := errors.Join(socketed.opened(openings, sockets), called.opened(openings, streams)); err != nil {
			return nil, err
		}
	}
	operations = append(operations, messages...)
	if c.Decisions.Admission.Enabled {
		operations = append(operations, asked(decisions.AdmissionTemplates())...)
	}
	table, problems, err := compileEndpoints(c, operations[:documented], operations[documented:])
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		warnings = append(warnings, openapi.Warning{Text: p.String(), LeftOut: p.Err != nil})
		if p.Err != nil {
			operations = slices.DeleteFunc(operations,
				func(o openapi.Operation) bool { return o.Template == p.Template })
		}
	}
	costs, err1 := named(table, "costs", c.Costs)
	classes, err7 := endpointClasses(table, c.Priority.Endpoints)
	counts, err3 := countWhen(table, c.CountWhen)
	reads, err2 := identified(c, table)
	most, err4 := largest(c, table)
	adapted, err5 := adapts(c, table)
	metered, err6 := metered(c, table)
	priced, dearest, err8 := priced(c, table)
	metered = append(metered, slices.Sorted(maps.Keys(dearest))...)
	return &Registry{
			operations, table, costs, classes, counts, sockets, streams, reads, most, metered, dearest, priced, adapted,
			warnings,
		},
		errors.Join(err1, err7, err2, err3, err4, err5, err6, err8, reached(c, table), keyApart(c.Keys, table),
			developersApart(c.Developers.Path, table))
}

// asked are the endpoints that API servers of Kubernetes ask about.
func asked(templates []string) (all []openapi.Operation) {
	for _, text := range templates {
		t, err := endpoint.ParseTemplate(text)
		if err != nil {
			panic(err) // ours to mend
		}
		all = append(all, openapi.Operation{Method: t.Method(), Path: strings.TrimPrefix(text, t.Method()+" "),
			Template: t, Source: "decisions.admission"})
	}
	return all
}

// shownWarnings is how many warnings about documents are logged. `headgate routes` lists them all.
const shownWarnings = 20

// warn logs what is wrong with parts of the documents.
func (r *Registry) warn(log *slog.Logger) {
	for i, w := range r.Warnings {
		if i == shownWarnings {
			log.Warn("openapi: more warnings left out: see `headgate routes`", "count", len(r.Warnings)-i)
			return
		}
		log.Warn("openapi: " + w.String())
	}
}

// compileEndpoints compiles what is declared, the first of which documents declare. The rest is
// from lists, which somebody wrote for this gateway: whoever can mend them is told to.
func compileEndpoints(c config.Config, documented, listed []openapi.Operation) (*endpoint.Table,
	[]endpoint.Problem, error) {
	templates := openapi.Templates(slices.Concat(documented, listed))
	if c.OpenAPIStrict {
		table, err := endpoint.Compile(templates, c.Endpoint.Profile())
		return table, nil, err
	}
	table, problems, err := endpoint.CompileMost(templates, c.Endpoint.Profile())
	if err != nil {
		return nil, nil, err
	}
	inDocument := make(map[endpoint.Template]bool, len(documented))
	for _, op := range documented {
		inDocument[op.Template] = true
	}
	var faults []error
	for _, p := range problems {
		switch {
		case inDocument[p.Template]:
		case p.Err != nil:
			faults = append(faults, p.Err)
		default:
			faults = append(faults,
				fmt.Errorf(
					"templates %q and %q both match %s with equal specificity: remove one, or make one more "+
						"specific", p.Into, p.Template, p.Target))
		}
	}
	return table, problems, errors.Join(faults...)
}

// keyApart says which templates ask for the query parameter that holds API
// keys. What tells endpoints apart must reach the API, and a key must not: with
// api_keys.strip the API would be asked for another endpoint.
func keyApart(k config.Keys, table *endpoint.Table) error {
	if k.Query == "" {
		return nil
	}
	var faults []error
	for _, t := range table.All() {
		for condition := range strings.SplitSeq(t.Query(), "&") {
			if name, _, _ := strings.Cut(condition, "="); strings.EqualFold(name, k.Query) {
				faults = append(faults,
					fmt.Errorf("api_keys.query is %q, want a parameter that tells no endpoints apart, as it does in %q",
						k.Query, t))
			}
		}
	}
	return errors.Join(faults...)
}

// named finds the endpoints to which a setting gives something each, such as a cost.
func named[T any](table *endpoint.Table, setting string, written map[string]T) (map[endpoint.ID]T, error) {
	found := make(map[endpoint.ID]T, len(written))
	var faults []error
	for _, text := range slices.Sorted(maps.Keys(written)) {
		id, err := lookup(table, setting, text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		found[id] = written[text]
	}
	return found, errors.Join(faults...)
}

// endpointClasses finds the endpoints that a configuration gives a class.
func endpointClasses(table *endpoint.Table, written map[string]string) (map[endpoint.ID]policy.Class, error) {
	given := classes(written)
	unknown, ok := given[policy.UnknownEndpoint]
	delete(given, policy.UnknownEndpoint)
	found, err := named(table, "priority.endpoints", given)
	if ok {
		found[endpoint.Unknown] = unknown
	}
	return found, err
}

// classes are what a configuration, which is complete, says of classes.
func classes(written map[string]string) map[string]policy.Class {
	given := make(map[string]policy.Class, len(written))
	for name, text := range written {
		given[name], _ = policy.ParseClass(text)
	}
	return given
}

// countWhen are the answers that rules count, by the template of their endpoint.
func countWhen(table *endpoint.Table, written map[string][]config.Status) (map[string]*policy.Statuses, error) {
	found := make(map[string]*policy.Statuses, len(written))
	var faults []error
	for text, statuses := range written {
		id, err := lookup(table, "count_when", text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		counted, err := config.Statuses(statuses)
		if err != nil {
			faults = append(faults, fmt.Errorf("count_when: %s: %w", text, err)) // Complete has checked it
			continue
		}
		found[table.Template(id).String()] = counted
	}
	return found, errors.Join(faults...)
}

// counting is a setting by which messages count on some endpoints, and what the gateway makes of it.
type counting[T interface {
	MessageEndpoints(endpoint.Template) ([]endpoint.Template, error)
}] struct {
	setting string
	given   map[string]config.WebSocket
	as      func(gateway.WebSocket) T
}

// read returns what counts by the templates as they are written, and the endpoints for which rules about messages are.
func (c counting[T]) read() (counted map[string]T, messages []openapi.Operation, err error) {
	counted = make(map[string]T, len(c.given))
	var faults []error
	for _, text := range slices.Sorted(maps.Keys(c.given)) {
		opening, err := endpoint.ParseTemplate(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", c.setting, err))
			continue
		}
		s := c.given[text]
		one := c.as(s.Counted())
		templates, err := one.MessageEndpoints(opening)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", c.setting, err))
			continue
		}
		counted[opening.String()] = one
		for _, t := range templates {
			path := strings.TrimPrefix(t.String(), t.Method()+" ")
			messages = append(messages, openapi.Operation{Method: t.Method(), Path: path, Template: t,
				Source: c.setting})
		}
	}
	return counted, messages, errors.Join(faults...)
}

// opened names those of counted by the templates of the table, which has to have them.
func (c counting[T]) opened(table *endpoint.Table, counted map[string]T) error {
	var faults []error
	for text, s := range maps.Clone(counted) {
		opening, _ := endpoint.ParseTemplate(text) // which read has read
		id, ok := table.Lookup(opening)
		if !ok {
			faults = append(faults, fmt.Errorf("%s: endpoint is %q, want one of openapi or routes%s", c.setting, text,
				closest(table, opening)))
			continue
		}
		delete(counted, text)
		counted[table.Template(id).String()] = s
	}
	return errors.Join(faults...)
}

// closest names the template that was probably meant.
func closest(table *endpoint.Table, t endpoint.Template) string {
	if near, ok := table.Closest(t); ok {
		return fmt.Sprintf(", such as %q", near)
	}
	return ""
}
