package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// configFlags are the flags that stand for fields of the configuration file.
// A flag that is given wins over the file.
type configFlags struct {
	file  string
	given config.Config
	apply map[string]func(to, from *config.Config)
	from  *config.Source // the file, once it was read

	through throughFlags // of commands that a gateway may do too
}

// addFlags declares the named flags on cmd, and --config with them.
func (f *configFlags) addFlags(cmd *cobra.Command, names ...string) {
	f.apply = map[string]func(to, from *config.Config){}
	flags := cmd.Flags()
	flags.StringVar(&f.file, "config", "", "YAML file with any of the settings; flags win over it")
	for _, name := range names {
		if name == "server" {
			f.through.addFlags(cmd)
			continue
		}
		f.add(flags, name)
	}
}

func (f *configFlags) add(flags *pflag.FlagSet, name string) {
	g, d := &f.given, config.Default()
	text := func(field func(*config.Config) *string, help string) {
		flags.StringVar(field(g), name, *field(&d), help)
		f.apply[name] = func(to, from *config.Config) { *field(to) = *field(from) }
	}
	list := func(field func(*config.Config) *[]string, help string) {
		flags.StringArrayVar(field(g), name, nil, help+" (repeatable)")
		f.apply[name] = func(to, from *config.Config) { *field(to) = *field(from) }
	}
	switch name {
	case "listen":
		text(func(c *config.Config) *string { return &c.Listen }, "address of the gateway, or none")
	case "decisions":
		text(func(c *config.Config) *string { return &c.Decisions.Listen },
			"address where proxies ask over HTTP whether a request may pass")
	case "decisions-grpc":
		text(func(c *config.Config) *string { return &c.Decisions.GRPC },
			"address where Envoy asks over gRPC (ext_authz)")
	case "admin":
		text(func(c *config.Config) *string { return &c.Admin },
			"address of the admin listener: metrics, health and the admin API")
	case "admin-token-file":
		text(func(c *config.Config) *string { return &c.AdminTokenFile },
			"file with the token of the admin listener; needed beyond loopback")
	case "decisions-resp":
		text(func(c *config.Config) *string { return &c.Decisions.RESP },
			"address where clients of Redis ask (CL.THROTTLE, HG.CHECK)")
	case "decisions-spoe":
		text(func(c *config.Config) *string { return &c.Decisions.SPOE },
			"address where HAProxy asks by its filter spoe")
	case "upstream":
		text(func(c *config.Config) *string { return &c.Upstream }, "URL of the API to protect")
	case "db":
		text(func(c *config.Config) *string {
			return &c.DB
		}, "policy database: sqlite:PATH, postgres://…, mysql://… or kubernetes:NAMESPACE (a password belongs in "+
			"PGPASSWORD, MYSQL_PWD or db_password_file)")
	case "secret-file":
		text(func(c *config.Config) *string { return &c.SecretFile },
			"secret under which API keys are hashed (default: beside the database)")
		flags.Lookup(name).DefValue = ""
	case "engine":
		text(func(c *config.Config) *string { return &c.Engine }, "what reads requests: net/http, fast or auto")
	case "unknown":
		text(func(c *config.Config) *string { return &c.Unknown }, "requests that match no endpoint: reject or limit")
	case "openapi":
		list(func(c *config.Config) *[]string { return &c.OpenAPI },
			"OpenAPI or Swagger document with the endpoints, YAML or JSON")
	case "routes":
		list(func(c *config.Config) *[]string {
			return &c.Routes
		}, "file with the endpoints as lines METHOD /template, or in another notation, such as gin:FILE or "+
			"protoset:FILE")
	case "trusted-proxy":
		list(func(c *config.Config) *[]string { return &c.TrustedProxies },
			"network whose forwarding header is believed, such as 10.0.0.0/8")
	case "max-buckets":
		flags.IntVar(&g.MaxBuckets, name, d.MaxBuckets, "buckets that the table holds, at about 44 bytes each")
		f.apply[name] = func(to, from *config.Config) { to.MaxBuckets = from.MaxBuckets }
	case "max-wait":
		flags.DurationVar(&g.MaxWait, name, d.MaxWait,
			"longest that leaky_bucket rules hold a request back; 0s refuses it instead")
		f.apply[name] = func(to, from *config.Config) { to.MaxWait = from.MaxWait }
	case "max-waiters":
		flags.IntVar(&g.MaxWaiters, name, d.MaxWaiters, "requests that may wait for their turn at the same time")
		f.apply[name] = func(to, from *config.Config) { to.MaxWaiters = from.MaxWaiters }
	case "max-connections":
		flags.IntVar(&g.Clients.MaxConnections, name, d.Clients.MaxConnections,
			"connections of clients in total; 0: as many as there are descriptors for")
		f.apply[name] = func(to, from *config.Config) { to.Clients.MaxConnections = from.Clients.MaxConnections }
	case "max-connections-per-address":
		flags.IntVar(&g.Clients.MaxPerAddress, name, d.Clients.MaxPerAddress,
			"connections of one client address; 0: an eighth of the total, 1024 at most")
		f.apply[name] = func(to, from *config.Config) { to.Clients.MaxPerAddress = from.Clients.MaxPerAddress }
	case "max-bytes":
		flags.Var(&g.MaxBytes, name, "size of the bucket table in memory instead, such as 64MiB")
		flags.Lookup(name).DefValue = ""
		f.apply[name] = func(to, from *config.Config) { to.MaxBytes = from.MaxBytes }
	default:
		panic("no such configuration flag: " + name) // ours to mend
	}
}

// settingsOf are the settings of flags that have other names.
var settingsOf = map[string]string{
	"decisions": "decisions.listen", "decisions-grpc": "decisions.grpc", "decisions-resp": "decisions.resp",
	"decisions-spoe": "decisions.spoe", "trusted-proxy": "trusted_proxies",
	"max-connections":             "clients.max_connections",
	"max-connections-per-address": "clients.max_connections_per_address",
}

// read returns the defaults, the file's settings over them, and the flags over
// both, unchecked. With an error it has those that could be read.
func (f *configFlags) read(cmd *cobra.Command) (c config.Config, err error) {
	c, f.from = config.Default(), nil
	if f.file != "" {
		if c, f.from, err = config.Open(f.file); err != nil {
			err = usageError{err}
		}
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if apply, ok := f.apply[flag.Name]; ok {
			apply(&c, &f.given)
			f.from.Given(cmp.Or(settingsOf[flag.Name], strings.ReplaceAll(flag.Name, "-", "_")))
		}
	})
	return c, err
}

// complete returns the whole configuration, changed and then checked. A fault is one of usage,
// whether it came by file or by flag; those of the file that could not be read are among them.
func (f *configFlags) complete(cmd *cobra.Command, change ...func(*config.Config)) (config.Config, error) {
	c, err := f.read(cmd)
	if err != nil && f.from == nil {
		return c, err
	}
	for _, one := range change {
		one(&c)
	}
	if err := f.from.Complete(&c); err != nil {
		return c, usageError{err}
	}
	return c, nil
}

// offline is complete for those who only look: nothing is passed on, so that no upstream is needed.
func (f *configFlags) offline(cmd *cobra.Command) (config.Config, error) {
	return f.complete(cmd, func(c *config.Config) {
		if c.Upstream == "" && c.Gateway() {
			c.Upstream = "http://127.0.0.1"
		}
	})
}

// days is the value of a flag for a time that may be of days.
type days time.Duration

func (d *days) String() string { return time.Duration(*d).String() }
func (d *days) Type() string   { return "duration" }

func (d *days) Set(text string) error {
	read, err := policy.ParseDuration(text)
	*d = days(read)
	return err
}
