//go:build unix

package redis_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
)

func members(t testing.TB, s *redis.Store, o redis.MembersOptions) *redis.Members {
	t.Helper()
	m, err := redis.NewMembers(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMembersNamesEveryFault(t *testing.T) {
	_, err := redis.NewMembers(open(t, redis.Options{Server: redistest.Dial("/nowhere"), CallersClock: true}),
		redis.MembersOptions{TTL: time.Millisecond, Presumed: -1})
	want := "redis members: TTL is 1ms, want 100ms to 1h\nNow is nil, want a clock: the store has CallersClock\n" +
		"Presumed is -1, want 1 to 65536"
	if err == nil || err.Error() != want {
		t.Errorf("NewMembers: %v, want %s", err, want)
	}
}

// Who joins waits for all others to make room; who is not heard of is gone after TTL; who leaves is gone at once.
func TestMembers(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	store := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
	var all [3]*redis.Members
	for i := range all {
		all[i] = members(t, store, redis.MembersOptions{Replica: uint64(i + 1), TTL: 3 * time.Second,
			Now: func() int64 { return now }})
	}
	const a, b, c = 0, 1, 2
	for i, step := range []struct {
		after time.Duration // since the step before
		who   int
		leave bool
		want  [3]int // what each divides by then
	}{
		{0, a, false, [3]int{1, 0, 0}},           // alone
		{time.Second, b, false, [3]int{1, 0, 0}}, // joins: a has not heard yet
		{0, b, false, [3]int{1, 0, 0}},
		{0, a, false, [3]int{2, 0, 0}}, // hears, and has not said so
		{0, b, false, [3]int{2, 0, 0}},
		{time.Second, a, false, [3]int{2, 0, 0}}, // says so
		{0, b, false, [3]int{2, 2, 0}},
		{0, c, false, [3]int{2, 2, 0}}, // joins
		{0, a, false, [3]int{3, 2, 0}},
		{0, b, false, [3]int{3, 3, 0}},
		{0, a, false, [3]int{3, 3, 0}},
		{0, c, false, [3]int{3, 3, 0}}, // b has not said so
		{0, b, false, [3]int{3, 3, 0}},
		{0, c, false, [3]int{3, 3, 3}},
		{0, b, true, [3]int{3, 3, 3}},            // leaves
		{time.Second, a, false, [3]int{3, 3, 3}}, // the list is 3 s old, and not yet older
		{time.Microsecond, a, false, [3]int{2, 3, 3}},
		{0, c, false, [3]int{2, 3, 2}},
		{time.Second, a, false, [3]int{2, 3, 2}},
		{time.Second, a, false, [3]int{2, 3, 2}},
		{time.Second, a, false, [3]int{2, 3, 2}}, // c was heard 3 s ago
		{time.Microsecond, a, false, [3]int{1, 3, 2}},
		{10 * time.Second, c, false, [3]int{1, 3, 2}}, // nobody was heard for long, so a may be there
		{1500 * time.Millisecond, c, false, [3]int{1, 3, 2}},
		{1500 * time.Millisecond, c, false, [3]int{1, 3, 2}},
		{time.Microsecond, c, false, [3]int{1, 3, 1}},
		{0, a, false, [3]int{2, 3, 1}},           // was there
		{-time.Hour, c, false, [3]int{2, 3, 2}},  // the server's clock was set back
		{time.Second, c, false, [3]int{2, 3, 2}}, // and a is taken to have been heard then
		{time.Second, c, false, [3]int{2, 3, 2}},
		{time.Second, c, false, [3]int{2, 3, 2}},
		{time.Microsecond, c, false, [3]int{2, 3, 1}},
	} {
		now += int64(step.after)
		var err error
		if step.leave {
			err = all[step.who].Leave(t.Context())
		} else {
			err = all[step.who].Beat(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		for m, want := range step.want {
			if got := all[m].Replicas(); got != want {
				t.Fatalf("step %d: %c divides by %d, want %d", i, 'a'+m, got, want)
			}
		}
	}
	if got := all[c].Count(); got != 1 {
		t.Errorf("c counts %d, want itself", got)
	}
}

// However replicas come, go and speak, their parts add up to one at most.
func TestPartsNeverAddUpToMore(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	store := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
	rng := rand.New(rand.NewPCG(11, 5))
	clock := func() int64 { return now }
	living, born := map[uint64]*redis.Members{}, uint64(0)
	most := 0.0
	for step := range 6000 {
		now += rng.Int64N(int64(50 * time.Millisecond))
		switch kind := rng.IntN(100); {
		case kind < 3 && len(living) < 7:
			born++
			living[born] = members(t, store, redis.MembersOptions{Replica: born, TTL: 4 * time.Second, Now: clock})
		case kind < 5:
			for id, m := range living { // some one
				if err := m.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
				delete(living, id)
				break
			}
		default:
			for _, m := range living {
				if rng.IntN(2) == 0 {
					continue
				}
				if err := m.Beat(t.Context()); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		sum := 0.0
		for _, m := range living {
			if k := m.Replicas(); k > 0 {
				sum += 1 / float64(k)
			}
		}
		if most = math.Max(most, sum); sum > 1+1e-9 {
			t.Fatalf("step %d: %d replicas take %.3f of the limit", step, len(living), sum)
		}
	}
	if most < 1-1e-9 {
		t.Errorf("they never took more than %.3f, want all", most)
	}
}

// The caller's clock is nobody's, and without a server each goes on with what it knew.
func TestMembersByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	wrong := func() int64 { return math.MaxInt64 / 2 }
	a := members(t, store, redis.MembersOptions{Now: wrong})
	b := members(t, store, redis.MembersOptions{})
	server.Kill()
	late := members(t, store, redis.MembersOptions{Presumed: 8})
	if err := late.Beat(t.Context()); err == nil || late.Replicas() != 8 || late.Count() != 0 {
		t.Fatalf("without a server: %v, divides by %d of %d, want 8 of 0", err, late.Replicas(), late.Count())
	}
	server.Start()
	for range 3 {
		for _, m := range []*redis.Members{a, b} {
			if err := m.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a.Replicas() != 2 || b.Replicas() != 2 {
		t.Fatalf("two divide by %d and %d", a.Replicas(), b.Replicas())
	}
	if ttl := server.Do("PTTL", "hg{members}").(int64); ttl < 1 || ttl > 3001 {
		t.Errorf("the list of members is forgotten in %d ms, want 3 s", ttl)
	}
	server.Kill()
	if err := a.Beat(t.Context()); err == nil || a.Replicas() != 2 {
		t.Errorf("without a server: %v, divides by %d, want 2", err, a.Replicas())
	}
	server.Start()
	// An empty server does not know who is there, so nobody takes more at once.
	for _, m := range []*redis.Members{late, a} {
		if err := m.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if late.Replicas() != 8 || a.Replicas() != 2 || a.Count() != 2 {
		t.Errorf("on an empty server they divide by %d and %d, and count %d", late.Replicas(), a.Replicas(), a.Count())
	}
}

// Replicas that name buckets in different ways share none, and are told.
func TestStrangers(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	ours, also, other := members(t, store, redis.MembersOptions{Naming: 1}),
		members(t, store, redis.MembersOptions{Naming: 1}), members(t, store, redis.MembersOptions{Naming: 2})
	for _, m := range []*redis.Members{ours, also, other, ours} {
		if err := m.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ours.Strangers() != 1 || also.Strangers() != 0 || other.Strangers() != 2 || ours.Count() != 3 {
		t.Errorf("strangers are %d, %d and %d of %d, want 1, 0 as nobody else was there, 2 of 3", ours.Strangers(),
			also.Strangers(), other.Strangers(), ours.Count())
	}
}

// Each take of a limit that is divided asks by how many.
func BenchmarkReplicas(b *testing.B) {
	m := members(b, open(b, redis.Options{Server: redistest.Dial("/nowhere")}), redis.MembersOptions{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if m.Replicas() < 0 {
				b.Error("divided by a number below zero")
			}
		}
	})
}

// Whatever somebody else keeps under the name of the list, or in it, replicas find each other after it.
func TestMembersDropWhatIsNone(t *testing.T) {
	server := redistest.Start(t)
	for name, garbage := range map[string][]string{
		"a string": {"SET", "hg{members}", "garbage"},
		"a list":   {"RPUSH", "hg{members}", "a", "b"},
		"a set":    {"SADD", "hg{members}", "a"},
		"fields that are no replicas": {"HSET", "hg{members}", "x", "y", "a long name of a field",
			"22 bytes of any letters"},
		"replicas that say nothing": {"HSET", "hg{members}", "8 bytes.", "", "8 bytes!", "too short"},
		"a beginning that is none":  {"HSET", "hg{members}", "", "garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Do("FLUSHALL")
			now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).UnixNano()
			store := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
			o := redis.MembersOptions{TTL: 3 * time.Second, Now: func() int64 { return now }}
			a, b := members(t, store, o), members(t, store, o)
			beat := func(all ...*redis.Members) {
				t.Helper()
				for _, m := range all {
					if err := m.Beat(t.Context()); err != nil {
						t.Fatal(err)
					}
					now += int64(time.Second)
				}
			}
			beat(a)
			server.Do("DEL", "hg{members}")
			server.Do(garbage...)
			beat(b, a, b, a, b)
			if a.Count() != 2 || b.Count() != 2 || a.Replicas() != 2 || b.Replicas() != 2 {
				t.Errorf("they count %d and %d, and divide by %d and %d, want 2", a.Count(), b.Count(),
					a.Replicas(), b.Replicas())
			}
			if size := server.Do("HLEN", "hg{members}"); size != int64(3) {
				t.Errorf("the list has %v fields, want two replicas and since when it is kept", size)
			}
		})
	}
}

// TestMembersWithoutACommand: who may not read the list any more, while it runs, does not take itself for alone, nor
// have others forgotten.
func TestMembersWithoutACommand(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	var all [2]*redis.Members
	for i := range all {
		all[i] = members(t, store, redis.MembersOptions{Replica: uint64(i + 1), TTL: time.Hour})
	}
	for n := range 8 {
		if err := all[n%2].Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"hget", "hgetall", "hset"} {
		server.Do("ACL", "SETUSER", "default", "-"+command)
		for i, m := range all {
			if err := m.Beat(t.Context()); err == nil || m.Replicas() != 2 {
				t.Errorf("without %s replica %d hears %v, and divides by %d, want an error and 2", command, i, err,
					m.Replicas())
			}
		}
		server.Do("ACL", "SETUSER", "default", "+"+command)
		if size := server.Do("HLEN", "hg{members}"); size != int64(3) {
			t.Errorf("without %s %v fields are left of 3", command, size)
		}
	}
}
