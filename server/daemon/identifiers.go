package daemon

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/text/unicode/norm"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/config"
)

// identifierOptions say which bodies are read, as c names them.
func identifierOptions(c config.Config, table *endpoint.Table,
	log *slog.Logger) (o httplimit.IdentifierOptions, err error) {
	o = httplimit.IdentifierOptions{
		Endpoints: table, Timeout: c.Settle.Timeout,
		Failed: seldom(log, "a login that succeeded was not settled and counts as a failure"),
	}
	for _, i := range c.Identifiers {
		login, err := login(i)
		if err != nil {
			return o, err // Complete has checked it
		}
		o.Logins = append(o.Logins, login)
	}
	return o, nil
}

func login(i config.Identifier) (httplimit.Login, error) {
	spellings, nfkc, err := i.Spellings()
	l := httplimit.Login{
		Endpoint: i.Endpoint, ReadTimeout: i.ReadTimeout, Reject: i.Unparsable == "reject",
		CountFailures: i.Count == "failures", FailureStatuses: i.FailureStatuses,
		Field: body.Field{
			Name:      i.Field,
			MaxBytes:  int(i.MaxBytes),
			MaxDepth:  i.MaxDepth,
			MaxLength: i.MaxLength,
			Spellings: spellings,
		},
	}
	if nfkc {
		l.Field.Compose = func(dst, src []byte) []byte { return norm.NFKC.Append(dst, src...) }
	}
	return l, errors.Join(err, l.Field.Format.UnmarshalText([]byte(i.Format)))
}

// identified returns the endpoints where c reads identifiers.
func identified(c config.Config, table *endpoint.Table) ([]endpoint.ID, error) {
	var ids []endpoint.ID
	var faults []error
	for n, i := range c.Identifiers {
		id, err := lookup(table, fmt.Sprintf("identifiers[%d]", n), i.Endpoint)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		ids = append(ids, id)
	}
	return ids, errors.Join(faults...)
}
