package redis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
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

// The slot of a tag is that of the names of its buckets, as servers reckon it.
func TestSlot(t *testing.T) {
	server := redistest.StartOnPort(t, "--cluster-enabled", "yes")
	for _, tag := range []uint16{0, 1, 77, 255, 256, 0x1234, 0xFFFF} {
		client := &names{}
		s, err := shared.New(shared.Options{Server: client})
		if err != nil {
			t.Fatal(err)
		}
		of := ten
		of.Tag = tag
		_, _ = try(s, time.Second, of)
		if want := server.Do("CLUSTER", "KEYSLOT", client.key); int64(shared.Slot(tag)) != want {
			t.Errorf("Slot(%d) = %d, and of %q the server says %v", tag, shared.Slot(tag), client.key, want)
		}
	}
}

// names is told the name of a bucket.
type names struct{ key string }

func (n *names) Eval(_ context.Context, _, _ string, keys, _ []string) (any, error) {
	n.key = keys[0]
	return nil, errors.New("that is all")
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

// A member of a cluster that is gone is lost by itself: buckets of the others stay strict, and a decision over both does what rules say for the one
// that is gone. When the member is back, it is found again.
func TestOneMemberIsLostByItself(t *testing.T) {
	servers := redistest.Cluster(t)
	link, err := redis.NewLink(redis.Options{Addresses: []string{servers[0].Address()}, Cluster: true})
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
		Local: local, Strict: strict, Deadline: time.Second, Server: link.Server, Changed: func(one scoped.Server, _ scoped.Status) { turns <- one },
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
	if allowed, err := decide(take(0, 3, bucket.LossClosed), take(2, 3, bucket.LossClosed)); allowed || !errors.Is(err, bucket.ErrLost) {
		t.Errorf("closed: %t, %v, want a denial", allowed, err)
	}
	for i := range 11 {
		if allowed, err := decide(take(0, 3, bucket.LossClosed), take(2, 3, bucket.LossOpen)); allowed != (i < 10) || err != nil {
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
