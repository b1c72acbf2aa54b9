package nemesis_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate-io/headgate/eval/nemesis"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/simulate"
)

var (
	seeds  = flag.Uint64("seeds", 0, "how many plans to run, or 0 for some")
	first  = flag.Uint64("first", 1, "the seed of the first")
	only   = flag.Uint64("seed", 0, "run this plan alone")
	plain  = flag.Bool("plain", false, "end at the first plan that fails, and do not shrink it")
	events = flag.String("events", "",
		"of -seed's plan keep these events alone, by their numbers: 0,3,5; none for nothing")
)

// run runs a plan in virtual time.
func run(t *testing.T, p *nemesis.Plan) (found []string) {
	synctest.Test(t, func(*testing.T) { found = nemesis.Run(p) })
	return found
}

// Whatever is composed at random, what is published holds.
func TestNemesis(t *testing.T) { runs(t, race.Fewer(uint64(32)), nemesis.Draw) }

// Whatever is composed at random, no more requests are under way than may be, beyond what is published, and every place
// comes back.
func TestNemesisOfPlaces(t *testing.T) { runs(t, race.Fewer(uint64(12)), nemesis.DrawPlaces) }

// Whatever is composed at random, classes share a limit as is published.
func TestNemesisOfClasses(t *testing.T) { runs(t, race.Fewer(uint64(16)), nemesis.DrawClasses) }

// runs runs the plans of some seeds, so many if no flag says how many.
func runs(t *testing.T, some uint64, draw func(seed uint64) *nemesis.Plan) {
	from, n := *first, *seeds
	if *only != 0 {
		from, n = *only, 1
	}
	if n == 0 {
		n = some
	}
	failed := 0
	for seed := from; seed < from+n; seed++ {
		p := draw(seed)
		if *events != "" {
			p = p.Keep(numbers(t, *events))
		}
		found := run(t, p)
		if len(found) == 0 {
			continue
		}
		if failed++; *plain {
			t.Fatalf("seed %d: %s", seed, found[0])
		}
		tell(t, p, found)
		if failed == 40 {
			t.Fatal("enough")
		}
	}
}

// tell says what was broken, and the least of the plan that breaks it as well.
func tell(t *testing.T, p *nemesis.Plan, found []string) {
	kind, _, _ := strings.Cut(found[0], ":")
	kept := simulate.Shrink(len(p.Events), 60, func(kept []int) bool {
		for _, one := range run(t, p.Keep(kept)) {
			if strings.HasPrefix(one, kind) {
				return true
			}
		}
		return false
	})
	list := "none"
	if len(kept) > 0 {
		list = strings.Trim(strings.ReplaceAll(fmt.Sprint(kept), " ", ","), "[]")
	}
	t.Errorf("%s\nof %d events these are left:\n%v\nreplay: make nemesis SEED=%d EVENTS=%s", strings.Join(found, "\n"),
		len(p.Events), p.Keep(kept), p.Seed, list)
}

func numbers(t *testing.T, list string) (all []int) {
	if list == "none" {
		return nil
	}
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("-events is %q, want numbers with commas between", list)
		}
		all = append(all, n)
	}
	return all
}
