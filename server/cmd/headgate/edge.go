package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/wasm"
)

func newEdge() *cobra.Command {
	return group("edge", "Make a limiter for proxies that run WebAssembly", newEdgeBuild())
}

// edgeFlags are what `edge build` takes besides the configuration.
type edgeFlags struct {
	policy, out string
	plain, keys bool
	options     wasm.Options
}

func newEdgeBuild() *cobra.Command {
	var from configFlags
	var f edgeFlags
	var out printer
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Write a filter for Envoy, with the rules, endpoints and keys in it",
		Long: `Write a module of WebAssembly that limits requests by the rules of a policy file, with
the endpoints and, with --keys, the API keys of the database in it. It is a filter for
proxies that know proxy-wasm, such as Envoy; with --plain it is for programs that run
JavaScript. No compiler is needed.

Each worker of a proxy has buckets of its own, so N workers admit up to N times a limit.
Rules named by --shared are counted by all workers of one proxy together, exactly.

What the module has no code for is an error that names it: nothing is left out silently.
docs/edge.md says what it does not do.`,
		Example: `  headgate edge build --policy rules.yaml --openapi api.yaml -o filter.wasm
  headgate edge build --policy rules.yaml --routes routes.txt --shared '*' --keys --db sqlite:headgate.db`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.policy == "" {
				return usagef("--policy is empty, want a file with the rules")
			}
			size, err := f.build(cmd, &from)
			if err != nil {
				return err
			}
			return out.say(cmd, map[string]any{"file": f.out, "bytes": size}, "wrote %s, %d bytes", f.out, size)
		},
	}
	from.addFlags(cmd, "openapi", "routes", "unknown", "db", "secret-file")
	flags := cmd.Flags()
	flags.StringVar(&f.policy, "policy", "", "policy file with the rules, YAML or JSON")
	flags.StringVarP(&f.out, "output", "o", "filter.wasm", "file to write")
	flags.BoolVar(&f.plain, "plain", false, "for programs that run JavaScript, not for a proxy")
	flags.BoolVar(&f.keys, "keys", false, "know the API keys of the database, by their digests")
	flags.StringVar(&f.options.KeyHeader, "key-header", "X-Api-Key", "field that holds a key")
	flags.StringArrayVar(&f.options.Shared, "shared", nil,
		"name of a rule that all workers of a proxy count together, or * (repeatable)")
	flags.IntVar(&f.options.TrustedHops, "trusted-hops", 0,
		"which entry of X-Forwarded-For, from the right, is the client; 0: the proxy says")
	flags.IntVar(&f.options.Buckets, "buckets", 1<<16, "buckets of one worker, 34 bytes each")
	flags.IntVar(&f.options.SharedBuckets, "shared-buckets", 1<<14, "buckets that workers share")
	out.addFlags(cmd)
	return cmd
}

func (f *edgeFlags) build(cmd *cobra.Command, from *configFlags) (size int, err error) {
	c, err := from.read(cmd)
	if err != nil {
		return 0, err
	}
	if len(c.OpenAPI)+len(c.Routes) == 0 {
		return 0, usagef("no document: give --openapi FILE, --routes FILE, or --config FILE that names one")
	}
	doc, err := readPolicies(f.policy)
	if err != nil {
		return 0, err
	}
	compile, err := compileOptions(c, from.file)
	if err != nil {
		return 0, err
	}
	set, problems := policy.Compile(doc, compile)
	if set == nil {
		return 0, problems.Err()
	}
	for _, p := range problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", p.Severity, plain(p.Error()))
	}
	f.options.Policies, f.options.RejectUnknown = set, c.Unknown != "limit"
	if f.keys {
		if err := withKeys(cmd, from, forReading, f.readKeys); err != nil {
			return 0, err
		}
	}
	kind := wasm.Filter
	if f.plain {
		kind = wasm.Plain
	}
	module, err := wasm.Build(kind, f.options)
	if err != nil {
		return 0, fmt.Errorf("%s as a module: %w", f.policy, err)
	}
	return len(module), os.WriteFile(f.out, module, 0o600)
}

func (f *edgeFlags) readKeys(ctx context.Context, db *database.Store, c config.Config) error {
	secrets, err := database.ReadSecrets(c.SecretFile, nil)
	if err != nil {
		return err
	}
	if secrets.Previous != nil {
		return errors.New("the secret is being replaced, want that finished: `headgate secret rotate --drop-old`")
	}
	f.options.Secret = secrets.Current
	f.options.Keys, _, err = db.Keys().Load(ctx)
	return err
}
