package config

import "time"

// AdminAccess says who may use the admin listener, and how long it is remembered
// what they did; see docs/admin-api.md.
type AdminAccess struct {
	// Auth says when a token is needed: loopback, if the listener can be
	// reached from other machines or AdminTokenFile is set; always, whatever
	// it listens on. Then the tokens of the database do too. Default loopback.
	Auth string `yaml:"admin_auth"`

	// Calls bounds the record of calls.
	Calls AdminCalls `yaml:"admin_calls"`
}

// AdminCalls bounds the record of calls of the admin listener.
type AdminCalls struct {
	// Keep is how long a call is remembered. Default 2160h (90 days).
	Keep time.Duration `yaml:"keep"`

	// MaxLooks is how many calls are remembered that changed nothing, and
	// MaxChanges how many that may have changed something; the oldest go first.
	// Default 1000000 each.
	MaxLooks   int64 `yaml:"max_looks"`
	MaxChanges int64 `yaml:"max_changes"`
}

const mostCalls = 1_000_000_000

func defaultAdminAccess() AdminAccess {
	return AdminAccess{
		Auth:  "loopback",
		Calls: AdminCalls{Keep: 90 * 24 * time.Hour, MaxLooks: 1_000_000, MaxChanges: 1_000_000},
	}
}

// NeedsAdminToken reports whether the admin listener serves nobody without a
// token.
func (c *Config) NeedsAdminToken() bool {
	return c.AdminAccess.Auth == "always" || c.AdminTokenFile != "" || !Loopback(c.Admin)
}

func (c *checker) adminAccess(conf *Config) {
	a := conf.AdminAccess
	c.oneOf("admin_auth", a.Auth, "loopback", "always")
	if !Loopback(conf.Admin) && conf.AdminTokenFile == "" && a.Auth != "always" {
		c.wrong("admin", conf.Admin, "a loopback address, or admin_auth: always with a token of `headgate admin "+
			"token create`, or admin_token_file set, so that strangers cannot change the rules")
	}
	c.duration("admin_calls.keep", a.Calls.Keep, 24*time.Hour, 10*365*24*time.Hour)
	c.between("admin_calls.max_looks", a.Calls.MaxLooks, 0, mostCalls)
	c.between("admin_calls.max_changes", a.Calls.MaxChanges, 1000, mostCalls)
}
