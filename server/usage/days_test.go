package usage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/usage"
)

// What a caller does is counted by the day of UTC, for 31 days, and those without a credential are not.
func TestDays(t *testing.T) {
	now := time.Date(2026, 11, 25, 23, 59, 59, 0, time.UTC)
	d := usage.NewDays(func(who *identity.Principal) string { return "hash of " + who.ID },
		func() time.Time { return now })
	ask := func(id string, allowed bool, cost int64) {
		d.Observe(nil, &headgate.Decision{
			Principal: identity.Principal{Kind: identity.APIKey, ID: id, Project: "acme"},
			Allowed:   allowed,
			Cost:      cost,
		})
	}
	all := func() (text string) {
		for _, r := range d.Rows(time.Time{}, now.Add(24*time.Hour)) {
			text += fmt.Sprintf("%s %s %s %s: %d, %d, %d\n", r.Day.Format(time.DateOnly), r.Kind, r.ID, r.Hash,
				r.Admitted, r.Denied, r.Tokens)
		}
		return text
	}
	ask("a", true, 3)
	ask("a", false, 3)
	ask("b", true, 1)
	ask("b", true, 1)
	ask("b", true, 1)
	d.Observe(nil, &headgate.Decision{Principal: identity.Principal{Kind: identity.Address}, Allowed: true})
	now = now.Add(time.Second)
	ask("a", true, 1)
	const first = "2026-11-25 api_key b hash of b: 3, 0, 3\n2026-11-25 api_key a hash of a: 1, 1, 3\n"
	if got, want := all(), first+"2026-11-26 api_key a hash of a: 1, 0, 1\n"; got != want {
		t.Errorf("the rows are\n%s\nwant\n%s", got, want)
	}
	now = now.Add(30 * 24 * time.Hour)
	if got, want := all(), "2026-11-26 api_key a hash of a: 1, 0, 1\n"; got != want {
		t.Errorf("after 30 days the rows are\n%s\nwant\n%s", got, want)
	}
}

// Who left before its turn used nothing, on the day on which it came, and what others did stays.
func TestDaysTakeBackWhoLeft(t *testing.T) {
	now := time.Date(2026, 11, 25, 23, 59, 0, 0, time.UTC)
	d := usage.NewDays(func(who *identity.Principal) string { return who.ID }, func() time.Time { return now })
	of := func(id string, cost int64) *headgate.Decision {
		return &headgate.Decision{Principal: identity.Principal{Kind: identity.APIKey, ID: id}, Allowed: true,
			Cost: cost, At: now.UnixNano()}
	}
	leaves := func(what *headgate.Decision) {
		what.Allowed, what.Reason = false, headgate.Abandoned
		d.Abandoned(nil, what, now.UnixNano())
	}
	first, second := of("a", 2), of("a", 3)
	d.Observe(nil, first)
	d.Observe(nil, second)
	d.Observe(nil, of("b", 5))
	midnight := of("c", 1)
	now = now.Add(2 * time.Minute)
	d.Observe(nil, of("a", 7))
	leaves(second)
	d.Observe(nil, midnight) // it was decided on the day before
	leaves(midnight)
	leaves(of("nobody", 1))
	var got string
	for _, r := range d.Rows(time.Time{}, now) {
		got += fmt.Sprintln(r.Day.Day(), r.ID, r.Admitted, r.Denied, r.Tokens)
	}
	if want := "25 a 1 0 2\n25 b 1 0 5\n26 a 1 0 7\n26 c 0 0 0\n"; got != want {
		t.Errorf("the rows are\n%s\nwant\n%s", got, want)
	}
}

// However many callers come, as many rows are kept, and what has no room is counted all the same.
func TestDaysAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	d := usage.NewDays(func(*identity.Principal) string { return "" }, func() time.Time { return now })
	const callers = usage.MaxRows + 5_000
	for range 2 {
		for i := range callers {
			d.Observe(nil, &headgate.Decision{
				Principal: identity.Principal{Kind: identity.Token, ID: fmt.Sprint(i)},
				Allowed:   i%2 == 0,
				Cost:      1,
			})
		}
	}
	rows := d.Rows(now.Truncate(24*time.Hour), now)
	var admitted, denied, tokens uint64
	for _, r := range rows {
		admitted, denied, tokens = admitted+r.Admitted, denied+r.Denied, tokens+r.Tokens
	}
	if len(rows) > usage.MaxRows+1 || len(rows) < usage.MaxRows*9/10 || admitted != callers || denied != callers ||
		tokens != callers {
		t.Errorf("%d rows with %d admitted, %d denied and %d tokens, want at most %d with %d of each", len(rows),
			admitted, denied, tokens, usage.MaxRows+1, callers)
	}
	if rows[0].Kind != usage.Others {
		t.Errorf("the first row is %+v, want that of the others, who asked most", rows[0])
	}
	now = now.Add(31 * 24 * time.Hour)
	d.Observe(nil, &headgate.Decision{
		Principal: identity.Principal{Kind: identity.Token, ID: "new"},
		Allowed:   true,
		Cost:      1,
	})
	if rows := d.Rows(time.Time{}, now); len(rows) != 1 || rows[0].ID != "new" {
		t.Errorf("after a month there are %d rows, want that of today alone", len(rows))
	}
}
