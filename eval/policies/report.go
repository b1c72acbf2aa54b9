package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/page"
)

// page is what stands between the markers.
func (p plan) page(found *findings, now time.Time) string {
	var b strings.Builder
	b.WriteString(page.Conditions(now, "make policies"))
	fmt.Fprintf(&b, "%d rounds; in each, every row in a process of its own, in turn, and loads of up to 100,000 "+
		"rules, and decisions beside loads, in three. %s Drivers: modernc.org/sqlite %s, pgx %s, go-sql-driver %s. "+
		"The rules are of %d endpoints, and of as many projects as it takes. Medians [least–most].\n\n",
		found.rounds, servers(), page.Version("modernc.org/sqlite"), page.Version("github.com/jackc/pgx/v5"),
		page.Version("github.com/go-sql-driver/mysql"), endpoints)
	fmt.Fprintf(&b, "### From a database into force\n\nGoal: in force after at most 1,500 ms for 1,000,000 rules "+
		"and 100 ms for 100,000, from SQLite and PostgreSQL; at most 120 bytes a rule.\n\n%s\n", loadTable(p, found))
	fmt.Fprintf(&b, "### Look-up\n\nNanoseconds a look-up, among 1,000 rules and among %s. "+
		"Goal: the same within 20 %%, but for what the cache does.\n\n%s\n", count(p.most), lookUpTable(found))
	fmt.Fprintf(&b, "### Decisions while rules are loaded\n\nMicroseconds a decision, %s rules in force, %d phases "+
		"of %v of each kind in a process, alternating. "+
		"Goal: reloading by quiet at most 1.2 at P99.\n\n%s\n",
		count(p.served()), p.phases, p.phase, checkTable(found))
	fmt.Fprintf(&b, "### From a change to its effect\n\nMilliseconds from the commit of an UPDATE to the first "+
		"decision under the new limit, 1,000 rules, refresh %v. "+
		"Goal: P99 of at most 50 ms with NOTIFY, and else of at most the refresh.\n\n%s",
		refresh, changeTable(found))
	return b.String()
}

// servers are the versions of the servers that dbtest starts.
func servers() string {
	var found []string
	for _, program := range []string{"psql", "mariadb"} {
		out, err := exec.Command(program, "--version").Output()
		if err == nil {
			found = append(found, "`"+strings.TrimSpace(string(out))+"`")
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "Servers of " + strings.Join(found, " and ") + ", on the same machine, by a socket."
}

// ordered are the databases of a table, by size and kind.
func ordered[T any](of map[measured]T) []measured {
	kinds := []string{sqlite, postgreSQL, mariaDB}
	var all []measured
	for d := range of {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b measured) int {
		if a.Rules != b.Rules {
			return a.Rules - b.Rules
		}
		if a.Full != b.Full {
			if b.Full {
				return -1
			}
			return 1
		}
		if a.Kind != b.Kind {
			return slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind)
		}
		if a.Poll {
			return 1
		}
		return -1
	})
	return all
}

func loadTable(p plan, found *findings) page.Table {
	t := page.Table{{"database", "rules", "read, ms", "rest, ms", "in force after, ms", "processor, ms", "again, ms",
		"idle, MiB", "peak, MiB", "bytes a rule"}}
	for _, d := range ordered(found.loads) {
		cell := func(of func(Load) float64) string { return spread(found.loads[d], of) }
		t = append(t, []string{
			d.Kind, strings.TrimSuffix(d.what(), " rules"),
			cell(func(l Load) float64 { return l.Read }), cell(Load.Rest),
			cell(func(l Load) float64 { return l.Force }), cell(func(l Load) float64 { return l.Processor }),
			cell(func(l Load) float64 { return l.Again }),
			cell(func(l Load) float64 { return l.Idle }), cell(func(l Load) float64 { return l.Peak }),
			cell(func(l Load) float64 { return l.Bytes }),
		})
	}
	return t
}

func lookUpTable(found *findings) page.Table {
	t := page.Table{{"which rule", "few", "many", "many by few"}}
	row := func(name string, few, many func(LookUp) float64) {
		t = append(t, []string{name, spread(found.lookUps, few), spread(found.lookUps, many),
			spread(found.lookUps, func(l LookUp) float64 { return many(l) / few(l) })})
	}
	row("one, again and again", func(l LookUp) float64 { return l.HotFew }, func(l LookUp) float64 { return l.HotMany })
	row("any, at random", func(l LookUp) float64 { return l.AnyFew }, func(l LookUp) float64 { return l.AnyMany })
	row("no rule: one read at random of as much memory", func(l LookUp) float64 { return l.MissFew },
		func(l LookUp) float64 { return l.MissMany })
	return t
}

func checkTable(found *findings) page.Table {
	t := page.Table{{"database", "", "P50", "P99", "P99.9", "decisions each", "reloads each"}}
	for _, d := range ordered(found.checks) {
		checks := found.checks[d]
		row := func(name string, of func(Check) Times, reloads string) {
			t = append(t, []string{d.Kind, name,
				spread(checks, func(c Check) float64 { return of(c).P50 }),
				spread(checks, func(c Check) float64 { return of(c).P99 }),
				spread(checks, func(c Check) float64 { return of(c).P999 }), count(of(checks[0]).Samples), reloads})
		}
		row("quiet", func(c Check) Times { return c.Quiet }, "0")
		row("beside", func(c Check) Times { return c.Beside }, "0")
		row("reloading", func(c Check) Times { return c.Reloading },
			spread(checks, func(c Check) float64 { return float64(c.Reloads) }))
		ratio := func(name string, of func(Check) Times) {
			row(name, of, "")
			t[len(t)-1][5] = ""
		}
		ratio("reloading by quiet", func(c Check) Times { return c.ByQuiet })
		ratio("reloading by beside", func(c Check) Times { return c.ByBeside })
	}
	return t
}

func changeTable(found *findings) page.Table {
	t := page.Table{{"database", "learns of it by", "P50", "P99", "most", "changes"}}
	for _, d := range ordered(found.changes) {
		c, by := found.changes[d], "looking"
		if d.Kind == postgreSQL && !d.Poll {
			by = "NOTIFY"
		}
		t = append(t, []string{d.Kind, by, short(c.P50), short(c.P99), short(c.Most), fmt.Sprint(c.Samples)})
	}
	return t
}

// spread is the median of the rounds, and the least and the most.
func spread[T any](rounds []T, of func(T) float64) string {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = of(r)
	}
	return fmt.Sprintf("%s [%s–%s]", short(median(values)), short(slices.Min(values)), short(slices.Max(values)))
}

// short is a number with three digits that count.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// count is a number with commas.
func count(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
