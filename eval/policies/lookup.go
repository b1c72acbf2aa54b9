package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// LookUp is nanoseconds a look-up among few rules and among many: of one rule again and again, and of any.
type LookUp struct {
	HotFew, HotMany, AnyFew, AnyMany float64

	// MissFew and MissMany are nanoseconds a read of memory whose place the read
	// before told, in as many bytes as the rules take: what a table costs that
	// is asked for one thing which is not in the cache.
	MissFew, MissMany float64
}

// batch is how many look-ups are timed together, and batches how often: each kind in turn, so that
// all meet the same machine.
const batch, batches = 1 << 16, 21

func (p plan) measureLookUp() (found LookUp, err error) {
	few, err := newLookUps(1_000)
	if err != nil {
		return found, err
	}
	many, err := newLookUps(p.most)
	if err != nil {
		return found, err
	}
	var hotFew, hotMany, anyFew, anyMany, missFew, missMany []float64
	chaseFew, chaseMany := newChase(1_000), newChase(p.most)
	for range batches {
		hotFew = append(hotFew, few.time(0))
		hotMany = append(hotMany, many.time(0))
		anyFew = append(anyFew, few.time(batch-1))
		anyMany = append(anyMany, many.time(batch-1))
		missFew = append(missFew, chaseFew.time())
		missMany = append(missMany, chaseMany.time())
	}
	return LookUp{median(hotFew), median(hotMany), median(anyFew), median(anyMany), median(missFew), median(missMany)},
		nil
}

// bytesARule is what a rule takes in a Set, about.
const bytesARule = 44

// chase is one ring through memory, in an order that no processor foresees: each
// element names the next one. at is where the last walk ended.
type chase struct {
	next []uint32
	at   uint32
}

// newChase makes a ring of as many bytes as so many rules take.
func newChase(rules int) *chase {
	c := &chase{next: make([]uint32, rules*bytesARule/4)}
	for i := range c.next {
		c.next[i] = uint32(i)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for i := len(c.next) - 1; i > 0; i-- { // Sattolo: one ring, and not several
		j := random.IntN(i)
		c.next[i], c.next[j] = c.next[j], c.next[i]
	}
	return c
}

// time is nanoseconds a read.
func (c *chase) time() float64 {
	begin := time.Now()
	for range batch {
		c.at = c.next[c.at]
	}
	return float64(time.Since(begin)) / batch
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// lookUps is a Set and what is looked up in it.
type lookUps struct {
	set      *policy.Set
	ids      []endpoint.ID
	projects []string
	applied  []policy.Applied
}

func newLookUps(n int) (*lookUps, error) {
	endpoints, err := table()
	if err != nil {
		return nil, err
	}
	doc := rules(n)
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: endpoints})
	if set == nil {
		return nil, problems.Err()
	}
	l := &lookUps{set: set, applied: make([]policy.Applied, 0, policy.MaxApplied)}
	random := rand.New(rand.NewPCG(1, 2))
	for range batch {
		r := &doc.Rules[2+random.IntN(len(doc.Rules)-2)]
		t, err := endpoint.ParseTemplate(r.Endpoint)
		if err != nil {
			return nil, err
		}
		id, ok := endpoints.Lookup(t)
		if !ok {
			return nil, fmt.Errorf("the table lacks %s", t)
		}
		l.ids, l.projects = append(l.ids, id), append(l.projects, string([]byte(r.Project)))
	}
	return l, nil
}

// time is nanoseconds a look-up: of the first pair, or of as many as the mask lets through.
func (l *lookUps) time(mask int) float64 {
	begin := time.Now()
	for i := range batch {
		m := endpoint.Match{Status: endpoint.Known, ID: l.ids[i&mask]}
		l.applied = l.set.Resolve(l.applied[:0], 1, m, l.projects[i&mask], "")
	}
	return float64(time.Since(begin)) / batch
}
