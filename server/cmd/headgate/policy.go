package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
)

func newPolicy() *cobra.Command {
	return group("policy", "Read and change the rules in the database",
		newPolicySet(), newPolicyTry(), newPolicyDraw(), newPolicyGet(), newPolicyList(), newPolicyDelete(),
		newPolicyLint(), newPolicyImport(), newPolicyExport(), newPolicyApply(),
		newPolicyHistory(), newPolicyDiff(), newPolicyRollback())
}

const endpointHelp = `ENDPOINT is a template such as 'GET /v1/items/{id}', or one of the reserved names:
"default" (every endpoint without a rule of its own), "UNKNOWN" (requests that
match no endpoint, and the last resort of the others) and "*" (all endpoints
together, in addition to their own rules).`

// ruleFlags name a rule, besides its endpoint.
type ruleFlags struct {
	project, tier, subject string
	temporary              bool
}

func (f *ruleFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.project, "project", "", "the rule of this project alone")
	cmd.Flags().StringVar(&f.tier, "tier", "", "the rule of the projects in this tier")
	cmd.Flags().StringVar(&f.subject, "subject", "principal", "whose requests share a bucket: principal, ip, "+
		"principal_ip, project, region, endpoint, identifier, identifier_ip, site, or by name path:PARAMETER or "+
		"claim:CLAIM; each behind in_flight: for how many are under way at once, or requests: for how many there "+
		"are, whatever each costs; of rules that allow or block, "+
		"also one network or caller: ip:192.0.2.0/24, api_key:ID, token:ID, certificate:ID, user:ID or signed_agent:ID")
}

// addTemporary is for commands that name a rule which is there.
func (f *ruleFlags) addTemporary(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.temporary, "temporary", false, "the rule that expires, and not the lasting one beside it")
}

func (f *ruleFlags) key(r policy.Rule) record.RuleKey {
	key := record.KeyOf(r)
	key.Temporary = f.temporary
	return key
}

func (f *ruleFlags) rule(endpoint string) (policy.Rule, error) {
	rule := policy.Rule{Endpoint: endpoint, Project: f.project, Tier: f.tier}
	var both error
	if f.project != "" && f.tier != "" {
		both = fmt.Errorf("--project is %q and --tier %q, want one of the two", f.project, f.tier)
	}
	if err := errors.Join(both, rule.SetSubject(f.subject)); err != nil {
		return rule, usageError{err}
	}
	return rule, nil
}

// author is who runs the command, for the history of the rules.
func author(why string) record.Author {
	who := localUser()
	if who == "" {
		who = "unknown"
	}
	return record.Author{Actor: "local:" + who, Why: why}
}

// opener opens the database that a configuration names.
type opener func(context.Context, config.Config) (*database.Store, error)

func forWriting(ctx context.Context, c config.Config) (*database.Store, error) {
	return daemon.OpenDatabase(ctx, c)
}

// forMending is forWriting for those who can only change what is there: it
// makes no database where there is none.
func forMending(ctx context.Context, c config.Config) (*database.Store, error) {
	looked, err := forReading(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := looked.Close(); err != nil {
		return nil, err
	}
	return forWriting(ctx, c)
}

func forReading(ctx context.Context, c config.Config) (*database.Store, error) {
	return daemon.OpenDatabaseReadOnly(ctx, c)
}

// changeRules opens the documents that were named and, once check is content,
// the database: what is refused makes no database.
func changeRules(cmd *cobra.Command, from *configFlags, check func(policy.CompileOptions) error,
	do func(context.Context, editor, policy.CompileOptions) error) error {
	return withRules(cmd, from, check, forWriting, do)
}

// readRules is changeRules for those who only look.
func readRules(cmd *cobra.Command, from *configFlags,
	do func(context.Context, editor, policy.CompileOptions) error) error {
	return withRules(cmd, from, unchecked, forReading, do)
}

func unchecked(policy.CompileOptions) error { return nil }

func withRules(cmd *cobra.Command, from *configFlags, check func(policy.CompileOptions) error, open opener,
	do func(context.Context, editor, policy.CompileOptions) error) error {
	c, err := from.read(cmd)
	if err != nil {
		return err
	}
	o, err := compileOptions(c, from.file)
	if err != nil {
		return err
	}
	if err := check(o); err != nil {
		return err
	}
	return through(cmd, &from.through, from, open, func(c *client.Client) editor { return c },
		func(s *database.Store) editor { return s },
		func(db editor) error { return do(cmd.Context(), db, o) })
}

// editor is where rules are looked at and changed: a database, or a gateway that
// has one.
type editor interface {
	rules.Editor
	Get(ctx context.Context, k record.RuleKey) (policy.Rule, error)
	List(ctx context.Context) ([]policy.Rule, error)
	Export(ctx context.Context) (policy.Document, error)
	Delete(ctx context.Context, a record.Author, k record.RuleKey) error
	SetTier(ctx context.Context, a record.Author, project, tier string) error
	Import(ctx context.Context, a record.Author, doc policy.Document, replace bool) error
}

// compileOptions is how rules are compiled under c, which was read from file.
func compileOptions(c config.Config, file string) (o policy.CompileOptions, err error) {
	var registry *daemon.Registry
	if len(c.OpenAPI)+len(c.Routes) > 0 {
		registry, err = daemon.Endpoints(c)
	}
	o = daemon.CompileOptions(c, registry)
	o.Settings = cmp.Or(file, o.Settings)
	return o, err
}
