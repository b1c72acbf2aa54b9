package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
)

// descriptorExplanation says which limit a descriptor has, and what is admitted under it.
type descriptorExplanation struct {
	Domain  string            `json:"domain"`
	Entries []string          `json:"entries"` // key=value
	Limit   *descriptorLimit  `json:"limit"`   // null if none fits
	Quota   *descriptorExcess `json:"quota,omitempty"`
}

type descriptorLimit struct {
	Path  string        `json:"path"`
	Place string        `json:"place"` // file:line
	Name  string        `json:"name,omitempty"`
	Mode  string        `json:"mode"` // enforce, shadow, quota or unlimited
	Limit int64         `json:"limit"`
	Per   time.Duration `json:"per_ns"`

	// AnyOrder says that the entries stand in another order in the configuration: only a bucket's name, which has none,
	// has this limit.
	AnyOrder bool `json:"any_order,omitempty"`
}

// descriptorExcess is what Envoys that decide by themselves admit in any interval, besides Burst and what the
// limit gives in it.
type descriptorExcess struct {
	Burst  int64         `json:"burst"`
	Excess int64         `json:"excess"`
	Within time.Duration `json:"within_ns"` // what drains in it is Excess
}

func explainDescriptor(cmd *cobra.Command, from *configFlags, domain string,
	args []string) (x descriptorExplanation, err error) {
	c, err := from.read(cmd)
	if err != nil {
		return x, err
	}
	if len(c.Decisions.RateLimit) == 0 {
		return x, usagef("decisions.ratelimit is empty, want the files with the limits of descriptors: give --config")
	}
	entries := make([]descriptor.Entry, len(args))
	for i, arg := range args {
		if entries[i].Key, entries[i].Value, _ = strings.Cut(arg, "="); entries[i].Key == "" {
			return x, usagef("an entry is %q, want KEY=VALUE", arg)
		}
	}
	limits, err := readDescriptors(c.Decisions)
	if err != nil {
		return x, err
	}
	x = descriptorExplanation{Domain: domain, Entries: args}
	l := limits.Find(domain, entries)
	anyOrder := l == nil
	if anyOrder {
		l, _ = limits.FindAnyOrder(domain, entries)
	}
	if l == nil {
		return x, nil
	}
	x.Limit = &descriptorLimit{
		Path:     l.Path,
		Place:    l.Place,
		Name:     l.Name,
		Mode:     "enforce",
		Limit:    int64(l.Requests),
		AnyOrder: anyOrder,
	}
	switch {
	case l.Unlimited:
		x.Limit.Mode = "unlimited"
		return x, nil
	case l.Shadow:
		x.Limit.Mode = "shadow"
	case l.Quota:
		x.Limit.Mode = "quota"
	}
	x.Limit.Per = l.Period()
	if !l.Nothing && !l.Shadow {
		ttl := c.Decisions.QuotaTTL
		x.Quota = &descriptorExcess{
			Burst:  l.Shape.Burst(),
			Excess: quota.Excess(l.Shape, ttl),
			Within: ttl + quota.Grace,
		}
	}
	return x, nil
}

func readDescriptors(d config.Decisions) (*descriptor.Limits, error) {
	if d.RateLimitMerge {
		return descriptor.ReadMerged(d.RateLimit...)
	}
	return descriptor.Read(d.RateLimit...)
}

func (x descriptorExplanation) write(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, plain(fmt.Sprintf(format, args...)))
	}
	line("descriptor", "%s of %s", strings.Join(x.Entries, " "), x.Domain)
	l := x.Limit
	if l == nil {
		line("limit", "none fits: it passes, and is not counted")
		return out.Flush()
	}
	line("limit", "%s, at %s", l.Path, l.Place)
	line("mode", "%s", l.Mode)
	switch {
	case l.Per == 0:
		return out.Flush()
	case l.Limit == 0:
		line("admits", "nothing")
		return out.Flush()
	}
	rate := policy.Rule{Limit: l.Limit, Per: l.Per}.Rate()
	if l.AnyOrder {
		line("admits", "everything, by Envoys that ask about each request: it stands in another order in the file")
	} else {
		line("admits", "%d at once and %s, by Envoys that ask about each request", l.Limit, rate)
	}
	if q := x.Quota; q != nil {
		line("", "%d at once and %s, and %d more, which drain in %v, by Envoys that decide by themselves", q.Burst,
			rate, q.Excess, q.Within)
	}
	return out.Flush()
}
