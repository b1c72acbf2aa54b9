package accounts_test

import (
	"testing"

	"github.com/headgate-io/headgate/bucket/internal/accounts"
	"github.com/headgate-io/headgate/key"
)

type account struct {
	nth   uint32
	asked int
	held  bool
}

func made(nth uint32) *account { return &account{nth: nth} }

func never(a *account, _ bool) bool { a.asked++; return false }

// A table of one account a shard has room for nobody else, unless one may be forgotten.
func TestRoom(t *testing.T) {
	table := accounts.New[account](accounts.Shards)
	first := table.Open(key.Key{Hi: 1}, made, never, func(a *account) { a.held = true })
	if first == nil || first.nth != 1 || !first.held || first.asked != 0 {
		t.Fatalf("the first is %+v", first)
	}
	other := key.Key{Hi: 1 + accounts.Shards}
	if a := table.Open(other, made, never, nil); a != nil || first.asked != 1 {
		t.Errorf("a full shard opened %+v, and asked %d times; want nil and once", a, first.asked)
	}
	if a := table.Find(other, nil); a != nil {
		t.Errorf("found %+v, which was not opened", a)
	}
	lasts := 0
	a := table.Open(other, made, func(_ *account, last bool) bool { lasts++; return last }, nil)
	if a == nil || a.nth != 2 || lasts != 1 || table.Find(key.Key{Hi: 1}, nil) != nil || table.Find(other, nil) != a {
		t.Errorf("opened %+v after asking %d, want the second in the place of the first", a, lasts)
	}
	if same := table.Open(other, made, never, nil); same != a {
		t.Errorf("opened %+v again, want the account that there is", same)
	}
	if n := table.Each(func(each *account) { each.asked = 7 }); n != 1 || a.asked != 7 {
		t.Errorf("Each saw %d accounts, %+v", n, a)
	}
}

// No more than Looked are asked, and the last of them is told so.
func TestLooked(t *testing.T) {
	const many = 100
	table := accounts.New[account](many * accounts.Shards)
	for n := range uint64(many) {
		table.Open(key.Key{Hi: n * accounts.Shards}, made, never, nil)
	}
	asked, lasts := 0, 0
	a := table.Open(key.Key{Hi: many * accounts.Shards}, made, func(_ *account, last bool) bool {
		if asked++; last {
			lasts++
		}
		return false
	}, nil)
	if a != nil || asked != accounts.Looked || lasts != 1 {
		t.Errorf("opened %+v after asking %d, of which %d were the last; want nil, %d and 1", a, asked, lasts,
			accounts.Looked)
	}
}
