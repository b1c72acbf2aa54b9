package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/llm"
	"github.com/headgate-io/headgate/server/config"
)

// models are the endpoints whose requests cost what their bodies and answers say: those of language models, and those
// that count bytes. What is learned of the requests at some of them is
// kept when the settings are read again, as long as theirs stay what they are.
type models struct {
	meters *httplimit.Meters
	list   []config.LanguageModel
	by     []*llm.Meter
}

func newModels(c config.Config, table *endpoint.Table) (*models, error) {
	m := &models{meters: &httplimit.Meters{}}
	use, err := m.prepare(c, table)
	if err != nil {
		return nil, err
	}
	use()
	return m, nil
}

// prepare checks other settings and returns what has them in force.
func (m *models) prepare(c config.Config, table *endpoint.Table) (use func(), err error) {
	o := httplimit.MeterOptions{Endpoints: table}
	var by []*llm.Meter
	for n := range c.LanguageModels {
		of := &c.LanguageModels[n]
		meter, err := m.meter(of)
		if err != nil {
			return nil, err // Complete has checked it
		}
		by = append(by, meter)
		ask := func(r *http.Request, body []byte, whole bool) (httplimit.Exchange, int64) {
			return meter.Ask(r, body, whole)
		}
		for _, at := range of.Endpoints {
			o.Metered = append(o.Metered, httplimit.Metered{Endpoint: at, Ask: ask, MaxBytes: int(of.MaxBytes),
				ReadTimeout: of.ReadTimeout, Cut: of.AtEnd == "cut"})
		}
	}
	for _, of := range c.Bytes {
		for _, at := range of.Endpoints {
			o.Metered = append(o.Metered, httplimit.Metered{Endpoint: at, Bytes: of.Counted(), Cut: of.AtEnd == "cut"})
		}
	}
	metered, err := m.meters.Prepare(o)
	if err != nil {
		return nil, err
	}
	return func() {
		metered()
		m.list, m.by = c.LanguageModels, by
	}, nil
}

// metered are the endpoints that c names there.
func metered(c config.Config, table *endpoint.Table) (all []endpoint.ID, err error) {
	var faults []error
	find := func(setting string, n int, texts []string) {
		for _, text := range texts {
			id, err := lookup(table, fmt.Sprintf("%s[%d].endpoints", setting, n), text)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			all = append(all, id)
		}
	}
	for n := range c.LanguageModels {
		find("language_models", n, c.LanguageModels[n].Endpoints)
	}
	for n := range c.Bytes {
		find("bytes", n, c.Bytes[n].Endpoints)
	}
	return all, errors.Join(faults...)
}

// meter is the one that is there for the same settings, or a new one.
func (m *models) meter(of *config.LanguageModel) (*llm.Meter, error) {
	for n := range m.list {
		if reflect.DeepEqual(&m.list[n], of) {
			return m.by[n], nil
		}
	}
	return of.Meter()
}
