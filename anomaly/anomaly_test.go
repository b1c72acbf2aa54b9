package anomaly_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/identity"
)

const (
	second = int64(time.Second)
	minute = int64(time.Minute)
	start  = int64(1_795_176_000) * second
)

var names = anomaly.New(512)

// keyed is a caller with a verified credential.
func keyed(table *anomaly.Table, id string) anomaly.Caller {
	return table.Caller(&identity.Principal{Kind: identity.APIKey, Project: "acme", ID: id})
}

// addressed is a caller known by its address.
func addressed(table *anomaly.Table, n uint32) anomaly.Caller {
	a := netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	return table.Caller(&identity.Principal{Client: a, Prefix: netip.PrefixFrom(a, 32)})
}

var somebody = keyed(names, "somebody")

func table(t testing.TB, callers int, tiers ...anomaly.Tier) *anomaly.Table {
	t.Helper()
	s := &anomaly.Settings{Window: 5 * time.Minute, Weights: anomaly.DefaultWeights, Tiers: tiers}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	made := anomaly.New(callers)
	made.Use(s)
	return made
}

// usually has a caller make so many requests to one endpoint in each of so many windows of five minutes, all answered
// well, and returns when they are over.
func usually(table *anomaly.Table, now int64, c anomaly.Caller, windows, requests int) int64 {
	for range windows {
		for i := range requests {
			at := now + int64(i)*5*minute/int64(requests)
			table.Asked(at, c, anomaly.Request{Endpoint: 1})
			table.Answered(at, c, 200)
		}
		now += 5 * minute
	}
	return now
}

// TestPartsOfAStory: each part rises by what it is called after, and by nothing else.
func TestPartsOfAStory(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(table *anomaly.Table, now int64)
		want [anomaly.Parts]uint8
	}{
		{"as ever", func(table *anomaly.Table, now int64) { usually(table, now, somebody, 1, 30) },
			[anomaly.Parts]uint8{}},
		{"six times as many", func(table *anomaly.Table, now int64) { usually(table, now, somebody, 1, 180) },
			[anomaly.Parts]uint8{anomaly.Rate: 20}},
		{"ten times as many, and more", func(table *anomaly.Table, now int64) {
			usually(table, now, somebody, 1, 500)
		}, [anomaly.Parts]uint8{anomaly.Rate: 40}},
		{"each to another endpoint", func(table *anomaly.Table, now int64) {
			for i := range 30 {
				table.Asked(now, somebody, anomaly.Request{Endpoint: uint64(100 + i)})
			}
		}, [anomaly.Parts]uint8{anomaly.Endpoints: 8}}, // 30 of 60, the window before counting whole
		{"half of them not found", func(table *anomaly.Table, now int64) {
			for i := range 90 {
				table.Answered(now, somebody, []int{200, 404, 404, 404}[i%4])
			}
		}, [anomaly.Parts]uint8{anomaly.Errors: 23}}, // 67 of 120
		{"too many, says the API, and it failed", func(table *anomaly.Table, now int64) {
			for i := range 300 {
				table.Answered(now, somebody, []int{429, 503}[i%2])
			}
		}, [anomaly.Parts]uint8{}},
		{"what there is not", func(table *anomaly.Table, now int64) {
			for range 20 {
				table.Asked(now, somebody, anomaly.Request{Unknown: true})
			}
		}, [anomaly.Parts]uint8{anomaly.Unknown: 30}}, // 20 of 50
		{"spelled in detours", func(table *anomaly.Table, now int64) {
			for range 10 {
				table.Asked(now, somebody, anomaly.Request{Endpoint: 1, Disguised: true})
			}
		}, [anomaly.Parts]uint8{anomaly.Spellings: 15}}, // 10 of 40
		{"denied, a thousand times", func(table *anomaly.Table, now int64) {
			for range 1000 {
				table.Asked(now, somebody, anomaly.Request{Unknown: true, Disguised: true, Denied: true})
			}
		}, [anomaly.Parts]uint8{anomaly.Rate: 40}},
	} {
		table := table(t, 512)
		now := usually(table, start, somebody, 10, 30)
		c.do(table, now)
		at := now // the window before counts whole
		if c.name == "as ever" || strings.Contains(c.name, "times as many") {
			at = now + 5*minute - 1
		}
		got := table.Score(at, somebody)
		if got.Parts != c.want {
			t.Errorf("%s: the parts are %v, want %v", c.name, got.Parts, c.want)
		}
	}
}

// TestNewcomersHaveNoScore: whoever was not there in an earlier window has none, and nobody has a rate before it is
// known what is usual.
func TestNewcomersHaveNoScore(t *testing.T) {
	table := table(t, 512)
	for range 1000 {
		table.Asked(start, somebody, anomaly.Request{Unknown: true, Disguised: true})
	}
	if got := table.Score(start, somebody); got != (anomaly.Score{}) {
		t.Errorf("a newcomer has %+v, want none", got)
	}
	if got := table.Score(start+5*minute, somebody); got.Total != 80 || got.Parts[anomaly.Rate] != 0 {
		t.Errorf("in its second window it has %+v, want 80 of two parts", got)
	}
	if got := table.Score(start, keyed(table, "nobody")); got.Known {
		t.Errorf("who never asked has %+v", got)
	}
}

// TestEverybodyRecovers: whatever a caller did, once it does what is usual for it it has no points after two windows,
// and so it is if all its requests are denied meanwhile.
func TestEverybodyRecovers(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 7))
		table := table(t, 512)
		now := usually(table, start, somebody, 8+random.IntN(60), 40)
		worst := uint8(0)
		for range random.IntN(400) + 200 {
			table.Asked(now, somebody, anomaly.Request{
				Parts: random.Int64N(3), Endpoint: random.Uint64N(1000), Unknown: random.IntN(2) == 0,
				Disguised: random.IntN(2) == 0, Denied: random.IntN(3) == 0,
			})
			table.Answered(now, somebody, 400+random.IntN(29))
			now += random.Int64N(second)
			worst = max(worst, table.Score(now, somebody).Total)
		}
		if worst < 70 {
			t.Fatalf("seed %d: it got %d, want a story", seed, worst)
		}
		denied := random.IntN(2) == 0
		for range 80 { // two windows and more
			table.Asked(now, somebody, anomaly.Request{Endpoint: 1, Denied: denied})
			now += 10 * second
		}
		if got := table.Score(now, somebody); got.Total != 0 {
			t.Errorf("seed %d: after 13 minutes as usual, denied %v, it has %+v", seed, denied, got)
		}
	}
}

// TestSlowDrift pins what docs/anomalies.md says: whoever stays below twice what is usual has no points, and what is
// usual for it doubles in 45 windows at best; whoever is ten times as quick at once has points for a hundred windows.
func TestSlowDrift(t *testing.T) {
	quick := table(t, 512)
	now := usually(quick, start, somebody, anomaly.Memory, 100)
	drifted := 0
	for a, _ := quick.Account(now, somebody); a.Usual < 200; a, _ = quick.Account(now, somebody) {
		for range int(2 * a.Usual * 0.99) {
			quick.Asked(now, somebody, anomaly.Request{Endpoint: 1})
		}
		if got := quick.Score(now+5*minute-1, somebody); got.Total != 0 {
			t.Fatalf("after %d windows: %+v", drifted, got)
		}
		now += 5 * minute
		drifted++
	}
	if drifted != 45 && drifted != 46 {
		t.Errorf("what is usual doubled after %d windows, want 45 or 46", drifted)
	}
	sudden := table(t, 512)
	now = usually(sudden, start, somebody, anomaly.Memory, 30)
	flagged := 0
	for ; sudden.Score(now-1, somebody).Total > 0 || flagged == 0; flagged++ {
		now = usually(sudden, now, somebody, 1, 300)
	}
	if flagged < 95 || flagged > 105 {
		t.Errorf("ten times as many have points for %d windows, want about 100", flagged)
	}
}

// TestFloodsTakeNothing: any number of new addresses changes neither account nor score of whoever is there, and a
// score is not got rid of by them. Those for whom there is no place are not counted, and told of.
func TestFloodsTakeNothing(t *testing.T) {
	table := table(t, 512)
	now := usually(table, start, somebody, 10, 30)
	at := addressed(table, 1<<31)
	usually(table, start, at, 10, 30)
	young := addressed(table, 1<<31+1)
	for range 100 {
		table.Asked(now, young, anomaly.Request{Unknown: true})
	}
	now += 5 * minute
	before := table.Score(now, young)
	if before.Total != 40 {
		t.Fatalf("who asks for what there is not has %+v", before)
	}
	account := func(c anomaly.Caller) anomaly.Account { a, _ := table.Account(now, c); return a }
	own, theirs := account(somebody), account(at)
	for n := range uint32(200_000) {
		table.Asked(now, addressed(table, n), anomaly.Request{Unknown: true, Disguised: true})
	}
	if got := table.Score(now, young); got != before {
		t.Errorf("after a flood %+v, want %+v", got, before)
	}
	if account(somebody) != own || account(at) != theirs {
		t.Errorf("after a flood %+v and %+v, want %+v and %+v", account(somebody), account(at), own, theirs)
	}
	stats := table.Stats(now)
	if stats.Uncounted < 190_000 || stats.Used > stats.Callers {
		t.Errorf("%+v", stats)
	}
	vip := keyed(table, "late") // whoever can prove who it is finds a place all the same
	table.Asked(now, vip, anomaly.Request{Endpoint: 1})
	if _, known := table.Account(now, vip); !known {
		t.Error("a verified caller found no place among addresses")
	}
	now += 15 * minute // and once the flood is over, there is room again
	table.Asked(now, addressed(table, 1<<30), anomaly.Request{Endpoint: 1})
	if _, known := table.Account(now, addressed(table, 1<<30)); !known {
		t.Error("after the flood an address found no place")
	}
}

// TestVerifiedCallersKeepTheirPlaces: no address takes the place of one that counts, and no verified caller that of
// another.
func TestVerifiedCallersKeepTheirPlaces(t *testing.T) {
	table := table(t, 512)
	var all []anomaly.Caller
	for n := range 3000 {
		c := keyed(table, strings.Repeat("k", n))
		table.Asked(start, c, anomaly.Request{Endpoint: 1})
		if _, known := table.Account(start, c); known {
			all = append(all, c)
		}
	}
	for n := range uint32(50_000) {
		table.Asked(start, addressed(table, n), anomaly.Request{Endpoint: 1})
	}
	if len(all) < 450 {
		t.Fatalf("%d have a place, want nearly 512", len(all))
	}
	for i, c := range all {
		if _, known := table.Account(start, c); !known {
			t.Errorf("verified caller %d lost its place", i)
		}
	}
}

// TestClockStepsForgive: a step of the clock in either direction, at any moment, gives nobody points.
func TestClockStepsForgive(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		table := table(t, 512)
		now := usually(table, start, somebody, 20, 60)
		for range 30 {
			now += random.Int64N(1_000_000*second) - 500_000*second
			now += random.Int64N(10*minute) - 5*minute
			for range 60 {
				table.Asked(now, somebody, anomaly.Request{Endpoint: 1})
				table.Answered(now, somebody, 200)
				now += 5 * second
				if got := table.Score(now, somebody); got.Total != 0 {
					t.Fatalf("seed %d: %+v after a step of the clock", seed, got)
				}
			}
		}
	}
}

// TestSettingsChange: other weights and tiers count at once, other windows begin anew, none at all stop it, and what
// was counted before is there again when they come back.
func TestSettingsChange(t *testing.T) {
	table := table(t, 512)
	now := usually(table, start, somebody, 10, 30)
	for range 30 {
		table.Asked(now, somebody, anomaly.Request{Unknown: true})
	}
	if got := table.Score(now, somebody).Total; got != 40 {
		t.Fatalf("the score is %d, want 40", got)
	}
	five := *table.Settings()
	other := five
	other.Weights[anomaly.Unknown] = 7
	table.Use(&other)
	if got := table.Score(now, somebody).Total; got != 7 {
		t.Errorf("by other weights it is %d, want 7", got)
	}
	table.Use(nil)
	table.Asked(now, somebody, anomaly.Request{Endpoint: 1})
	table.Answered(now, somebody, 404)
	if got := table.Score(now, somebody); got != (anomaly.Score{}) {
		t.Errorf("where nobody is scored it is %+v", got)
	}
	table.Use(&five)
	if got := table.Score(now, somebody).Total; got != 40 {
		t.Errorf("once scored again it is %d, want 40", got)
	}
	other = five
	other.Window = time.Hour
	table.Use(&other)
	if got := table.Score(now, somebody); got != (anomaly.Score{}) {
		t.Errorf("by other windows it is %+v, want a newcomer's", got)
	}
	var none *anomaly.Table
	if none.Settings() != nil {
		t.Error("no table has settings")
	}
}

func TestTierOf(t *testing.T) {
	s := anomaly.Settings{Window: time.Minute, Tiers: []anomaly.Tier{
		{From: 40, Name: "watched"}, {From: 70, Name: "suspect", Addresses: true},
	}}
	for _, c := range []struct {
		total    uint8
		verified bool
		want     string
	}{
		{0, true, ""}, {39, true, ""}, {40, true, "watched"}, {69, true, "watched"}, {70, true, "suspect"},
		{100, true, "suspect"}, {69, false, ""}, {70, false, "suspect"},
	} {
		if got, ok := s.TierOf(anomaly.Score{Total: c.total}, c.verified); got.Name != c.want || ok != (c.want != "") {
			t.Errorf("TierOf(%d, %v) = %q, %v, want %q", c.total, c.verified, got.Name, ok, c.want)
		}
	}
}

func TestSettingsCheck(t *testing.T) {
	err := (&anomaly.Settings{Window: time.Millisecond, Weights: [anomaly.Parts]uint8{anomaly.Errors: 101},
		Tiers: []anomaly.Tier{{From: 70}, {From: 70, Name: "a"}, {From: 101, Name: "b"}}}).Check()
	const want = `Window is 1ms, want 1s to 24h
Weights[errors] is 101, want 0 to 100
Tiers[0].Name is empty, want a tier
Tiers[1].From is 70, want more than 70, the one before
Tiers[2].From is 101, want 1 to 100`
	if err == nil || err.Error() != want {
		t.Errorf("Check() = %v, want\n%s", err, want)
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	table := table(t, 512, anomaly.Tier{From: 70, Name: "suspect"})
	var all sync.WaitGroup
	for n := range uint32(4) {
		all.Go(func() {
			for i := range 500 {
				c, now := addressed(table, n*7%3), start+int64(i)*10*second
				table.Asked(now, c, anomaly.Request{Endpoint: uint64(i), Unknown: i%3 == 0})
				table.Answered(now, c, 404)
				table.Score(now, c)
				if i%100 == 0 {
					table.Stats(now)
					table.Use(table.Settings())
				}
			}
		})
	}
	all.Wait()
}

func TestCountingAllocatesNothing(t *testing.T) {
	table := table(t, 512)
	who := &identity.Principal{Kind: identity.APIKey, Project: "acme", ID: "k_1"}
	now := usually(table, start, table.Caller(who), 3, 30)
	if n := testing.AllocsPerRun(100, func() {
		c := table.Caller(who)
		table.Score(now, c)
		table.Asked(now, c, anomaly.Request{Endpoint: 3})
		table.Answered(now, c, 200)
	}); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
}

// FuzzScores has a caller do what the bytes say, and compares each account with the slow way.
func FuzzScores(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 250, 251, 252, 253, 254, 255})
	f.Add([]byte{0x10, 0xf0, 0x10, 0xf1, 0x10, 0x10, 0xf2, 0x20, 0xf3, 0x33})
	f.Fuzz(func(t *testing.T, text []byte) {
		settings := &anomaly.Settings{Window: time.Minute, Weights: anomaly.DefaultWeights}
		table := anomaly.New(512)
		table.Use(settings)
		now := start
		w := &twin{width: minute}
		for _, b := range text[:min(len(text), 100)] {
			switch kind, n := b>>5, int64(b&31); kind {
			case 7: // time passes
				now += n * 7 * second
			case 6: // or is set
				now += (n - 16) * 40 * second
			case 5:
				if _, known := table.Account(now, somebody); known {
					w.pass(now)
					table.Answered(now, somebody, 390+int(n))
					w.answer(390 + int(n))
				}
			default:
				if _, known := table.Account(now, somebody); !known {
					w.newest = now / minute
				}
				w.pass(now)
				r := anomaly.Request{Parts: n >> 3, Endpoint: uint64(n & 7), Denied: kind == 1, Unknown: kind&2 != 0,
					Disguised: kind == 4}
				table.Asked(now, somebody, r)
				w.asked(r)
			}
			got, known := table.Account(now, somebody)
			if !known {
				continue
			}
			w.pass(now)
			agree(t, 0, got, w.account(), settings.Weights)
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	table := table(b, 0)
	who := &identity.Principal{Kind: identity.APIKey, Project: "acme", ID: "k_1"}
	usually(table, start, table.Caller(who), 10, 30)
	b.ReportAllocs()
	now := start + 50*minute
	for b.Loop() {
		c := table.Caller(who)
		table.Score(now, c)
		table.Asked(now, c, anomaly.Request{Endpoint: 3})
		table.Answered(now, c, 200)
		now++
	}
}
