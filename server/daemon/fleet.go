package daemon

import (
	"context"
	"log/slog"
	"os"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/fleet"
)

// newHeartbeat makes this replica known to others, or returns nil if it is not to
// be: by its configuration, or because the rules are in a table that is only
// read.
func (p *parts) newHeartbeat(c config.Config, o Options) *fleet.Heartbeat {
	if c.Fleet.Interval == 0 {
		return nil
	}
	if c.RulesElsewhere() {
		logger(o.Log).Debug("fleet: others cannot see this replica: the table of db_table is only read")
		return nil
	}
	return fleet.NewHeartbeat(fleet.Options{
		Registry: p.database.registry, Status: p.rules.Status, Name: p.name, Program: o.Version,
		Every: c.Fleet.Interval, Log: o.Log,
		Ahead: p.shared.ahead,
	})
}

// replicaName is what this replica is called.
func replicaName(c config.Config) string {
	if c.Fleet.Name != "" {
		return c.Fleet.Name
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "replica"
	}
	return fleet.DefaultName(host, c.Listen, c.Admin)
}

func logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.Default()
	}
	return log
}

// others is how many other replicas there are, as far as that is known.
func (p *parts) others() (n int, known bool) {
	if p.heartbeat == nil {
		return 0, false
	}
	return p.heartbeat.Others()
}

// book is where replicas tell of themselves, nil while the database could never
// be opened.
func (d *policyDatabase) registry() fleet.Registry {
	if s := d.opened(); s != nil {
		return s
	}
	return nil // not a nil *database.Store in an interface
}

// fleet reports all replicas.
func (d *policyDatabase) fleet(ctx context.Context) (fleet.Report, error) {
	s, err := d.get(ctx)
	if err != nil {
		return fleet.Report{}, err
	}
	f, err := s.Fleet(ctx)
	return fleet.Judge(f), err
}

// told is what the metrics say of this replica's words, nil if it has none.
func (p *parts) told() func() (ok bool, failures uint64) {
	if p.heartbeat == nil {
		return nil
	}
	return p.heartbeat.Reported
}
