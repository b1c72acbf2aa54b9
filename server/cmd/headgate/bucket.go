package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
)

const bucketHelp = `ENDPOINT is a template as 'GET /v1/customers/{customer}', * for the bucket that
all endpoints share, or UNKNOWN. Whose bucket is said in one of two ways: by a
request's evidence, --peer and --header; or by name: --key, --certificate,
--token or --user, --project, --address. A rule for login names wants --identifier, or
--unparsable for what all requests share whose name cannot be read. A running
gateway is asked through its admin listener: it alone holds the buckets.`

func newBucket() *cobra.Command {
	return group("bucket", "Inspect, reset and top up one client's bucket", newBucketInspect(), newBucketReset(),
		newBucketGrant())
}

// bucketFlags say which bucket of which gateway is meant, and how to print it.
type bucketFlags struct {
	gateway throughFlags
	request admin.BucketRequest
	of      []string
	asJSON  bool
}

func (f *bucketFlags) addFlags(cmd *cobra.Command) {
	flags, r := cmd.Flags(), &f.request
	flags.StringVar(&r.Subject, "subject", "", "which rule's bucket, where several apply: principal, ip, "+
		"principal_ip, project, region, endpoint, identifier, identifier_ip, site, path or claim")
	flags.StringVar(&r.Peer, "peer", "", "address a request comes from")
	addHeader(cmd, &r.Header, "a request")
	flags.StringVar(&r.Key, "key", "", "ID of an API key, as \"headgate key list\" shows it")
	flags.StringVar(&r.Certificate, "certificate", "",
		"name of a client certificate, as tls.client_name has it; with its --project")
	flags.StringVar(&r.Token, "token", "", "subject of a bearer token; with its --project and --tier")
	flags.StringVar(&r.User, "user", "", "ID of a user whom a program has logged in; with its --project")
	flags.StringVar(&r.SignedAgent, "signed-agent", "",
		"name of an agent that signs its requests; with its --project and --tier")
	flags.StringVar(&r.Project, "project", "",
		"project, of a certificate, token, user or agent, or for a rule with subject project")
	flags.StringVar(&r.Tier, "tier", "", "tier that came with a token, or is an agent's (default: the project's)")
	flags.StringVar(&r.Address, "address", "", "client address")
	flags.StringVar(&r.Identifier, "identifier", "", "identifier that requests try, such as a login name")
	flags.StringArrayVar(&f.of, "of", nil, "value of a path parameter or a claim, for a rule that counts by it: "+
		"path:customer=42, claim:org=acme (repeatable)")
	flags.BoolVar(&r.Unparsable, "unparsable", false, "the bucket of all requests whose identifier cannot be read")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	f.gateway.addNeeded(cmd)
}

// check finds what is wrong before anybody is asked.
func (f *bucketFlags) check(endpoint string) error {
	of, twice := admin.OfValues(f.of)
	f.request.Endpoint, f.request.Of = endpoint, of
	if _, err := f.request.Query(); err != nil || twice != nil {
		err = errors.Join(twice, err)
		return usageError{err}
	}
	return nil
}

func newBucketInspect() *cobra.Command {
	var f bucketFlags
	cmd := &cobra.Command{
		Use:   "inspect ENDPOINT",
		Short: "Show buckets of a client",
		Long: "Show the buckets of a client at an endpoint: what remains and when they are full.\nNothing is " +
			"taken from them.\n\n" + bucketHelp,
		Example: `  headgate bucket inspect 'GET /v1/customers/{customer}' --key k_0123456789abcdef0123
  headgate bucket inspect '*' --address 192.0.2.7 --json`,
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args[0]); err != nil {
				return err
			}
			gateway, err := f.gateway.client(cmd)
			if err != nil {
				return err
			}
			in, err := gateway.Inspect(cmd.Context(), f.request)
			if err != nil {
				return err
			}
			if f.asJSON {
				return writeJSON(cmd.OutOrStdout(), in)
			}
			return writeInspection(cmd.OutOrStdout(), in)
		},
	}
	f.addFlags(cmd)
	return cmd
}

func newBucketReset() *cobra.Command {
	var f bucketFlags
	cmd := &cobra.Command{
		Use:   "reset ENDPOINT",
		Short: "Make one bucket full, as if its client had never come",
		Long: `Make one bucket full, as if its client had never come, and end its allowance. It is
written to the audit first, and refused if that cannot be done.

` + bucketHelp,
		Example: `  headgate bucket reset 'POST /v1/login' --subject ip --address 192.0.2.7`,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args[0]); err != nil {
				return err
			}
			return f.change(cmd, (*client.Client).ResetBucket, "reset")
		},
	}
	f.addFlags(cmd)
	return cmd
}

func newBucketGrant() *cobra.Command {
	var f bucketFlags
	var expires string
	cmd := &cobra.Command{
		Use:   "grant ENDPOINT AMOUNT",
		Short: "Give one bucket tokens, once or for a time",
		Long: `Give one bucket AMOUNT tokens. Without --expires they are given once, and the
bucket is never more than full. With --expires its burst is larger by AMOUNT until
then: in any stretch of time at most AMOUNT is admitted besides what would be
anyway. A second such grant takes the place of the first. It ends with the
gateway's process. A grant is written to the audit first, and refused if that cannot
be done. Where no answer comes it is asked for again, and made once.

` + bucketHelp,
		Example: `  headgate bucket grant 'GET /v1/customers/{customer}' 100 --key k_0123456789abcdef0123
  headgate bucket grant '*' 5000 --project acme --expires 2h`,
		Args: arguments(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if f.request.Amount, err = strconv.ParseInt(args[1], 10, 64); err != nil || f.request.Amount < 1 {
				return usageError{wrongAmount(args[1])}
			}
			var ends policy.Rule
			if err := setExpires(&ends, expires, time.Now()); err != nil {
				return usageError{err}
			}
			f.request.Expires = ends.Expires
			if err := f.check(args[0]); err != nil {
				return err
			}
			return f.change(cmd, (*client.Client).GrantBucket, "granted")
		},
	}
	f.addFlags(cmd)
	cmd.Flags().StringVar(&expires, "expires", "",
		"when the grant ends: in 2h, or at 2027-01-31T12:00:00Z (default: given once)")
	takesNumber(cmd, wrongAmount)
	return cmd
}

func wrongAmount(value string) error {
	return fmt.Errorf("AMOUNT is %q, want a whole number of tokens, 1 or more", value)
}

// change has the gateway make a change, and says what became of it.
func (f *bucketFlags) change(cmd *cobra.Command,
	do func(*client.Client, context.Context, admin.BucketRequest) (admin.BucketChange, error), done string) error {
	f.request.By = localUser()
	gateway, err := f.gateway.client(cmd)
	if err != nil {
		return err
	}
	change, err := do(gateway, cmd.Context(), f.request)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.asJSON {
		return writeJSON(out, change)
	}
	b := change.Bucket
	if change.Given > 0 || f.request.Amount > 0 {
		done = fmt.Sprintf("granted %d of %d to", change.Given, f.request.Amount)
	}
	fmt.Fprintf(out, "%s rule %q, %s: %d of %d tokens", done, b.Rule, plain(b.Whose), b.Remaining, b.Burst)
	if b.Allowance != nil {
		fmt.Fprintf(out, " and %d more until %s", b.Allowance.Tokens, b.Allowance.Until.Format(time.RFC3339))
	}
	_, err = fmt.Fprintf(out, " (audit %d)\n", change.Audit)
	return err
}

// localUser is who runs the command, for the audit.
func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func writeInspection(w io.Writer, in inspect.Found) error {
	if len(in.Buckets) == 0 {
		return writeUnnamed(w, in)
	}
	table := newTable(w, "RULE\tENDPOINT\tSUBJECT\tWHOSE\tLIMIT\tBURST\tMODE\tREMAINING\tWAIT\tFULL IN\tALLOWANCE")
	for _, b := range in.Buckets {
		allowance := "-"
		if b.Allowance != nil {
			allowance = fmt.Sprintf("%d until %s", b.Allowance.Tokens, b.Allowance.Until.Format(time.RFC3339))
		}
		table.row(b.Rule, b.Endpoint, b.Subject, b.Whose, rateOf(b),
			b.Burst, b.Mode, b.Remaining, b.Wait, b.ResetAfter, allowance)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, s := range in.Skipped {
		if _, err := fmt.Fprintf(w, "rule %q (%s) applies too: its bucket is named by %s\n", s.Rule, s.Subject,
			s.Needs); err != nil {
			return err
		}
	}
	return nil
}

// writeUnnamed says why there is no bucket to show.
func writeUnnamed(w io.Writer, in inspect.Found) error {
	if len(in.Skipped) == 0 {
		_, err := fmt.Fprintln(w, "no rule applies there, so there is no bucket")
		return err
	}
	for _, s := range in.Skipped {
		if _, err := fmt.Fprintf(w, "rule %q (%s) applies: its bucket is named by %s\n", s.Rule, s.Subject,
			s.Needs); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, "say whose bucket is meant, such as --address 192.0.2.7 or --key ID; --help has all ways")
	return err
}
