package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/descriptor"
)

func newExplain() *cobra.Command {
	var from configFlags
	var request admin.ExplainRequest
	var by throughFlags
	var offline, asJSON, asDescriptor bool
	cmd := &cobra.Command{
		Use:   "explain METHOD TARGET",
		Short: "Say what a request would be answered, and why",
		Long: `Say what the gateway would answer a request at this moment, and why: the
canonical form and template, whose budget it uses, every rule considered and the
level it stands at, each bucket with what remains and the exact wait, and the
verdict. Nothing is taken from any bucket.

With a --body the request is what its body says, where bodies are read: so many
requests, a tool, a model, or a document of GraphQL, of which each field's part of
the cost is told, and why it would be refused.

A running gateway is asked through its admin listener. With --offline the
documents and the database are read instead, and every bucket is full.

With --descriptor the arguments are the domain and the entries of a descriptor
that Envoy asks about, or of a bucket that it decides about by itself: which of
the limits in decisions.ratelimit it has, and what is admitted at most. Files are
read, and no gateway is asked.`,
		Example: `  headgate explain GET '/v1/customers/42?x=1' --peer 192.0.2.7
  headgate explain GET /v1/customers/42 --header @header.txt --json
  printf 'Authorization: Bearer %s' "$(cat token.txt)" | headgate explain GET /v1/customers/42 --header @-
  headgate explain POST /graphql --body '{"query": "{ users(first: 20) { name } }"}'
  headgate explain GET /pets --offline --routes routes.txt --db sqlite:headgate.db
  headgate explain --descriptor shop plan=free remote_address=192.0.2.7 --config headgate.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if asDescriptor {
				return arguments(2, 1+descriptor.MaxUnordered)(cmd, args)
			}
			return arguments(2, 2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if asDescriptor {
				x, err := explainDescriptor(cmd, &from, args[0], args[1:])
				switch {
				case err != nil:
					return err
				case asJSON:
					return writeJSON(cmd.OutOrStdout(), x)
				}
				return x.write(cmd.OutOrStdout())
			}
			request.Method, request.Target = args[0], args[1]
			if err := request.Check(); err != nil {
				return usageError{err}
			}
			ask := explainOnline
			if offline {
				ask = explainOffline
			}
			x, err := ask(cmd, &from, &by, request)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), x)
			}
			return writeExplanation(cmd.OutOrStdout(), x, offline)
		},
	}
	flags := cmd.Flags()
	from.addFlags(cmd, "openapi", "routes", "db", "secret-file", "trusted-proxy", "unknown")
	flags.StringVar(&request.Peer, "peer", "127.0.0.1", "address the request comes from")
	addHeader(cmd, &request.Header, "the request")
	flags.StringVar(&request.User, "user", "", "ID of a user whom a program has logged in")
	flags.StringVar(&request.Project, "project", "", "project of that user")
	flags.Var(bodyFlag{&request.Body, cmd.InOrStdin}, "body",
		"body of the request, JSON unless --header says otherwise, or @FILE with it, @- for standard input")
	flags.StringVar(&request.Identifier, "identifier", "", "identifier the request tries, such as a login name")
	flags.Int64Var(&request.Parts, "parts", 0, "how many requests it holds, for a batch")
	flags.Int64Var(&request.Cost, "cost", 0, "what it costs, in tokens, where it says so itself")
	by.addNeeded(cmd)
	flags.BoolVar(&offline, "offline", false, "read the documents and the database instead of asking a gateway")
	flags.BoolVar(&asDescriptor, "descriptor", false, "explain DOMAIN KEY=VALUE... of Envoy, not a request")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// explainOnline asks a running gateway.
func explainOnline(cmd *cobra.Command, _ *configFlags, by *throughFlags,
	request admin.ExplainRequest) (inspect.Explanation, error) {
	gateway, err := dial(by.server, by.tokenFile)
	if err != nil {
		return inspect.Explanation{}, err
	}
	x, err := gateway.Explain(cmd.Context(), request)
	if errors.Is(err, client.ErrNobody) {
		err = fmt.Errorf("%w, or add --offline", err)
	}
	return x, err
}

// explainOffline builds the same limiter that serve would, with full buckets.
func explainOffline(cmd *cobra.Command, from *configFlags, _ *throughFlags,
	request admin.ExplainRequest) (inspect.Explanation, error) {
	c, err := from.offline(cmd)
	if err != nil {
		return inspect.Explanation{}, err
	}
	lim, calls, err := daemon.Offline(cmd.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		return inspect.Explanation{}, err
	}
	x, err := request.Explain(cmd.Context(), lim, calls)
	if err != nil {
		return x, usageError{err}
	}
	return x, nil
}

func writeExplanation(w io.Writer, x inspect.Explanation, offline bool) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, plain(fmt.Sprintf(format, args...)))
	}
	line("request", "%s %s", x.Method, x.Target)
	if x.Fault != "" {
		line("canonical", "none: the target %s", x.Fault)
	} else {
		line("canonical", "%s", x.Canonical)
		line("endpoint", "%s (%s)", x.Endpoint, x.Status)
	}
	if x.Identity != nil {
		writeIdentity(line, x.Identity)
	}
	if x.Identifier != "" {
		line("identifier", "%s", x.Identifier)
	}
	if x.Class != "" {
		line("class", "%s", classWords(x))
	}
	if x.Body != nil {
		line("body", "%s", bodyWords(x))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if x.Body != nil && len(x.Body.Portions) > 0 {
		fmt.Fprintln(w, "\ncost")
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, p := range x.Body.Portions {
			fmt.Fprintf(table, "%s\t  %s\n", strconv.FormatFloat(p.Cost, 'f', -1, 64), plain(p.What))
		}
		_ = table.Flush()
	}
	if x.Rules != "" {
		fmt.Fprintf(w, "\nrules    %s\n", x.Rules)
	}
	if a := x.Access; a != nil {
		until := ""
		if !a.Expires.IsZero() {
			until = ", until " + a.Expires.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "\nsettled by the rule %s, mode %s%s: no limit is asked\n", plain(a.Rule), a.Mode, until)
	}
	if p := x.Penalty; p != nil {
		fmt.Fprintf(w, "\nblocked by the rule %s until %s: its penalty is %s\n", plain(p.Rule),
			p.Until.Format(time.RFC3339), p.Terms)
	}
	if a := x.Adaptive; a != nil {
		fmt.Fprintf(w, "\nadaptive %.2f of what the rules say, for answers in %v: %s\n", a.Multiplier, a.SLO, a.Why)
		if a.Others > 0 {
			fmt.Fprintf(w, "  %.2f for buckets that gateways share, agreed with %d that %s heard\n", a.Agreed, a.Others,
				map[bool]string{true: "is", false: "are"}[a.Others == 1])
		}
		if a.AtOnce > 0 {
			fmt.Fprintf(w, "  %.2f of how many requests may be under way\n", a.AtOnce)
		}
	}
	writeScores(w, x.Scores)
	writeConsidered(w, x.Considered)
	writeBuckets(w, x, offline)
	return writeVerdict(w, x)
}

func writeIdentity(line func(name, format string, args ...any), id *inspect.Identity) {
	who := id.Kind
	if id.ID != "" {
		who += " " + id.ID
	}
	if id.Project != "" {
		who += ", project " + id.Project
	}
	if id.Tier != "" {
		who += ", tier " + id.Tier
	}
	line("identity", "%s", who)
	for _, other := range id.Others {
		line("and", "%s", nameOther(other))
	}
	if prefix, err := netip.ParsePrefix(id.Prefix); err == nil && !prefix.IsSingleIP() {
		line("address", "%s, counted as %s: %s", id.Client, id.Prefix, id.Found)
	} else if id.Client != "" {
		line("address", "%s: %s", id.Client, id.Found)
	}
	if id.Site != "" {
		line("site", "%s", id.Site)
	}
	if id.Region != "" {
		line("region", "%s", id.Region)
	}
	if id.Rejected != "" {
		line("credential", "ignored: %s", id.Rejected)
	}
}

// nameOther names a principal whose budget is used as well.
func nameOther(other inspect.Principal) string {
	who := other.Kind + " " + other.ID
	if other.Project != "" {
		who += ", project " + other.Project
	}
	if other.Tier != "" {
		who += ", tier " + other.Tier
	}
	return who
}

// noRuleThere is what Considered.Why says of a level that could have had a rule.
const noRuleThere = "no rule"

func writeConsidered(w io.Writer, considered []inspect.Considered) {
	if len(considered) == 0 {
		return
	}
	fmt.Fprintln(w, "\nrules considered")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range considered {
		if c.Rule == "" && c.Why != noRuleThere {
			continue // a level that this request does not have
		}
		mark := " "
		if c.Applies {
			mark = "*"
		}
		why := c.Why
		if c.Principal != "" {
			why += ", for " + c.Principal
		}
		fmt.Fprintf(table, "  %s %s\t%s\t%s\t%s\n", mark, c.Subject, c.Level, plain(c.Rule), plain(why))
	}
	_ = table.Flush()
}

func writeBuckets(w io.Writer, x inspect.Explanation, offline bool) {
	if len(x.Buckets) == 0 {
		return
	}
	fmt.Fprintln(w, "\nbuckets")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "    RULE\tLIMIT\tBURST\tMODE\tREMAINING\tWAIT\tFULL IN")
	for _, b := range x.Buckets {
		mark := " "
		if b.Binding {
			mark = "*"
		}
		rule := b.Rule
		if b.Principal != "" {
			rule += ", of " + b.Principal
		}
		if b.Unparsable {
			rule += ", all " + doubtful(b.Subject)
		}
		switch {
		case b.Scored:
			rule += ", for its score"
		case b.Larger != "":
			rule += ", counted for " + b.Larger
		case b.Earlier:
			rule += ", before the move"
		}
		fmt.Fprintf(table, "  %s %s\t%s\t%d\t%s\t%d\t%v\t%v\n",
			mark, plain(rule), rateOf(b.Bucket), b.Burst, b.Mode, b.Remaining, b.RetryAfter, b.ResetAfter)
	}
	_ = table.Flush()
	writeTimes(w, x)
	writeEnvelopes(w, x)
	for _, b := range x.Buckets {
		if b.Algorithm == policy.Concurrency.String() && !b.Unknown && !offline {
			fmt.Fprintf(w, "  %s: %d of %d places are taken\n", plain(b.Rule), b.Taken, cmp.Or(b.Places, b.Limit))
		}
		switch {
		case b.KeepsRate != "":
			fmt.Fprintf(w, "  %s is not lowered: %s\n", plain(b.Rule), b.KeepsRate)
		case b.Places > 0 && b.Places < b.Limit:
			fmt.Fprintf(w, "  %s is lowered to %d of its %d at once\n", plain(b.Rule), b.Places, b.Limit)
		case b.Places == 0 && b.Multiplier > 0 && b.Multiplier < 1:
			fmt.Fprintf(w, "  %s is lowered to %.2f of its rate\n", plain(b.Rule), b.Multiplier)
		}
		if b.CountWhen != "" {
			fmt.Fprintf(w, "  %s counts answers of %s, and the others while they are under way\n",
				plain(b.Rule), b.CountWhen)
		}
		if b.Penalty != "" {
			fmt.Fprintf(w, "  %s blocks callers for a time: %s denials\n", plain(b.Rule), b.Penalty)
		}
		if b.Refusal != "" {
			fmt.Fprintf(w, "  %s answers what it denies with: %s\n", plain(b.Rule), plain(b.Refusal))
		}
		if b.Share != nil {
			fmt.Fprintf(w, "  %s is shared by classes (%s): %s\n", plain(b.Rule), b.Priority, shareWords(x.Class, b))
		}
	}
	if offline {
		fmt.Fprintln(w, "  (offline: every bucket is taken to be full)")
	}
}

// bodyWords says what the body of a request says of it.
func bodyWords(x inspect.Explanation) string {
	b := x.Body
	switch {
	case !b.Read:
		return "not read here"
	case b.Status != 0:
		return fmt.Sprintf("refused with %d: %s", b.Status, b.Why)
	case b.Parts > 1:
		return fmt.Sprintf("%d requests, which cost %d together", b.Parts, x.Cost)
	}
	return fmt.Sprintf("costs %d", x.Cost)
}

// classWords says of which class a request is, and what says so.
func classWords(x inspect.Explanation) string {
	if x.ClassFrom == "" {
		return x.Class
	}
	return x.Class + ", by " + plain(x.ClassFrom)
}

// shareWords says what the class of a request has of a bucket that classes share.
func shareWords(class string, b inspect.Attempt) string {
	words := "class " + class
	if b.Share.As != "" {
		words += ", which counts as " + b.Share.As + ","
	}
	whom := "higher classes and for what each class is guaranteed"
	if b.Share.Highest {
		whom = "what each class is guaranteed"
	}
	words += fmt.Sprintf(" leaves %d of %d for %s", b.Share.Kept, b.Burst, whom)
	if b.Share.Guaranteed > 0 {
		words += fmt.Sprintf(", and is guaranteed %d %% itself", b.Share.Guaranteed)
	}
	if b.Share.Used {
		words += ", by which this request passes"
	}
	return words
}

// rateOf is the limit of a bucket for people.
func rateOf(b inspect.Bucket) string {
	r := policy.Rule{Limit: b.Limit, Per: b.Per}
	_ = r.SetSubject(b.Subject) // which says what is counted, and was written by us
	return r.Rate()
}

// writeTimes says of buckets without room when the caller is told to come, and why then.
func writeTimes(w io.Writer, x inspect.Explanation) {
	for _, b := range x.Buckets {
		if b.Time == nil {
			continue
		}
		kept := ""
		if b.Time.Reserved {
			kept = ", and the token is kept for it until then"
		}
		fmt.Fprintf(w, "  %s: the caller is told to come in %v%s: %s\n", plain(b.Rule), b.RetryAfter, kept, b.Time.Why)
	}
}

// doubtful says whose requests share a bucket of which nobody knows whose they are.
func doubtful(subject string) string {
	if subject == "identifier" {
		return "unparsable"
	}
	return "unverified"
}

// writeEnvelopes says of rules that replicas have to do with what all of them
// admit together.
func writeEnvelopes(w io.Writer, x inspect.Explanation) {
	for _, b := range x.Buckets {
		e := b.Envelope
		if e == nil {
			continue
		}
		text := fmt.Sprintf("  %s is %s: %d replicas together admit %d at once", b.Rule, b.Scope, e.Replicas, e.Burst)
		if e.Replicas == 1 {
			text = strings.Replace(text, "1 replicas together admit", "1 replica admits", 1)
		}
		if e.Tokens > 0 {
			text += " and " + policy.Rule{Limit: e.Tokens, Per: e.Per}.Rate()
		}
		if e.Excess > 0 {
			text += fmt.Sprintf(", and %d more", e.Excess)
		}
		if b.OnStoreLoss != "" {
			text += "; without the store " + withoutStore(b)
		}
		if b.Unknown {
			text += " (not asked now)"
		}
		fmt.Fprintln(w, text)
	}
}

// lossTexts say what is admitted while nobody can be asked.
var lossTexts = map[string]string{"closed": "none", "share": "each its share", "open": "all"}

func withoutStore(b inspect.Attempt) string {
	if b.Scope == "lease" && b.OnStoreLoss == "closed" && b.Algorithm != policy.Concurrency.String() {
		return "each at most its free part"
	}
	return lossTexts[b.OnStoreLoss]
}

func writeVerdict(w io.Writer, x inspect.Explanation) error {
	verdict := "denied"
	if x.Verdict.Allowed {
		verdict = "allowed"
	}
	text := fmt.Sprintf("\nverdict  %s: %s", verdict, strings.ReplaceAll(x.Verdict.Reason, "_", " "))
	if x.Verdict.Rule != "" {
		text += fmt.Sprintf(", rule %q", x.Verdict.Rule)
	}
	if x.Verdict.RetryAfter > 0 {
		text += fmt.Sprintf(", retry in %v", x.Verdict.RetryAfter)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
