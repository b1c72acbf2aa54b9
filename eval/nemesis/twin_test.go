package nemesis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/eval/nemesis"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// server is an Engine to which messages take no time, and the clocks of both sides: its own, in Unix
// microseconds, and that of those who ask, in nanoseconds, which is an hour behind.
type server struct {
	engine *nemesis.Engine
	now    int64
	theirs int64
}

func newServer(t testing.TB) *server {
	s := &server{now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixMicro()}
	s.theirs = (s.now - time.Hour.Microseconds()) * 1000
	s.engine = nemesis.NewEngine(func() int64 { return s.now })
	t.Cleanup(s.engine.Close)
	return s
}

// Eval is redis.Evaler.
func (s *server) Eval(_ context.Context, command, script string, keys, args []string) (any, error) {
	return s.engine.Eval(command, script, keys, args)
}

// pass lets time pass, in whole microseconds.
func (s *server) pass(d time.Duration) {
	s.now += d.Microseconds()
	s.theirs += d.Microseconds() * 1000
}

func (s *server) nanos() int64 { return s.now * 1000 }

func (s *server) open(t testing.TB, o redis.Options) *redis.Store {
	o.Server, o.Now = s, func() int64 { return s.theirs }
	store, err := redis.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// twin is what a bucket in the store should be: a state, and who was told what of it; one thing
// after the other, by the server's clock.
type twin struct {
	of      bucket.Take // of the store's shape
	state   bucket.State
	grants  lease.Ledger
	reports report.Ledger

	asked    [replicas]lease.Question // the last ones of each replica, and what was told last
	told     [replicas]report.Report
	gifts    int64 // units that were given, all since the server began, or math.MaxInt64 for everything
	givenAt  int64 // microseconds
	given    map[bucket.Once]int64
	accounts uint64
}

// present is the state at now: one of more than a second ahead was written before the clock was set
// back, and goes on from now.
func (w *twin) present(now int64, kept bool) bucket.State {
	s := w.state
	if s.Stamp > now+int64(time.Second) {
		if s.Stamp = now; kept {
			w.state = s
		}
	}
	return s
}

// shift is what is to become of units of which so many may be moved.
func (w *twin) shift(now, units int64) (moved int64) {
	if w.state, moved = w.present(now, true).Shift(now, w.of.Shape, units, 0); w.state.Debt == 0 {
		w.state = bucket.State{} // a full bucket is not kept
	}
	return moved
}

// back is how many units of a charge come back, of which so much had not drained at a time, and that
// was taken after another.
func (w *twin) back(now, units, left, asOf, after int64) int64 {
	if late := max(now, w.present(now, true).Stamp) - asOf; late > 0 {
		ticks := (late + w.of.Shape.Tick - 1) / w.of.Shape.Tick
		left -= ticks * w.of.Shape.Drain
	}
	units = min(units, max(0, left))
	if w.givenAt > after/1000 {
		units = max(0, units-w.gifts)
	}
	return units
}

// give notes a gift.
func (w *twin) give(now, units int64) {
	if w.givenAt = now / 1000; w.gifts > math.MaxInt64-units {
		units = math.MaxInt64 - w.gifts
	}
	w.gifts += units
}

// debt is a charge that may be given back.
type debt struct {
	of          *twin
	units       int64
	at          int64 // by the server's clock
	theirs      int64
	undo        func()
	undoneFirst *debt
}

// The store is its twin, whatever is asked of it and in which order, by its own clock: takes of one
// bucket and of several, looks, questions and reports that come once, again or late, changes by
// operators, charges that are given back, and a clock that is set back and forth.
func TestStoreIsItsTwin(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		for seed := range race.Fewer(uint64(3)) {
			t.Run(fmt.Sprintf("cluster %v, seed %d", cluster, seed),
				func(t *testing.T) { newPair(t, seed, cluster).run(race.Fewer(1000)) })
		}
	}
}

// pair is a store and its twins.
type pair struct {
	*testing.T
	*server
	r         *rand.Rand
	store     *redis.Store
	authority *redis.Authority
	ledger    *redis.Ledger
	twins     []*twin
	debts     []*debt
	cluster   bool
	counts    map[string]int
}

const replicas = 2

func newPair(t *testing.T, seed uint64, cluster bool) *pair {
	p := &pair{
		T:       t,
		server:  newServer(t),
		r:       rand.New(rand.NewPCG(seed, 19)),
		cluster: cluster,
		counts:  map[string]int{},
	}
	p.store = p.open(t, redis.Options{Cluster: cluster})
	var err1, err2 error
	p.authority, err1 = redis.NewAuthority(p.store, redis.AuthorityOptions{TTL: time.Minute})
	p.ledger, err2 = redis.NewLedger(p.store, redis.LedgerOptions{Keep: time.Hour})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for i, l := range []rate.Limit{
		{Tokens: 7, Per: time.Second, Burst: 9},
		{Tokens: 1000, Per: time.Second, Burst: 600},
		{Tokens: 30, Per: time.Minute, Burst: 5},
		{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003_000}, // in ticks of more than a microsecond
		{Tokens: 40, Per: time.Second, Burst: 20},
		{Tokens: 90, Per: time.Second, Burst: 90},
	} {
		shape, err := rate.Compile(l)
		if err == nil {
			shape, err = redis.Coarsen(shape)
		}
		if err != nil {
			t.Fatal(err)
		}
		w := &twin{
			of:       bucket.Take{Key: key.Key{Hi: uint64(i + 1), Lo: 7}, Shape: shape, Tag: uint16(i % 3)},
			given:    map[bucket.Once]int64{},
			accounts: 1,
		}
		w.told = [replicas]report.Report{{Seq: 1 << 32}, {Seq: 1 << 32}} // as accounts number
		p.twins = append(p.twins, w)
	}
	return p
}

func (p *pair) run(steps int) {
	for range steps {
		p.pass(time.Duration(2+p.r.Int64N(40_000)) * time.Microsecond)
		if !p.cluster && p.r.IntN(60) == 0 {
			p.step()
		}
		switch p.r.IntN(12) {
		case 0, 1:
			p.take()
		case 2, 3:
			p.takeSeveral()
		case 4, 5, 6:
			p.ask()
		case 7, 8:
			p.report()
		case 9:
			p.correct()
		case 10:
			p.attempt()
		case 11:
			p.repay()
		}
		p.look()
		if p.Failed() {
			return
		}
	}
	for _, what := range []string{"admitted", "denied", "granted", "asked again", "reported again", "given back"} {
		if p.counts[what] < steps/500 {
			p.Errorf("%s: %d of %d steps, want more", what, p.counts[what], steps)
		}
	}
}

// step sets the server's clock, where it is certain which buckets have expired by then.
func (p *pair) step() {
	by := []time.Duration{-time.Hour, -900 * time.Millisecond, time.Second, 3 * time.Second}[p.r.IntN(4)]
	p.engine.Sweep()
	for _, w := range p.twins {
		if ago := p.nanos() - w.state.FullAt(w.of.Shape); ago >= 0 && ago < int64(3*time.Millisecond) {
			return
		}
	}
	for _, w := range p.twins {
		if w.state.FullAt(w.of.Shape) <= p.nanos() {
			w.state = bucket.State{}
		}
	}
	p.now += by.Microseconds()
}

func (p *pair) one() *twin { return p.twins[p.r.IntN(len(p.twins))] }

// cost is of what a bucket holds, now and then of more.
func (p *pair) cost(w *twin) int64 {
	if p.r.IntN(3) == 0 {
		return p.r.Int64N(w.of.Shape.Burst() + 2)
	}
	return min(p.r.Int64N(4), w.of.Shape.Burst())
}

func micros(o bucket.Outcome) bucket.Outcome {
	up := func(d time.Duration) time.Duration {
		return (d + time.Microsecond - 1) / time.Microsecond * time.Microsecond
	}
	o.RetryAfter, o.ResetAfter = up(o.RetryAfter), up(o.ResetAfter)
	return o
}

func (p *pair) take() {
	w := p.one()
	of := w.of
	of.Cost = p.cost(w)
	var got [1]bucket.Outcome
	if _, err := p.store.TryConsume(p.Context(), 0, []bucket.Take{of}, got[:]); err != nil {
		p.Fatal(err)
	}
	before := w.present(p.nanos(), true)
	after, want := before.Take(p.nanos(), of.Shape, of.Cost)
	if want.Allowed {
		w.state = after
		p.counts["admitted"]++
	} else {
		p.counts["denied"]++
	}
	if micros(got[0]) != micros(want) {
		p.Errorf("at %d a take of %d from %+v says %+v, want %+v", p.now, of.Cost, w.of, got[0], want)
	}
}

// wants draws some takes, and says what is to become of them.
func (p *pair) wants() (of []*twin, takes []bucket.Take, allowed bool) {
	allowed = true
	for _, i := range p.r.Perm(len(p.twins))[:1+p.r.IntN(4)] {
		w := p.twins[i]
		tk := w.of
		tk.Cost, tk.Shadow = p.cost(w), p.r.IntN(6) == 0
		of, takes = append(of, w), append(takes, tk)
		_, o := w.present(p.nanos(), false).Take(p.nanos(), tk.Shape, tk.Cost)
		allowed = allowed && (tk.Shadow || o.Allowed)
	}
	return of, takes, allowed
}

// charge has twins charged with takes that were allowed together.
func (p *pair) charge(of []*twin, takes []bucket.Take) (debts []*debt) {
	for i, w := range of {
		after, o := w.present(p.nanos(), true).Take(p.nanos(), takes[i].Shape, takes[i].Cost)
		if w.state = after; o.Allowed && takes[i].Cost > 0 {
			debts = append(debts, &debt{
				of:     w,
				units:  takes[i].Cost * takes[i].Shape.Unit,
				at:     p.nanos(),
				theirs: p.theirs,
			})
		}
	}
	return debts
}

func (p *pair) takeSeveral() {
	of, takes, want := p.wants()
	outs := make([]bucket.Outcome, len(takes))
	how := p.store.TryConsume
	looks := p.r.IntN(4) == 0
	if looks {
		how = p.store.Peek
	}
	allowed, err := how(p.Context(), 0, takes, outs)
	if err != nil || allowed != want {
		p.Errorf("at %d takes %+v: %t, %v, want %t", p.now, takes, allowed, err, want)
	}
	if looks {
		return
	}
	if want {
		p.debts = append(p.debts, p.charge(of, takes)...)
		return
	}
	for _, w := range of {
		w.present(p.nanos(), true)
	}
}

func (p *pair) look() {
	takes, outs := make([]bucket.Take, len(p.twins)), make([]bucket.Outcome, len(p.twins))
	for i, w := range p.twins {
		takes[i] = w.of
	}
	if _, err := p.store.Peek(p.Context(), 0, takes, outs); err != nil {
		p.Fatal(err)
	}
	for i, w := range p.twins {
		_, want := w.present(p.nanos(), false).Take(p.nanos(), w.of.Shape, 0)
		if micros(outs[i]) != micros(want) {
			p.Errorf("at %d bucket %d of the store is %+v, and that of its twin %+v", p.now, i, outs[i], want)
		}
	}
}

// ask asks questions for leases, some again, and some of accounts that were made anew.
func (p *pair) ask() {
	replica := p.r.IntN(replicas)
	var of []*twin
	var asked []lease.Asked
	var anew []bool // else the answer is known
	for _, i := range p.r.Perm(len(p.twins))[:1+p.r.IntN(3)] {
		w := p.twins[i]
		most := w.of.Shape.Burst()
		q := lease.Question{Want: 1 + p.r.Int64N(most/2+2), Need: p.r.Int64N(min(most, 6) + 2)}
		switch last := w.asked[replica]; p.r.IntN(8) {
		case 0:
			q.Seq, q.Want = 0, 0
		case 1, 2:
			if q = last; last.Seq == 0 {
				continue
			}
			p.counts["asked again"]++
		case 3:
			if q.Seq = last.Seq; q.Seq&math.MaxUint32 < 2 {
				continue
			}
			q.Seq--
		case 4: // a new account numbers its questions from 1
			w.accounts++
			q.Seq = w.accounts<<32 + 1
		default:
			q.Seq = max(last.Seq, w.accounts<<32) + 1
		}
		anew = append(anew, q.Seq > w.asked[replica].Seq)
		if q.Seq > w.asked[replica].Seq {
			w.asked[replica] = q
		}
		of, asked = append(of, w), append(asked, lease.Asked{Of: w.of, Question: q})
	}
	p.authority.AskAll(p.Context(), uint64(replica+1), asked)
	for i, w := range of {
		a, now := &asked[i], p.nanos()
		w.grants.State = w.present(now, anew[i])
		want := w.grants.Grant(now, w.of.Shape, uint64(replica+1), a.Question)
		if anew[i] {
			w.state = w.grants.State
		}
		up := func(d *time.Duration) { *d = (*d + time.Microsecond - 1) / time.Microsecond * time.Microsecond }
		up(&want.Wait)
		up(&want.Reset)
		if a.Err != nil || a.Answer != want {
			p.Errorf("at %d replica %d asks %+v of %+v: %+v, %v, want %+v", p.now, replica, a.Question, w.of,
				a.Answer, a.Err, want)
		}
		if want.Tokens > 0 {
			p.counts["granted"]++
		}
	}
}

// report reports what replicas admitted, some again, and some late.
func (p *pair) report() {
	replica := p.r.IntN(replicas)
	var of []*twin
	var told []report.Told
	for _, i := range p.r.Perm(len(p.twins))[:1+p.r.IntN(3)] {
		w := p.twins[i]
		next := report.Report{
			Seq:    w.told[replica].Seq + uint64(1)<<(32*p.r.IntN(2)),
			Tokens: p.r.Int64N(min(w.of.Shape.Burst(), 8)),
		}
		switch p.r.IntN(6) {
		case 0:
			next = w.told[replica]
			p.counts["reported again"]++
		case 1:
			next.Seq = w.told[replica].Seq - 1
		default:
			w.told[replica] = next
		}
		of, told = append(of, w), append(told, report.Told{Of: w.of, Report: next})
	}
	p.ledger.ReportAll(p.Context(), uint64(replica+1), told)
	for i, w := range of {
		w.reports.State = w.present(p.nanos(), true)
		want := w.reports.Charge(p.nanos(), w.of.Shape, uint64(replica+1), told[i].Report)
		w.state = w.reports.State
		if told[i].Err != nil || told[i].Answer != want {
			p.Errorf("at %d replica %d reports %+v of %+v: %+v, %v, want %+v", p.now, replica, told[i].Report, w.of,
				told[i].Answer, told[i].Err, want)
		}
	}
}

// correct has somebody add to what a bucket owes, or give to it, once or again.
func (p *pair) correct() {
	w, unit := p.one(), int64(0)
	unit = w.of.Shape.Unit
	c := bucket.Change{Key: w.of.Key, Tag: w.of.Tag, Shape: w.of.Shape}
	want := int64(0)
	switch p.r.IntN(4) {
	case 0:
		c.Units = (1 + p.r.Int64N(w.of.Shape.Burst())) * unit
		want = w.shift(p.nanos(), c.Units)
	case 1:
		c.Units = bucket.Fill
		want = w.shift(p.nanos(), c.Units)
		w.give(p.nanos(), math.MaxInt64)
	default:
		c.Units = -(1 + p.r.Int64N(min(w.of.Shape.Burst(), 5))) * unit
		c.Once = bucket.Once{Name: 1 + p.r.Uint64N(30), Of: uint64(-c.Units)}
		moved, again := w.given[c.Once]
		for other := range w.given {
			if other.Name == c.Once.Name && other.Of != c.Once.Of {
				if err := p.store.Correct(p.Context(), p.theirs, []bucket.Change{c}, make([]int64, 1)); !errors.Is(err,
					bucket.ErrAnother) {
					p.Errorf("at %d something else is given under a name: %v, want %v", p.now, err, bucket.ErrAnother)
				}
				return
			}
		}
		if want = moved; !again {
			if want = w.shift(p.nanos(), c.Units); want != 0 {
				w.give(p.nanos(), -want)
			}
			w.given[c.Once] = want
		}
	}
	p.moves(w, c, want)
}

// moves makes a change, and sees how much it moves.
func (p *pair) moves(w *twin, c bucket.Change, want int64) {
	var moved [1]int64
	if err := p.store.Correct(p.Context(), p.theirs, []bucket.Change{c}, moved[:]); err != nil || moved[0] != want {
		p.Errorf("at %d the change %+v of %+v moves %d, %v, want %d", p.now, c, w.of, moved[0], err, want)
	}
}

// attempt takes what is given back some time later, because somebody else denies the request.
func (p *pair) attempt() {
	of, takes, want := p.wants()
	allowed, undo, err := p.store.Attempt(p.Context(), 0, takes, make([]bucket.Outcome, len(takes)))
	if err != nil || allowed != want {
		p.Fatalf("at %d an attempt of %+v: %t, %v, want %t", p.now, takes, allowed, err, want)
	}
	if !want {
		for _, w := range of {
			w.present(p.nanos(), true)
		}
		return
	}
	for i, d := range p.charge(of, takes) {
		d.undo = func() {}
		if i == 0 {
			d.undo = func() { undo(p.Context(), p.theirs) }
		}
		if p.debts = append(p.debts, d); i > 0 {
			d.undoneFirst = p.debts[len(p.debts)-2]
		}
	}
}

// repay gives charges back that were made before, as far as they have not drained.
func (p *pair) repay() {
	if len(p.debts) == 0 {
		return
	}
	at := p.r.IntN(len(p.debts))
	for p.debts[at].undoneFirst != nil { // those of one attempt are undone together
		at--
	}
	d := p.debts[at]
	p.look() // and so hears how far the server's clock is
	if d.undo == nil {
		p.debts = append(p.debts[:at], p.debts[at+1:]...)
		p.settle(d)
		return
	}
	end := at + 1
	for end < len(p.debts) && p.debts[end].undoneFirst != nil {
		end++
	}
	for _, one := range p.debts[at:end] {
		back := one.of.back(p.nanos(), one.units, one.units, one.at, one.at-1000)
		if moved := one.of.shift(p.nanos(), -back); moved < 0 {
			p.counts["given back"]++
		}
	}
	d.undo()
	p.debts = append(p.debts[:at], p.debts[end:]...)
}

// settle has a charge turn out to be too large.
func (p *pair) settle(d *debt) {
	w, sh := d.of, d.of.of.Shape
	elapsed := p.theirs - d.theirs
	left := bucket.Unspent(sh, sh, d.units, d.units, d.theirs, p.theirs)
	units := min(left, (1+p.r.Int64N(d.units/sh.Unit))*sh.Unit)
	if units <= 0 {
		return
	}
	back := w.back(p.nanos(), units, left, p.nanos(), p.nanos()-elapsed)
	want := w.shift(p.nanos(), -back)
	if want < 0 {
		p.counts["given back"]++
	}
	p.moves(w, bucket.Change{
		Key:     w.of.Key,
		Tag:     w.of.Tag,
		Shape:   sh,
		Units:   -units,
		Charged: d.theirs,
		Left:    left,
	}, want)
}
