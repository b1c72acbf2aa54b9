package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/serve/resp"
	"github.com/headgate-io/headgate/serve/spoe"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/envoy"
)

// handleQuestions puts doors behind the listeners where proxies ask.
func (d *Daemon) handleQuestions() error {
	o, err := d.questions()
	if err != nil {
		return err
	}
	if d.asked.Listener != nil {
		door, err := decisions.New(o)
		if err != nil {
			return err
		}
		d.asked.server.Handler = d.holds.asked.Handler(gateway.Framed(door))
	}
	if d.called.Listener != nil {
		if d.called.other, err = envoy.New(o, d.parts.descriptors.answers(d.parts.meter), d.holds.most); err != nil {
			return err
		}
	}
	if d.redis.Listener != nil {
		if d.redis.other, err = d.newRESP(o); err != nil {
			return err
		}
	}
	if d.haproxy.Listener != nil {
		d.haproxy.other, err = d.newSPOE(o)
	}
	return err
}

func (d *Daemon) newSPOE(o decisions.Options) (*spoe.Server, error) {
	check, err := decisions.Ask(o)
	if err != nil {
		return nil, err
	}
	return spoe.New(spoe.Options{Check: check, Trusted: o.Trusted, MaxConnections: d.holds.most, Failed: o.Failed})
}

func (d *Daemon) newRESP(o decisions.Options) (*resp.Server, error) {
	check, err := decisions.Ask(o)
	if err != nil {
		return nil, err
	}
	password := ""
	if path := d.conf.Decisions.RESPPasswordFile; path != "" {
		if password, err = readSecret(path); err != nil {
			return nil, fmt.Errorf("decisions.resp_password_file: %w", err)
		}
	}
	counters := d.parts.counters
	return resp.New(resp.Options{
		Buckets: counters.buckets, Reach: counters.reach, Keeps: counters.keeps, Now: d.parts.rules.Now, Check: check, Password: password,
		Name:    func(name []byte) (key.Key, uint16) { return counters.name("throttle", name) },
		Trusted: o.Trusted, MaxConnections: d.holds.most, Failed: o.Failed,
	})
}

// questions say who may ask, and how they are answered.
func (d *Daemon) questions() (decisions.Options, error) {
	from, err := config.ParsePrefixes(d.conf.Decisions.From)
	if err != nil {
		return decisions.Options{}, err // Complete has checked it
	}
	warn := seldom(d.log, "a question for a decision was refused")
	return decisions.Options{
		Limiter: d.parts.limiter, Limit: d.answers(), PassOverrides: d.conf.PassOverrideHeaders,
		Trusted: func(a netip.Addr) bool {
			a = a.Unmap().WithZone("")
			return slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Contains(a) })
		},
		Failed: func(f decisions.Fault, err error) {
			d.parts.meter.QuestionRefused(f.String())
			warn(err)
		},
	}, nil
}
