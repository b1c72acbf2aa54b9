package database_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/dbtest"
)

// following is the rules of a database as a gateway has them: refreshed in the
// background, and asked for all the time.
type following struct {
	*policy.Cache
	told atomic.Int64 // how often the database told of changes
	mu   sync.Mutex
	bad  string // guarded by mu: a set of rules that no state of the database had
}

// follow keeps rules fresh until the test ends. good says whether a set is of
// one state.
func follow(t *testing.T, s *database.Store, good func(*policy.Set) bool) *following {
	t.Helper()
	wake := make(chan struct{}, 1)
	cache, err := policy.NewCache(policy.CacheOptions{
		Source: s, Compile: policy.CompileOptions{Endpoints: table(t)}, Interval: 20 * time.Millisecond,
		Spread: true, Wake: wake,
	})
	must(t, err)
	must(t, cache.Start(t.Context()))
	f := &following{Cache: cache}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var background sync.WaitGroup
	background.Go(func() { cache.Run(ctx) })
	background.Go(func() {
		s.Watch(ctx, func() {
			f.told.Add(1)
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	})
	background.Go(func() {
		var last *policy.Set
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			set := cache.Set()
			if set != last && !good(set) {
				f.mu.Lock()
				f.bad = fmt.Sprintf("%d rules, the first %+v", set.Len(), set.Rule(0))
				f.mu.Unlock()
			}
			last = set
		}
	})
	t.Cleanup(func() {
		stop()
		background.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.bad != "" {
			t.Errorf("in force were %s, want one state whole", f.bad)
		}
	})
	return f
}

// limit is the limit in force.
func (f *following) limit() int64 { return f.Set().Rule(0).Limit }

// state is two rules with one limit: other limits are of no one state.
func state(limit int64) policy.Document {
	return policy.Document{Rules: []policy.Rule{{Endpoint: "GET /ok", Limit: limit},
		{Endpoint: policy.Default, Limit: limit}}}
}

func whole(set *policy.Set) bool { return set.Len() == 2 && set.Rule(0).Limit == set.Rule(1).Limit }

// keepsLastGood waits until a fault shows, and makes sure that it changes
// nothing else.
func (f *following) keepsLastGood(t *testing.T, what string, limit int64, want ...string) {
	t.Helper()
	eventually(t, what, func() bool {
		for _, w := range want {
			if strings.Contains(f.Status().LastError, w) {
				return true
			}
		}
		return false
	})
	before := f.Status().Stale
	eventually(t, what+": staleness rises", func() bool { return f.Status().Stale > before })
	if f.limit() != limit {
		t.Errorf("%s: limit %d in force, want the last good %d", what, f.limit(), limit)
	}
}

// freshWith waits until the rules are fresh and of a state.
func (f *following) freshWith(t *testing.T, what string, limit int64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: limit %d is in force, want %d; the last error is %q", what, f.limit(), limit,
				f.Status().LastError)
		}
	}()
	eventually(t, what, func() bool { return f.limit() == limit && f.Status().LastError == "" })
}

// failovers are the ways in which a gateway knows of two servers, and what
// becomes of the one that leads.
var failovers = []struct {
	name    string
	leader  func() (*dbtest.Server, error)
	address func(t *testing.T, name string, leader, standby *dbtest.Server) (dsn string, moved func())
	fault   func(*dbtest.Server) error
	shows   []string
}{
	{"PostgreSQL killed, both hosts in the URL", dbtest.Postgres, bothHosts, (*dbtest.Server).Kill,
		[]string{"cannot be reached", "said:"}},
	{"PostgreSQL frozen, both hosts in the URL", dbtest.Postgres, bothHosts, (*dbtest.Server).Freeze,
		[]string{"does not answer within", "cannot be reached"}},
	{"PostgreSQL killed, one address", dbtest.Postgres, oneAddress, (*dbtest.Server).Kill,
		[]string{"cannot be reached", "said:"}},
	{"MariaDB killed, one address", dbtest.MariaDBLeader, oneAddress, (*dbtest.Server).Kill,
		[]string{"closed the connection", "cannot be reached", "said:"}},
}

func bothHosts(_ *testing.T, name string, leader, standby *dbtest.Server) (string, func()) {
	return dbtest.DSNs(name, leader, standby), func() {}
}

func oneAddress(t *testing.T, name string, leader, standby *dbtest.Server) (string, func()) {
	relay, err := dbtest.NewRelay(leader)
	must(t, err)
	t.Cleanup(func() {
		if err := relay.Close(); err != nil {
			t.Error(err)
		}
	})
	return relay.DSN(name), func() { relay.Point(standby) }
}

// The server that leads is killed, or answers nothing any more though it takes
// connections, as if its network swallowed packets; and the one that follows
// takes its place. It had not got the last change: what was in force and is in
// the database no more goes, and what is there is in force again.
func TestFailover(t *testing.T) {
	for _, test := range failovers {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			leader, err := test.leader()
			must(t, err)
			stopAfter(t, leader)
			standby, err := leader.Standby()
			must(t, err)
			stopAfter(t, standby)
			name, _, err := leader.Database(ctx)
			must(t, err)
			dsn, moved := test.address(t, name, leader, standby)

			s := openDSN(t, database.Options{DSN: dsn})
			s.Quiet(100 * time.Millisecond)
			must(t, s.Import(ctx, tester, state(1), true))
			must(t, standby.Follow(leader))
			f := follow(t, s, whole)
			f.freshWith(t, "before", 1)
			must(t, standby.Cut())
			must(t, s.Import(ctx, tester, state(2), true))
			f.freshWith(t, "a change that only the leader gets", 2)

			must(t, test.fault(leader))
			f.keepsLastGood(t, "nobody leads", 2, test.shows...)
			must(t, standby.Promote())
			moved()
			f.freshWith(t, "promoted, without the last change", 1)
			must(t, s.Import(ctx, tester, state(3), true))
			f.freshWith(t, "a change after it", 3)
			if strings.HasPrefix(test.name, "MariaDB") {
				return
			}
			told := f.told.Load()
			eventually(t, "told of changes again", func() bool {
				must(t, s.Import(ctx, tester, state(4), true))
				return f.told.Load() > told
			})
		})
	}
}

func stopAfter(t *testing.T, s *dbtest.Server) {
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}
