package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/graphql"
)

// priced reads the schemas of GraphQL that c names, and says what one request may cost at most, by endpoint.
func priced(c config.Config, table *endpoint.Table) (all []httplimit.Priced, dearest map[endpoint.ID]int64, err error) {
	dearest = map[endpoint.ID]int64{}
	var faults []error
	for n, g := range c.GraphQL {
		setting := fmt.Sprintf("graphql[%d]", n)
		var pricer *graphql.Pricer
		text, err := readSchema(g.Schema)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s.schema: %w", setting, err))
		} else if pricer, err = graphql.New(g.Schema, text, g.Options()); err != nil {
			for fault := range strings.SplitSeq(err.Error(), "\n") { // else only the first says of which entry it is
				faults = append(faults, fmt.Errorf("%s: %s", setting, fault))
			}
		}
		for _, at := range g.Endpoints {
			id, err := lookup(table, setting+".endpoints", at)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			dearest[id] = cmp.Or(g.MaxCost, graphql.DefaultCost)
			all = append(all, httplimit.Priced{Endpoint: at, Price: pricer.Price, Portions: pricer.Portions,
				Refuse: graphql.Refuse, MaxBytes: int(g.MaxBytes), ReadTimeout: g.ReadTimeout})
		}
	}
	return all, dearest, errors.Join(faults...)
}

// readSchema reads a file that is no longer than a schema may be.
func readSchema(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, graphql.MostSchemaBytes+1))
	return string(text), err
}
