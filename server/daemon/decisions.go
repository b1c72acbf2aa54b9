package daemon

import (
	"fmt"
	"net/netip"

	"github.com/headgate-io/headgate/gateway"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/serve/resp"
	"github.com/headgate-io/headgate/serve/spoe"
	"github.com/headgate-io/headgate/server/envoy"
)

// handleQuestions puts doors behind the listeners where proxies ask.
func (d *Daemon) handleQuestions() (err error) {
	o := d.questions("decisions.listen")
	if d.answers, err = decisions.NewAnswers(o); err != nil {
		return err
	}
	o.Answers = d.answers
	if d.asked.Listener != nil {
		over := o
		if a := d.conf.Decisions.Admission; a.Enabled {
			over.Admission = &decisions.Admission{Groups: a.Groups, Timeout: a.Timeout}
		}
		door, err := decisions.New(over)
		if err != nil {
			return err
		}
		d.asked.server.Handler = d.holds.asked.Handler(gateway.Framed(d.parts.traced(door)))
	}
	if d.called.Listener != nil {
		if d.called.other, err = envoy.New(d.questionsAt("decisions.grpc", o), d.parts.descriptors.answers(d.parts),
			d.holds.most); err != nil {
			return err
		}
	}
	if d.redis.Listener != nil {
		if d.redis.other, err = d.newRESP(d.questionsAt("decisions.resp", o)); err != nil {
			return err
		}
	}
	if d.haproxy.Listener != nil {
		if d.haproxy.other, err = d.newSPOE(d.questionsAt("decisions.spoe", o)); err != nil {
			return err
		}
	}
	d.secure()
	return nil
}

// secure has those who ask speak TLS, if they are to.
func (d *Daemon) secure() {
	t := d.parts.askTLS
	d.asked.Listener = t.listen(d.asked.Listener)
	d.called.Listener = t.listenFor(d.called.Listener, []string{"h2"})
	d.redis.Listener = t.listenFor(d.redis.Listener, nil)
	d.haproxy.Listener = t.listenFor(d.haproxy.Listener, nil)
}

func (d *Daemon) newSPOE(o decisions.Options) (*spoe.Server, error) {
	return spoe.New(spoe.Options{
		Check:          d.answers.Ask,
		Trusted:        o.Trusted,
		MaxConnections: d.holds.most,
		Failed:         o.Failed,
	})
}

func (d *Daemon) newRESP(o decisions.Options) (_ *resp.Server, err error) {
	password := ""
	if path := d.conf.Decisions.RESPPasswordFile; path != "" {
		if password, err = readSecret(path); err != nil {
			return nil, fmt.Errorf("decisions.resp_password_file: %w", err)
		}
	}
	counters := d.parts.counters
	return resp.New(resp.Options{
		Buckets: counters.buckets, Reach: counters.reach, Keeps: counters.keeps, Now: d.parts.rules.Now,
		Check: d.answers.Ask, Password: password,
		Name:    func(name []byte) (key.Key, uint16) { return counters.name("throttle", name) },
		Trusted: o.Trusted, MaxConnections: d.holds.most, Failed: o.Failed,
	})
}

// questionsAt are o for those who may ask at another listener.
func (d *Daemon) questionsAt(listener string, o decisions.Options) decisions.Options {
	o.Trusted = func(a netip.Addr) bool { return d.parts.loaded.Load().from[listener].have(a) }
	return o
}

// questions say who may ask at a listener, and how they are answered.
func (d *Daemon) questions(listener string) decisions.Options {
	c := &d.parts.loaded.Load().conf
	warn := seldom(d.log, "a question for a decision was refused")
	return d.questionsAt(listener, decisions.Options{
		Limiter: d.parts.limiter, Limit: d.limit(c), PassOverrides: c.PassOverrideHeaders,
		Failed: func(f decisions.Fault, err error) {
			d.parts.meter.QuestionRefused(f.String())
			warn(err)
		},
	})
}
