package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/config"
)

// callOptions say whose bodies are read for the requests that they hold.
func callOptions(c config.Config, r *Registry) httplimit.CallOptions {
	table := r.Table
	o := httplimit.CallOptions{Endpoints: table, Priced: r.Priced}
	for _, b := range c.Batches {
		o.Batches = append(o.Batches, httplimit.Batch{
			Endpoint: b.Endpoint, Parts: b.Parts(), Single: b.Batches == "refuse", ReadTimeout: b.ReadTimeout,
		})
	}
	for _, m := range c.MCP {
		o.MCP = append(o.MCP, httplimit.MCP{
			Endpoint: m.Endpoint, MaxBytes: int(m.MaxBytes), ReadTimeout: m.ReadTimeout,
		})
	}
	for _, m := range c.LanguageModels {
		for _, at := range m.Endpoints {
			if modelsAt(table, at) {
				o.Models = append(o.Models, httplimit.Models{
					Endpoint: at, MaxBytes: int(m.MaxBytes), ReadTimeout: m.ReadTimeout,
				})
			}
		}
	}
	return o
}

// modelsAt reports whether models have endpoints of their own at one that takes requests for them.
func modelsAt(table *endpoint.Table, at string) bool {
	for _, t := range table.All() {
		if path, ok := strings.CutPrefix(t.String(), endpoint.Model+" "); ok && below(path, at) {
			return true
		}
	}
	return false
}

// below reports whether a path is that of a message at an endpoint.
func below(path, at string) bool {
	at, ok := strings.CutPrefix(at, http.MethodPost+" ")
	return ok && strings.HasPrefix(path, at+"/")
}

// reached says which endpoints for the bodies of requests no body is for, and which endpoints of mcp there are none.
func reached(c config.Config, table *endpoint.Table) error {
	if !c.Gateway() {
		return nil // who asks says what is a message
	}
	var faults []error
	for n := range c.MCP {
		if _, err := lookup(table, fmt.Sprintf("mcp[%d]", n), c.MCP[n].Endpoint); err != nil {
			faults = append(faults, err)
		}
	}
	for _, t := range table.All() {
		switch method, path, _ := strings.Cut(t.String(), " "); {
		case method == endpoint.MCP &&
			!slices.ContainsFunc(c.MCP, func(m config.MCP) bool { return below(path, m.Endpoint) }):
			faults = append(faults, fmt.Errorf("mcp: openapi or routes has %q, want an entry for the endpoint that "+
				"takes the messages, such as POST /mcp for MCP /mcp/tools/call/search", t))
		case method == endpoint.Model && !slices.ContainsFunc(c.LanguageModels, func(m config.LanguageModel) bool {
			return slices.ContainsFunc(m.Endpoints, func(at string) bool { return below(path, at) })
		}):
			faults = append(faults, fmt.Errorf("language_models: openapi or routes has %q, want an entry for the "+
				"endpoint that takes the requests, such as POST /v1/messages for MODEL /v1/messages/large", t))
		}
	}
	return errors.Join(faults...)
}

// largest is how many requests one of an endpoint may hold, for those where it may be more than one.
func largest(c config.Config, table *endpoint.Table) (map[endpoint.ID]int64, error) {
	most := make(map[endpoint.ID]int64, len(c.Batches))
	var faults []error
	for n, b := range c.Batches {
		id, err := lookup(table, fmt.Sprintf("batches[%d]", n), b.Endpoint)
		if err != nil {
			faults = append(faults, err)
		} else if b.Batches != "refuse" {
			most[id] = int64(cmp.Or(b.MaxParts, body.DefaultParts))
		}
	}
	return most, errors.Join(faults...)
}

// lookup finds the endpoint that a setting names.
func lookup(table *endpoint.Table, setting, text string) (endpoint.ID, error) {
	template, err := endpoint.ParseTemplate(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", setting, err)
	}
	id, ok := table.Lookup(template)
	if !ok {
		return 0, fmt.Errorf("%s: endpoint is %q, want one of openapi or routes%s", setting, text,
			closest(table, template))
	}
	return id, nil
}
