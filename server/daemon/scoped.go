package daemon

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/memory"
	buckets "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
)

// over is where rules find their buckets: in this process, or on the store
// that gateways share, as their scopes say. Without a store all are here. Now is
// the clock that decisions are made by, which never steps.
func (s *shared) over(local *memory.Store, others *gossiping, now func() int64) (bucket.Store, error) {
	if s == nil {
		return others.over(local, now)
	}
	s.now = now
	if err := s.leasing(); err != nil {
		return nil, err
	}
	var err error
	s.scoped, err = scoped.New(scoped.Options{
		Local: local, Strict: s.strict, Gossip: others.store(), Leases: s.leases, Free: s.conf.Free(),
		Reports: s.reports, Replicas: s.members.Replicas, Count: s.members.Count,
		Began: now(), Deadline: s.conf.Deadline, Fault: faulty, Server: s.link.Server, Changed: s.changed,
	})
	return s.scoped, err
}

// leasing makes what takes from the store in advance, and what tells it afterwards, where the server can keep both.
func (s *shared) leasing() (err error) {
	if s.lessor == nil {
		return nil
	}
	ttl := s.conf.LeaseTTL
	s.leases, err = lease.New(lease.Options{
		Authority: s.lessor, Terms: lease.Terms{TTL: ttl, Poll: max(time.Millisecond, ttl/4)},
		Deadline: s.conf.Deadline, Gather: min(gather, s.conf.Deadline/4),
	})
	if err != nil {
		return err
	}
	s.reports, err = report.New(report.Options{
		Authority: s.ledger, Interval: s.conf.SyncInterval, Deadline: s.conf.Deadline,
		Gather: min(gather, s.conf.SyncInterval/4), Now: s.now,
	})
	return err
}

// gather is how long questions about leases, and reports that are urgent, wait for others to go by the same
// script. Only requests that have to wait for the store wait for it.
const gather = time.Millisecond

// keeps says why the store cannot count a limit, or what is left of it beside
// the parts that gateways have to themselves.
func keeps(c config.Store) func(rate.Shape) error {
	if c.Throttles() {
		return buckets.Throttles
	}
	return func(sh rate.Shape) error {
		if sh.Algorithm == rate.SlidingLog {
			return nil // of requests under way, which the store counts one by one
		}
		_, rest, _ := sh.SetAside(c.LeaseFree, 1)
		_, err := buckets.Coarsen(sh)
		_, beside := buckets.Coarsen(rest)
		return cmp.Or(err, beside)
	}
}

// naming names buckets for all gateways, nil without a store.
func (s *shared) naming() *key.Namer {
	if s == nil {
		return nil
	}
	return s.names
}

// faulty reports whether an error says something about the server, and not about
// one bucket or one limit: whoever asks for a limit that no store can keep must not
// have the rules of others decided without it.
func faulty(err error) bool {
	var why *buckets.Error
	if errors.As(err, &why) {
		return why.Cause != buckets.ForeignValue
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// changed says that decisions are made without a server from now on, or with it
// again.
func (s *shared) changed(one scoped.Server, now scoped.Status) {
	name, since := s.serverName(one.Number), s.wall(one.Since)
	if one.Lost {
		s.log.Warn("requests are decided without the store of shared buckets, as each rule says for that", "server",
			name, "because", one.Why, "since", since.UTC(), "replicas", now.Replicas)
		return
	}
	s.log.Info("requests are decided with the store of shared buckets again", "server", name, "without",
		time.Duration(s.now()-one.Since).Round(time.Millisecond),
		"admitted_by_share", one.Shared, "admitted_open", one.Opened, "denied", one.Denied)
}

// wall is a time of the clock that decisions are made by as people read it: by
// the wall clock as it is set now.
func (s *shared) wall(at int64) time.Time { return time.Now().Add(time.Duration(at - s.now())) }

// serverName is what a server is called in the log: its address, as configured
// or as its cluster tells it.
func (s *shared) serverName(number int) string {
	if names := s.link.Servers(); number < len(names) && names[number] != "" {
		return names[number]
	}
	return "one that left the cluster"
}

// lost tells whether decisions are made without the server, and what became of
// them.
func (s *shared) lost(m *metrics.StoreStatus) {
	now := s.scoped.Status()
	m.Lost = now.Lost
	if now.Lost {
		m.LostSince = s.wall(now.Since)
	}
	m.Losses = now.Losses
	m.Servers = map[string]metrics.StoreServer{}
	for _, name := range s.link.Servers() {
		if name != "" {
			m.Servers[name] = metrics.StoreServer{}
		}
	}
	for _, one := range now.Servers {
		if one.Lost {
			m.Servers[s.serverName(one.Number)] = metrics.StoreServer{Lost: true, Since: s.wall(one.Since)}
		}
	}
	m.Without = map[string]uint64{"failed": now.Failed, "denied": now.Denied, "share": now.Shared, "open": now.Opened}
	m.Spared, m.Undone, m.Replayed, m.Missed = now.Spared, now.Undone, now.Replayed, now.Missed
	if s.leases == nil {
		return
	}
	held := s.leases.Status()
	m.Leases = metrics.LeaseStatus{
		Free: now.Free, Buckets: held.Accounts, Messages: held.Messages, Questions: held.Questions, Short: held.Short,
		Failed:  held.Failed,
		Granted: held.Granted, Returned: held.Returned, Expired: held.Expired,
	}
	known := s.reports.Status()
	m.Syncs = metrics.SyncStatus{
		Buckets: known.Accounts, Pending: known.Pending, Messages: known.Messages, Reports: known.Reports,
		Failed:   known.Failed,
		Admitted: known.Admitted, Charged: known.Charged, Returned: known.Returned, Denied: known.Denied,
		Asked: known.Asked,
	}
}
