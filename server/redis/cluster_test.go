package redis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	table "github.com/headgate-io/headgate/bucket/memory"
	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/redis"
)

// One cluster for all of them, which the last ones break.
func TestACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t)
	for _, c := range []struct {
		what string
		test func(*testing.T, []*redistest.Server)
	}{
		{"a member is no server alone", aMemberIsNoServerAlone},
		{"one tag is one script", oneTagIsOneScript},
		{"a denial charges nobody", aDenialChargesNobody},
		{"what is good once is so by any member", whatIsGoodOnce},
		{"a slot that nobody has is nobody's fault", aSlotThatNobodyHas},
		{"one member is lost by itself", oneMemberIsLostByItself},
		{"nobody waits for a member that he does not need", nobodyWaitsForAnother},
	} {
		for _, s := range servers {
			s.Do("FLUSHALL")
		}
		t.Run(c.what, func(t *testing.T) { c.test(t, servers) })
	}
}

func aMemberIsNoServerAlone(t *testing.T, servers []*redistest.Server) {
	err := start(redis.Options{Addresses: []string{servers[0].Address()}})
	if want :=
		"it is a member of a cluster, where one script reaches the buckets of one tag only: want store.cluster: " +
			"true"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start: %v, want %q", err, want)
	}
}

// Buckets of one tag are decided by one script, on a cluster too.
func oneTagIsOneScript(t *testing.T, servers []*redistest.Server) {
	client := dial(t, redis.Options{Addresses: []string{servers[1].Address()}, Cluster: true})
	s := store(t, client)
	a, b, c := ten, ten, ten
	a.Key, b.Key, c.Key = buckettest.Key(1), buckettest.Key(2), buckettest.Key(3)
	a.Tag, b.Tag, c.Tag = 77, 77, 77
	c.Cost = 10
	for i := range 12 {
		takes := []bucket.Take{a, b}
		if i >= 10 {
			takes = []bucket.Take{a, b, c}
		}
		if allowed, err := try(s, time.Minute, takes...); err != nil || allowed != (i < 10) {
			t.Fatalf("decision %d: %t, %v", i, allowed, err)
		}
	}
	sizes := int64(0)
	for _, server := range servers {
		sizes += server.Do("DBSIZE").(int64)
	}
	if sizes != 2 {
		t.Errorf("there are %d buckets, want those of a and b: what was denied charged c", sizes)
	}
}

// A denial on one server of a cluster gives back what another has taken.
func aDenialChargesNobody(t *testing.T, servers []*redistest.Server) {
	client := dial(t, redis.Options{Addresses: []string{servers[2].Address()}, Cluster: true})
	s := store(t, client)
	a, b := ten, ten
	b.Key, b.Tag = buckettest.Key(2), 12345
	if allowed, err := try(s, time.Minute, b); !allowed || err != nil {
		t.Fatal(allowed, err)
	}
	a.Cost, b.Cost = 9, 10
	for range 20 {
		if allowed, err := try(s, time.Minute, a, b); allowed || err != nil {
			t.Fatal(allowed, err)
		}
	}
	a.Cost = 10
	if allowed, err := try(s, time.Minute, a); !allowed || err != nil {
		t.Errorf("after 20 denials: %t, %v, want a full bucket", allowed, err)
	}
}

// What was shown is remembered by whichever member has its set, for those who began with different members.
func whatIsGoodOnce(t *testing.T, servers []*redistest.Server) {
	var both [2]*shared.Replays
	for i := range both {
		client := dial(t, redis.Options{Addresses: []string{servers[i].Address()}, Cluster: true})
		s, err := shared.New(shared.Options{Server: client, Cluster: true})
		if err != nil {
			t.Fatal(err)
		}
		both[i], err = shared.NewReplays(s, shared.ReplaysOptions{Kind: "proofs", Names: 1 << 12, Keep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for n := range uint64(300) {
		for i, want := range []bool{true, false, false} {
			fresh, err := both[(int(n)+i)%2].Use(t.Context(), buckettest.Key(n%8), buckettest.Key(1000+n), now)
			if err != nil || fresh != want {
				t.Fatalf("use %d of name %d: %t, %v, want %t", i+1, n, fresh, err, want)
			}
		}
	}
	for _, s := range servers {
		if s.Do("DBSIZE").(int64) == 0 {
			t.Errorf("%s remembers nothing", s.Address())
		}
	}
}

// A slot is taken from a member, and nobody has it. Only its buckets cannot be asked, while all
// members are, also the one that had it; and when it has it again, nothing needs a restart.
func aSlotThatNobodyHas(t *testing.T, servers []*redistest.Server) {
	for _, s := range servers {
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	defer func() {
		for _, s := range servers {
			s.Do("CONFIG", "SET", "cluster-require-full-coverage", "yes")
		}
	}()
	link, s := onCluster(t, redis.Options{Addresses: []string{servers[1].Address()}})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer link.Close()
	defer cancel()
	all.Go(func() { link.Follow(ctx, func([]int, error) {}) })
	ask := func(tag uint16, within time.Duration) error {
		of := ten
		of.Tag, of.Cost = tag, 0
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		_, err := s.TryConsume(ctx, 0, []bucket.Take{of}, make([]bucket.Outcome, 1))
		return err
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("not after a minute: %s", what)
			}
		}
	}
	tags := tagsOf(t, servers)
	lost, beside := tags[0], tags[0]+1
	for int(shared.Slot(beside))*len(servers)/shared.Slots != 0 || shared.Slot(beside) == shared.Slot(lost) {
		beside++
	}
	slot := strconv.Itoa(int(shared.Slot(lost)))
	for _, s := range servers {
		s.Do("CLUSTER", "DELSLOTS", slot)
	}
	until("the slot has another number than those of who had it",
		func() bool { return link.Server(lost) != link.Server(beside) })
	if err := start(redis.Options{Addresses: []string{servers[1].Address()}, Cluster: true}); err != nil {
		t.Errorf("a cluster with a slot that nobody has: %v, want that it will do", err)
	}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 50 {
				if ask(lost, 20*time.Millisecond) == nil {
					t.Error("a bucket that nobody has was asked")
				}
			}
		})
		for _, tag := range []uint16{beside, tags[1], tags[2]} {
			asking.Go(func() {
				for range 50 {
					if err := ask(tag, time.Minute); err != nil {
						t.Errorf("a bucket beside: %v", err)
					}
				}
			})
		}
	}
	asking.Wait()
	servers[0].Do("CLUSTER", "ADDSLOTS", slot)
	for _, s := range servers {
		s.Await("CLUSTER INFO", func(answer any, _ error) bool {
			text, _ := answer.(string)
			return strings.Contains(text, "cluster_slots_ok:"+strconv.Itoa(shared.Slots))
		})
	}
	until("the slot is asked for again", func() bool {
		return link.Server(lost) == link.Server(beside) && ask(lost, time.Second) == nil
	})
}

// tagsOf are tags whose buckets are on each of the servers.
func tagsOf(t *testing.T, servers []*redistest.Server) []uint16 {
	t.Helper()
	tags := make([]uint16, len(servers))
	for i := range tags {
		for tag := uint16(1); int(shared.Slot(tag))*len(servers)/shared.Slots != i; tag++ {
			tags[i] = tag + 1
		}
		if tags[i] == 0 {
			tags[i] = 1
		}
	}
	return tags
}

// A member of a cluster that is gone is lost by itself: buckets of the others stay strict, and a
// decision over both does what rules say for the one that is gone. When the member is back, it is
// found again.
func oneMemberIsLostByItself(t *testing.T, servers []*redistest.Server) {
	// Who is killed refuses connections at once. Nobody else is to be lost because the machine is slow.
	link, err := redis.NewLink(redis.Options{Addresses: []string{servers[0].Address()}, Cluster: true,
		ConnectTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	if err := link.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range servers {
		if whole := link.Whole(t.Context()); len(whole) != len(servers)-i {
			t.Errorf("%v answer nothing without each other, want all but %d", whole, i)
		}
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	strict, err := shared.New(shared.Options{Server: link, Cluster: true})
	if err != nil {
		t.Fatal(err)
	}
	local, err := table.New(table.Options{MaxBuckets: 4096})
	if err != nil {
		t.Fatal(err)
	}
	turns := make(chan scoped.Server, 16)
	s, err := scoped.New(scoped.Options{
		Local: local, Strict: strict, Deadline: time.Minute, Server: link.Server,
		Changed: func(one scoped.Server, _ scoped.Status) { turns <- one },
	})
	if err != nil {
		t.Fatal(err)
	}
	take := func(n int, key uint64, loss bucket.Loss) bucket.Take {
		of := ten
		of.Key, of.Tag, of.Reach = buckettest.Key(key), tagsOf(t, servers)[n], bucket.NewReach(bucket.Strict, loss)
		return of
	}
	decide := func(takes ...bucket.Take) (bool, error) {
		return s.TryConsume(context.Background(), time.Now().UnixNano(), takes, make([]bucket.Outcome, len(takes)))
	}
	for n := range servers {
		if allowed, err := decide(take(n, 1, bucket.LossClosed)); !allowed || err != nil {
			t.Fatalf("member %d: %t, %v", n, allowed, err)
		}
		if name := link.Servers()[link.Server(take(n, 1, 0).Tag)]; name != servers[n].Address() {
			t.Fatalf("buckets of member %d are taken to be at %s, want %s", n, name, servers[n].Address())
		}
	}
	// With a dead member in it, a cluster can be connected to as well.
	servers[2].Kill()
	other := dial(t, redis.Options{Addresses: []string{servers[1].Address()}, Cluster: true})
	if err := other.Check(t.Context()); err != nil {
		t.Errorf("a cluster with one member gone: %v, want that it will do", err)
	}
	gone := link.Server(take(2, 1, 0).Tag)
	for began := time.Now(); ; {
		if _, err := decide(take(2, 2, bucket.LossOpen)); err == nil {
			break
		} else if time.Since(began) > time.Minute {
			t.Fatalf("the member that is gone is still asked: %v", err)
		}
	}
	if one := <-turns; !one.Lost || one.Number != gone {
		t.Errorf("told of %+v, want that %d is lost", one, gone)
	}
	for i := range 12 { // of the ten one is taken
		for n := range 2 {
			if allowed, err := decide(take(n, 1, bucket.LossClosed)); allowed != (i < 9) || err != nil {
				t.Errorf("member %d, decision %d: %t, %v, want a strict limit of ten", n, i, allowed, err)
			}
		}
	}
	// Over both: the one that is gone is denied for, or passed over; the other counts.
	if allowed, err := decide(take(0, 3, bucket.LossClosed), take(2, 3, bucket.LossClosed)); allowed ||
		!errors.Is(err, bucket.ErrLost) {
		t.Errorf("closed: %t, %v, want a denial", allowed, err)
	}
	for i := range 11 {
		if allowed, err := decide(take(0, 3, bucket.LossClosed), take(2, 3, bucket.LossOpen)); allowed != (i < 10) ||
			err != nil {
			t.Errorf("open, decision %d: %t, %v, want the limit of the other member", i, allowed, err)
		}
	}
	if st := s.Status(); !st.Lost || st.Losses != 1 {
		t.Errorf("%+v, want one loss", st)
	}
	servers[2].Start()
	servers[0].Await("CLUSTER INFO", func(answer any, _ error) bool {
		text, _ := answer.(string)
		return strings.Contains(text, "cluster_slots_ok:"+strconv.Itoa(shared.Slots))
	})
	for began := time.Now(); s.Status().Lost; time.Sleep(5 * time.Millisecond) {
		_, _ = decide(take(2, 4, bucket.LossClosed))
		if time.Since(began) > time.Minute {
			t.Fatal("the member that is back is not found")
		}
	}
	if allowed, err := decide(take(2, 5, bucket.LossClosed)); !allowed || err != nil {
		t.Errorf("a member that is back: %t, %v", allowed, err)
	}
}

// A member is frozen, calls to it hang, and the cluster takes it for failed. Those who ask the
// others get every answer, however patient the library is with the one that is frozen.
func nobodyWaitsForAnother(t *testing.T, servers []*redistest.Server) {
	for _, s := range servers { // also whoever was restarted
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	link, s := onCluster(t, redis.Options{Addresses: []string{servers[0].Address()}, ConnectTimeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer link.Close() // ends calls that hang
	defer cancel()
	all.Go(func() { link.Follow(ctx, func([]int, error) {}) })
	tags := tagsOf(t, servers)
	ask := func(n int, ctx context.Context) error {
		of := ten
		of.Tag, of.Cost = tags[n], 0
		_, err := s.TryConsume(ctx, 0, []bucket.Take{of}, make([]bucket.Outcome, 1))
		return err
	}
	for n := range servers {
		if err := ask(n, ctx); err != nil {
			t.Fatal(err)
		}
	}
	servers[0].Freeze()
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = ask(0, ctx)
			}
		})
	}
	asked := 0
	var asking sync.WaitGroup
	for failed := false; !failed; asked++ { // as long as it takes the others to notice
		for _, n := range []int{1, 2} {
			asking.Go(func() {
				within, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				if err := ask(n, within); err != nil {
					t.Errorf("member %d, call %d: %v, want an answer while another member is frozen", n, asked, err)
				}
			})
		}
		asking.Wait()
		failed = !strings.Contains(servers[1].Do("CLUSTER", "INFO").(string), "cluster_slots_fail:0") || t.Failed()
	}
	if asked < 20 {
		t.Errorf("the others were asked %d times: this tests nothing", asked)
	}
	servers[0].Thaw()
}

// onCluster is a store over the members of a cluster. Who calls it closes the link.
func onCluster(t *testing.T, o redis.Options) (*redis.Link, *shared.Store) {
	t.Helper()
	o.Cluster = true
	link, err := redis.NewLink(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := shared.New(shared.Options{Server: link, Cluster: true})
	if err != nil {
		t.Fatal(err)
	}
	return link, s
}
