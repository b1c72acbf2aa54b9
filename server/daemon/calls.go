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
func callOptions(c config.Config, table *endpoint.Table) httplimit.CallOptions {
	o := httplimit.CallOptions{Endpoints: table}
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
	return o
}

// reached says which endpoints for messages of MCP no message is for.
func reached(c config.Config, table *endpoint.Table) error {
	if !c.Gateway() {
		return nil // who asks says what is a message
	}
	var faults []error
	for _, t := range table.All() {
		path, ok := strings.CutPrefix(t.String(), endpoint.MCP+" ")
		if ok && !slices.ContainsFunc(c.MCP, func(m config.MCP) bool {
			return strings.HasPrefix(path, strings.TrimPrefix(m.Endpoint, http.MethodPost+" ")+"/")
		}) {
			faults = append(faults, fmt.Errorf("mcp: the registry has %q, want an entry for the endpoint that takes "+
				"the messages, such as POST /mcp for MCP /mcp/tools/call/search", t))
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
		return 0, fmt.Errorf("%s: endpoint is %q, want one that the registry has%s", setting, text,
			closest(table, template))
	}
	return id, nil
}
