package config

import (
	"regexp"
	"time"
)

// Fleet says how this replica makes itself known to those who ask which rules
// are in force where; see docs/fleet.md.
type Fleet struct {
	// Name is what the replica is called. Default the host's name and a short
	// text for the addresses it listens on.
	Name string `yaml:"replica_name"`

	// Interval is how often it tells how it is, in the policy database. 0
	// means never. Default 5s.
	Interval time.Duration `yaml:"replica_interval"`
}

func defaultFleet() Fleet { return Fleet{Interval: 5 * time.Second} }

var replicaName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$`)

func (c *checker) fleet(f Fleet) {
	if f.Name != "" && !replicaName.MatchString(f.Name) {
		c.wrong("replica_name", f.Name,
			"1 to 100 letters, digits, dots, colons, hyphens and underscores, beginning with a letter or digit")
	}
	if f.Interval != 0 {
		c.duration("replica_interval", f.Interval, 100*time.Millisecond, time.Hour)
	}
}
