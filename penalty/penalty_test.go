package penalty_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
)

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
	start  = int64(1_795_176_000) * second
)

var (
	somebody = key.Key{Hi: 1, Lo: 2}
	terms    = &penalty.Terms{After: 5, Within: time.Minute, For: 10 * time.Minute, UpTo: time.Hour}
)

// deny denies so often, and reports for how long the caller is blocked then; 0 if it is not.
func deny(t *penalty.Table, now int64, times int) (left time.Duration) {
	for range times {
		if until, blocked := t.Denied(now, somebody, terms); blocked {
			left = time.Duration(until - now)
		}
	}
	return left
}

func left(t *penalty.Table, now int64, terms *penalty.Terms) time.Duration {
	until, blocked := t.Until(now, somebody, terms)
	if !blocked {
		return 0
	}
	return time.Duration(until - now)
}

// TestStory is the one that the package tells.
func TestStory(t *testing.T) {
	p := penalty.New(0)
	if got := left(p, start, terms); got != 0 {
		t.Errorf("nobody was denied, and is blocked for %v", got)
	}
	for _, step := range []struct {
		at      int64 // seconds
		denials int
		blocked time.Duration
	}{
		{0, 4, 0},
		{1, 1, 10 * time.Minute},
		{2, 50, 10*time.Minute - time.Second}, // who asks on while it is blocked makes it no longer
		{600, 4, time.Second},
		{601, 0, 0},
		{602, 5, 20 * time.Minute},
		{1802, 5, 40 * time.Minute},
		{4202, 5, time.Hour},
		{7802, 5, time.Hour},
		{7802 + 7200, 5, 10 * time.Minute},        // it has kept from it for as long as the last one took
		{7802 + 7200 + 1199, 5, 20 * time.Minute}, // and now it has not
	} {
		now := start + step.at*second
		got := deny(p, now, step.denials)
		if step.denials == 0 {
			got = left(p, now, terms)
		}
		if got != step.blocked {
			t.Errorf("after %d s and %d denials it is blocked for %v, want %v", step.at, step.denials,
				got, step.blocked)
		}
		if again := left(p, now, terms); again != step.blocked {
			t.Errorf("after %d s, Until says %v, and Denied %v", step.at, again, step.blocked)
		}
	}
	if s := p.Stats(); s.Begun != 7 || s.Lost != 0 {
		t.Errorf("%+v, want 7 penalties", s)
	}
}

// So many denials within the time always block, and so many in a seventh more may; fewer never do.
func TestWithin(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		terms := &penalty.Terms{
			After:  2 + rng.IntN(9),
			Within: time.Duration(1+rng.IntN(100)) * time.Second,
			For:    time.Minute,
			UpTo:   time.Minute,
		}
		p := penalty.New(64)
		var at []int64 // denials since the last penalty
		for now := start; len(at) < 100; now += rng.Int64N(int64(terms.Within) / 3) {
			if _, blocked := p.Until(now, somebody, terms); blocked {
				now += minute
			}
			at = append(at, now)
			_, blocked := p.Denied(now, somebody, terms)
			within, more := 0, 0
			for _, denied := range at {
				if now-denied <= int64(terms.Within) {
					within++
				}
				if now-denied <= int64(terms.Within)*8/7+8 {
					more++
				}
			}
			if within >= terms.After && !blocked || more < terms.After && blocked {
				t.Fatalf("seed %d, %+v: %d denials in the time, %d in a seventh more: blocked %v", seed, terms, within,
					more, blocked)
			}
			if blocked {
				at = nil
				if rng.IntN(2) == 0 {
					break
				}
			}
		}
	}
}

// The clock may step: back, nobody is freed or blocked for longer than the terms say, and nothing is counted anew.
func TestClockSteps(t *testing.T) {
	p := penalty.New(0)
	deny(p, start, 4)
	if got := deny(p, start-3600*second, 1); got == 0 {
		t.Error("a denial counts no longer after the clock stepped back")
	}
	p = penalty.New(0)
	deny(p, start, 5)
	until, blocked := p.Until(start-3600*second, somebody, terms)
	if !blocked || until != start+10*minute {
		t.Errorf("after the clock stepped back an hour: blocked %v until %d, want until ten minutes from the start",
			blocked, until-start)
	}
	if got := left(p, start+10*minute, terms); got != 0 {
		t.Errorf("when the clock is right again it is blocked for %v", got)
	}
	if got := deny(p, start+400*24*3600*second, 4); got != 0 {
		t.Errorf("four denials after a year block for %v", got)
	}
}

// What is in force is said by the terms of now.
func TestTermsChange(t *testing.T) {
	p := penalty.New(0)
	deny(p, start, 5)
	shorter := &penalty.Terms{After: 5, Within: time.Minute, For: time.Minute, UpTo: 2 * time.Minute}
	if got := left(p, start+90*second, shorter); got != 30*time.Second {
		t.Errorf("with two minutes at most it is blocked for %v, want 30s", got)
	}
	if got := left(p, start+150*second, shorter); got != 0 {
		t.Errorf("and then for %v", got)
	}
	p.Forget(somebody)
	if got := left(p, start, terms); got != 0 {
		t.Errorf("what was forgotten blocks for %v", got)
	}
	other := &penalty.Terms{After: 5, Within: time.Hour, For: time.Minute, UpTo: time.Minute}
	deny(p, start, 4)
	if _, blocked := p.Denied(start, somebody, other); blocked {
		t.Error("denials that were counted for another time make up a penalty")
	}
}

// Attackers with any number of names have no more memory than there is, end nobody's penalty, and
// are told to the metrics.
func TestBounded(t *testing.T) {
	p := penalty.New(1024)
	deny(p, start, 5)
	once := &penalty.Terms{After: 1, Within: time.Minute, For: time.Hour, UpTo: time.Hour}
	rng := rand.New(rand.NewPCG(1, 2))
	blocked := 0
	for range 50_000 {
		if _, b := p.Denied(start+second, key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}, once); b {
			blocked++
		}
	}
	s := p.Stats()
	if blocked > s.Callers || blocked < s.Callers/2 || s.Lost != uint64(50_000-blocked) {
		t.Errorf("%d of 50000 are blocked, %+v", blocked, s)
	}
	if got := left(p, start+second, terms); got != 10*time.Minute-time.Second {
		t.Errorf("who was blocked before them is blocked for %v", got)
	}
	if n := testing.AllocsPerRun(100, func() { p.Denied(start+second, key.Key{Hi: 1 << 40, Lo: 3}, once) }); n != 0 {
		t.Errorf("Denied allocates %v times", n)
	}
	// Once their penalties and what they are remembered for are over, there is room again.
	late := start + 4*3600*second
	if _, b := p.Denied(late, key.Key{Hi: 7, Lo: somebody.Lo}, once); !b {
		t.Error("there is no room after all penalties are over")
	}
}

func TestSaved(t *testing.T) {
	p, again := penalty.New(0), penalty.New(1024)
	var file bytes.Buffer
	if n, err := p.Save(&file, start); n != 0 || err != nil || file.Len() != 0 {
		t.Errorf("an empty table takes %d bytes, %v", n, err)
	}
	deny(p, start, 5)
	half := key.Key{Hi: 5, Lo: 6}
	for range 4 {
		p.Denied(start, half, terms)
	}
	p.Denied(start-3*3600*second, key.Key{Hi: 8, Lo: 9}, terms) // long over
	n, err := p.Save(&file, start+minute)
	if n != 2*64 || err != nil || int64(file.Len()) != n {
		t.Errorf("Save = %d, %v, %d bytes, want 128", n, err, file.Len())
	}
	text := bytes.Clone(file.Bytes())
	if err := again.Load(&file); err != nil {
		t.Fatal(err)
	}
	if got := left(again, start+minute, terms); got != 9*time.Minute {
		t.Errorf("after a restart it is blocked for %v, want 9m", got)
	}
	if _, blocked := again.Denied(start+second, half, terms); !blocked {
		t.Error("what was counted before a restart counts no longer")
	}
	if err := penalty.New(0).Load(bytes.NewReader(text[:100])); err == nil {
		t.Error("half an entry is read")
	}
	for i := range text {
		wrong := bytes.Clone(text)
		wrong[i] ^= 0xff
		if broken := penalty.New(0); broken.Load(bytes.NewReader(wrong)) == nil {
			broken.Until(start, somebody, terms) // and never panics
			broken.Denied(start, somebody, terms)
		}
	}
}

func TestConcurrent(t *testing.T) {
	p := penalty.New(64)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				k := key.Key{Hi: uint64(i % 100), Lo: uint64(n % 3)}
				p.Denied(start+int64(i)*second, k, terms)
				p.Until(start+int64(i)*second, k, terms)
				if i%100 == 0 {
					p.Forget(k)
					_, _ = p.Save(new(bytes.Buffer), start)
				}
			}
		})
	}
	wg.Wait()
}

// TestForeseenAsDenied: whatever was denied when, what Foresee says is what Denied then does, and nobody
// notices that it was asked.
func TestForeseenAsDenied(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	asked, never := penalty.New(16), penalty.New(16)
	now, blocked := int64(1_800_000_000)*int64(time.Second), 0
	for range 20_000 {
		now += int64(r.IntN(3000)-100) * int64(time.Millisecond)
		who := key.Key{Hi: r.Uint64N(40) << 58, Lo: 1 + r.Uint64N(40)}
		terms := penalty.Terms{After: 1 + r.IntN(3), Within: 10 * time.Second, For: 5 * time.Second,
			UpTo: 30 * time.Second}
		for range r.IntN(3) {
			asked.Foresee(now, who, &terms)
		}
		until, is := asked.Foresee(now, who, &terms)
		gotUntil, got := asked.Denied(now, who, &terms)
		wantUntil, want := never.Denied(now, who, &terms)
		if got != want || gotUntil != wantUntil || is != want || until != wantUntil {
			t.Fatalf("Foresee = %d, %t, Denied = %d, %t, and of who was never asked %d, %t", until, is, gotUntil, got,
				wantUntil, want)
		}
		if got {
			blocked++
		}
	}
	if blocked < 1000 || asked.Stats() != never.Stats() {
		t.Errorf("%d denials met or began a penalty, %+v, want a thousand and more, and %+v", blocked, asked.Stats(),
			never.Stats())
	}
}
