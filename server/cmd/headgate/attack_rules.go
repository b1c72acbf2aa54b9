package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/attack"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// attackedEither refuses flags about a deployment where there is no URL of one, and those about rules where there is.
func attackedEither(flags *pflag.FlagSet, from *configFlags, deployment bool) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		switch _, ofRules := from.apply[f.Name]; {
		case f.Name == "json":
		case deployment && (ofRules || f.Name == "config"):
			errs = append(errs, fmt.Errorf("--%s is for rules that are tried in virtual time, want no URL beside it",
				f.Name))
		case !deployment && !ofRules && f.Name != "config":
			errs = append(errs, fmt.Errorf("--%s is for a deployment, want its URL beside it", f.Name))
		}
	})
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

// attackRules tries what rules promise to classes of requests.
func attackRules(cmd *cobra.Command, from *configFlags, asJSON bool) error {
	c, err := from.offline(cmd)
	if err != nil {
		return err
	}
	doc, err := loadedRules(cmd, c)
	if err != nil {
		return err
	}
	real, _, err := daemon.Offline(cmd.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	rules := attack.Rules{
		Document: doc, Set: real.Policies().Set(), Begin: time.Now(), Real: real,
		Fresh: func(clock func() time.Time) (attack.Decider, error) {
			return daemon.Rehearsal(c, doc, clock, nil)
		},
	}
	budgets, err := rules.Classes(cmd.Context())
	if err != nil {
		return err
	}
	if len(budgets) == 0 {
		return usagef("no rule has a budget that classes share and that requests meet: want one with a priority " +
			`such as "high:20,normal:10,low:10", or the URL of a deployment to attack`)
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), struct {
			Budgets []attack.Budget `json:"budgets"`
		}{budgets})
	} else {
		err = writeSharedBudgets(cmd.OutOrStdout(), budgets)
	}
	return errors.Join(err, outcomeOfClasses(budgets))
}

// loadedRules are those of the database.
func loadedRules(cmd *cobra.Command, c config.Config) (policy.Document, error) {
	db, err := forReading(cmd.Context(), c)
	if err != nil {
		return policy.Document{}, err
	}
	doc, _, err := db.Load(cmd.Context())
	return doc, errors.Join(err, db.Close())
}

func writeSharedBudgets(w io.Writer, budgets []attack.Budget) error {
	for i, b := range budgets {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "rule       %s: %s\nshared by  %s\n", plain(b.Rule), b.Limit, plain(b.Priority))
		if b.Lasts > 0 {
			fmt.Fprintf(w, "for        %v each time, the bucket full at first\n", b.Lasts)
		}
		for _, class := range b.Missing {
			fmt.Fprintf(w, "missing    %s: no request was found that is of this class\n", class)
		}
		if len(b.Shares) == 0 {
			fmt.Fprint(w, "           requests of two classes are needed to try it\n")
			continue
		}
		fmt.Fprintln(w)
		t := newTable(w, "CLASS\tASKS FOR\tASKED\tPASSED\tDENIED\tSHARE\tBORROWED\tBOUND\tVERDICT\tWHO")
		for _, s := range b.Shares {
			asks, bound := "all", fmt.Sprint("≥ ", s.Least)
			switch {
			case s.Alone:
				asks = fmt.Sprintf("its %d %%", s.Percent)
			case s.Class == attack.Everybody:
				bound = fmt.Sprint("≤ ", s.Most)
			}
			borrowed, share := fmt.Sprint(max(0, s.Passed-s.Share)), fmt.Sprint(s.Share)
			if s.Class == attack.Everybody {
				borrowed, share = "", ""
			}
			t.row(s.Class, asks, s.Asked, s.Passed, s.Asked-s.Passed, share, borrowed, bound, s.Verdict, s.By)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
		for _, s := range b.Shares {
			if s.Note != "" {
				asking := map[bool]string{true: "asking for its share", false: "asking for all"}[s.Alone]
				fmt.Fprintf(w, "%s, %s: %s\n", s.Class, asking, s.Note)
			}
		}
		for _, c := range b.Claims {
			fmt.Fprintf(w, "%s: %d requests claimed another class: %s\n", c.Class, c.Tried, c.Verdict)
			for _, claim := range c.Raised {
				fmt.Fprintf(w, "  believed: %s\n", plain(claim))
			}
		}
	}
	return nil
}

// outcomeOfClasses is the error that makes the exit status 1.
func outcomeOfClasses(budgets []attack.Budget) error {
	found := map[attack.Verdict][]string{}
	add := func(v attack.Verdict, class string) {
		if !slices.Contains(found[v], class) {
			found[v] = append(found[v], class)
		}
	}
	for _, b := range budgets {
		for _, s := range b.Shares {
			add(s.Verdict, s.Class)
		}
		for _, c := range b.Claims {
			add(c.Verdict, c.Class)
		}
	}
	var errs []error
	for _, text := range []struct {
		verdict attack.Verdict
		words   string
	}{
		{attack.Starved, "less than is promised was had by class"},
		{attack.Widened, "more than the rule admits was had by all classes"},
		{attack.Raised, "a class that is not theirs was had by requests of class"},
		{attack.Inconclusive, "too little was decided by the shared budget to judge class"},
	} {
		if classes := found[text.verdict]; len(classes) > 0 {
			errs = append(errs, fmt.Errorf("%s %s", text.words, strings.Join(classes, ", ")))
		}
	}
	return errors.Join(errs...)
}
