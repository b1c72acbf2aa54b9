package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/token"
)

func newToken() *cobra.Command {
	return group("token", "Find out why a bearer token is believed or not", newTokenVerify())
}

// maxTokenInput bounds what is read of the standard input.
const maxTokenInput = 64 << 10

func newTokenVerify() *cobra.Command {
	var from configFlags
	var out printer
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify a bearer token as the gateway would, check by check",
		Long: `Verify the bearer token on the standard input as the gateway would, with the
settings and keys of a configuration file, and say which check it fails. Of the
token only whose it is, and the thumbprint of the key that it is bound to, are
printed, and only if it is believed. The token is never an argument, which other
users and the history of the shell would see. The exit status is 1 if the token
is not believed.`,
		Example: `  headgate token verify --config headgate.yaml < token.txt`,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := from.read(cmd)
			if err != nil {
				return err
			}
			if err := checkTokens(c.Tokens); err != nil {
				return usageError{err}
			}
			text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxTokenInput))
			if err != nil {
				return fmt.Errorf("standard input: %w", err)
			}
			verifier, source, away, err := daemon.NewVerifier(cmd.Context(), c.Tokens, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			if away != nil {
				return fmt.Errorf("tokens: %w", away)
			}
			results, claims, err := verifier.Inspect(tokenText(string(text)))
			write := writeResults
			if out.asJSON {
				write = writeVerified
			}
			if err := write(cmd.OutOrStdout(), source.Status(), results, claims, err == nil); err != nil {
				return err
			}
			if err != nil {
				return errors.New("the token is not believed")
			}
			return nil
		},
	}
	from.addFlags(cmd)
	out.addFlags(cmd)
	return cmd
}

// tokenVerdict is what `headgate token verify --json` prints. Of the token it says no more than the words do.
type tokenVerdict struct {
	Believed bool         `json:"believed"`
	Keys     int          `json:"keys"`
	Checks   []tokenCheck `json:"checks"`
	Subject  string       `json:"subject,omitempty"`
	Project  string       `json:"project,omitempty"`
	Tier     string       `json:"tier,omitempty"`
	BoundTo  string       `json:"bound_to,omitempty"` // the thumbprint of a key
	Until    time.Time    `json:"until,omitzero"`
}

type tokenCheck struct {
	Check  string `json:"check"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail,omitempty"`
}

func writeVerified(w io.Writer, keys token.SourceStatus, results []token.Result, claims identity.Claims,
	believed bool) error {
	v := tokenVerdict{Believed: believed, Keys: keys.Keys, Checks: []tokenCheck{}}
	for _, r := range results {
		v.Checks = append(v.Checks, tokenCheck{r.Check, r.Passed, r.Detail})
	}
	if believed {
		v.Subject, v.Project, v.Tier, v.Until = claims.Subject, claims.Project, claims.Tier, claims.Until.UTC()
		v.BoundTo = claims.Key
	}
	return writeJSON(w, v)
}

func checkTokens(t config.Tokens) error {
	if !t.On() {
		return errors.New("tokens is not set, want a configuration file with it by --config")
	}
	return t.Check()
}

// tokenText is what stands in a file or header, without what is around it.
func tokenText(s string) string {
	s = strings.TrimSpace(s)
	scheme, rest, two := strings.Cut(s, " ")
	if two && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "DPoP")) {
		s = strings.TrimSpace(rest)
	}
	return s
}

func writeResults(w io.Writer, keys token.SourceStatus, results []token.Result, claims identity.Claims,
	believed bool) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "keys\t%d\n", keys.Keys)
	for _, why := range keys.Ignored {
		fmt.Fprintf(out, "\tignored: %s\n", plain(why))
	}
	for _, r := range results {
		if r.Passed {
			fmt.Fprintf(out, "%s\tok\n", r.Check)
		} else {
			fmt.Fprintf(out, "%s\tfails: %s\n", r.Check, plain(r.Detail))
		}
	}
	if believed {
		fmt.Fprintf(out, "\nsubject\t%s\n", plain(claims.Subject))
		if claims.Project != "" {
			fmt.Fprintf(out, "project\t%s\n", plain(claims.Project))
		}
		if claims.Tier != "" {
			fmt.Fprintf(out, "tier\t%s\n", plain(claims.Tier))
		}
		if claims.Key != "" {
			fmt.Fprintf(out, "bound to\t%s\n", claims.Key)
		}
		fmt.Fprintf(out, "until\t%s\n", claims.Until.UTC().Format(time.RFC3339))
	}
	return out.Flush()
}
