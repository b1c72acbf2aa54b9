package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// A document that is compiled while it is read, in whatever pieces, makes the Set
// and the problems that it makes when it is compiled whole; and so it does when
// the rules came in another order.
func TestDraftIsCompile(t *testing.T) {
	rng := rand.New(rand.NewPCG(20261122, 1))
	texts := []string{"GET /a", "GET /b/{id}", "POST /a"}
	o := policy.CompileOptions{
		Endpoints: table(t, texts...),
		Now:       time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
		Shared:    true,
	}
	compiled, refused, warned, forgotten, looked := 0, 0, 0, 0, 0
	for round := range race.Fewer(1000) {
		doc := randomDocument(rng, texts, o.Now)
		doc.Source, doc.Number = "test", int64(round)
		spoil(rng, &doc)
		if rng.IntN(3) == 0 { // so that some have nothing wrong with them at all
			doc = policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5, Scope: policy.Split},
				{Endpoint: policy.UnknownEndpoint, Limit: 2},
				{Endpoint: "GET /a", Project: "a", Limit: 1 + rng.Int64N(5), Scope: policy.Split},
				{Endpoint: "GET /b/{id}", Limit: 3, Scope: policy.Split}}}
		}
		want, wantProblems := policy.Compile(doc, o)
		shuffled, alone := rng.IntN(2) == 0, rng.IntN(2) == 0
		read := func(d *policy.Draft) (*policy.Set, policy.Problems, bool) {
			d.Alone = alone
			for range rng.IntN(2) { // a first try that came to nothing
				d.Begin(policy.Document{Projects: map[string]string{"other": "tier"}}, rng.IntN(10))
				d.Read([]policy.Rule{{Endpoint: "GET /a", Limit: 1}, {}})
			}
			return readDraft(rng, d, doc, shuffled)
		}
		got, problems, again := read(policy.NewForgetfulDraft(o, ""))
		if got == nil && len(problems) == 0 {
			if !again || len(wantProblems) == 0 {
				t.Fatalf("round %d: nothing is wrong, and whether to look again is %v", round, again)
			}
			looked++
			if got, problems, again = read(policy.NewDraft(o)); !again {
				t.Fatalf("round %d: a draft that keeps its rules would not do so again", round)
			}
		} else if again {
			t.Fatalf("round %d: rules were looked at that are gone", round)
		} else {
			forgotten++
		}
		if !reflect.DeepEqual(problems, wantProblems) {
			t.Fatalf("round %d: problems\n%v\nwant those of the whole document\n%v", round, problems, wantProblems)
		}
		if (got == nil) != (want == nil) {
			t.Fatalf("round %d: a Set %v, want %v", round, got != nil, want != nil)
		}
		if want == nil {
			refused++
			continue
		}
		checkSameRules(t, got, want)
		if len(problems) > 0 {
			warned++
		}
		compiled++
		o.Previous = want
	}
	if compiled == warned || refused == 0 || warned == 0 || forgotten == 0 || looked == 0 {
		t.Errorf("%d documents compiled, %d of them with warnings, and %d did not; rules of %d were forgotten and of "+
			"%d looked at once more: want some of each", compiled, warned, refused, forgotten, looked)
	}
}

// Where every rule is a group by itself, the Set has the compiler's own rows. It
// is as if they had been put in their places, as they are when room was made for
// far more.
func TestRowsInPlaceAreAsIfPlaced(t *testing.T) {
	rng := rand.New(rand.NewPCG(20261122, 2))
	texts := []string{"GET /a", "GET /b/{id}", "POST /a"}
	o := policy.CompileOptions{Endpoints: table(t, texts...), Now: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)}
	in, placed := 0, 0
	for range race.Fewer(500) {
		doc := scatteredDocument(rng, append(texts, policy.Default, policy.All, policy.UnknownEndpoint), o.Now)
		want, problems := policy.Compile(doc, o)
		if want == nil {
			t.Fatal(problems)
		}
		d := policy.NewDraft(o)
		d.Begin(policy.Document{Projects: doc.Projects}, 10*len(doc.Rules))
		got, again := d.Compile(doc)
		if !reflect.DeepEqual(again, problems) {
			t.Fatalf("problems %v, want %v", again, problems)
		}
		checkSameRules(t, got, want)
		if policy.InPlace(doc, o) {
			in++
		} else {
			placed++
		}
		o.Previous = want
	}
	if in == 0 || placed == 0 {
		t.Errorf("%d Sets in place and %d not, want some of each", in, placed)
	}
}

// scatteredDocument has mostly one rule, now and then two, for an endpoint and a
// project or tier, and now and then one that no request can reach.
func scatteredDocument(rng *rand.Rand, texts []string, now time.Time) policy.Document {
	doc := policy.Document{Projects: map[string]string{"a": "gold", "b": "silver"}}
	if rng.IntN(8) == 0 {
		texts = append(texts, "GET /nothing")
	}
	for _, text := range texts {
		for _, r := range []policy.Rule{{}, {Project: "a"}, {Project: "c"}, {Tier: "gold"}, {Tier: "silver"}} {
			if text == policy.UnknownEndpoint && (r.Project != "" || r.Tier != "") || rng.IntN(3) == 0 {
				continue
			}
			r.Endpoint, r.Limit = text, 1+rng.Int64N(3)
			doc.Rules = append(doc.Rules, r)
			if rng.IntN(64) == 0 {
				r.Expires = now.Add(10 * time.Minute)
				doc.Rules = append(doc.Rules, r)
			}
		}
	}
	doc.Rules = append(doc.Rules, policy.Rule{Endpoint: texts[0], Project: "b", Limit: 7})
	rng.Shuffle(len(doc.Rules), func(i, j int) { doc.Rules[i], doc.Rules[j] = doc.Rules[j], doc.Rules[i] })
	return doc
}

// spoil makes some rules wrong, and some twice.
func spoil(rng *rand.Rand, doc *policy.Document) {
	for range rng.IntN(3) * rng.IntN(2) * min(1, len(doc.Rules)) {
		r := doc.Rules[rng.IntN(len(doc.Rules))]
		switch rng.IntN(6) {
		case 4:
			r = policy.Rule{Endpoint: r.Endpoint, Project: r.Project, Tier: r.Tier, Mode: policy.Block,
				Expires: r.Expires}
		case 5:
			doc.Ignore = append(doc.Ignore, policy.Ignore{Code: "scattered", Endpoint: r.Endpoint, Reason: "a test"},
				policy.Ignore{Code: "every_request", Project: r.Project, Reason: "another"})
		case 0:
			r.Limit = -1
		case 1:
			r.Endpoint = "get it"
		case 2:
			r.Project, r.Tier = "a", "gold"
		}
		doc.Rules = slices.Insert(doc.Rules, rng.IntN(len(doc.Rules)+1), r)
	}
}

// readDraft hands a document over in pieces, and its rules in another order if it
// is told to.
func readDraft(rng *rand.Rand, d *policy.Draft, doc policy.Document, shuffled bool) (
	*policy.Set, policy.Problems, bool) {
	before := doc
	before.Rules, before.Number = nil, 0
	rules := slices.Clone(doc.Rules)
	if shuffled {
		rng.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
	}
	left := d.Read(d.Begin(before, rng.IntN(20)))
	for _, r := range rules {
		if left = append(left, r); rng.IntN(5) == 0 {
			left = d.Read(left)
		}
	}
	if shuffled {
		if left = d.Reorder(left); len(left) > 0 {
			copy(left, doc.Rules)
		}
	}
	doc.Rules = left
	return d.CompileOrLook(doc)
}

// checkSameRules: the same rules with the same terms apply to everybody.
func checkSameRules(t *testing.T, got, want *policy.Set) {
	t.Helper()
	if got.Version() != want.Version() || got.Number() != want.Number() || got.Len() != want.Len() {
		t.Fatalf("version %s, number %d, %d rules, want %s, %d, %d", got.Version(), got.Number(), got.Len(),
			want.Version(), want.Number(), want.Len())
	}
	if a, b := termsByID(got), termsByID(want); !reflect.DeepEqual(a, b) {
		t.Fatalf("terms %+v, want %+v", a, b)
	}
	tenants := []string{"", "a", "b", "c", "gold", "silver", "nobody"}
	for id := range endpoint.ID(4) { // 0 is none
		m := endpoint.Match{ID: id, Status: endpoint.Known}
		if id == 0 {
			m.Status = endpoint.UnknownPath
		}
		for _, project := range tenants {
			for _, tier := range tenants {
				for _, minutes := range []time.Duration{0, 5, 20} {
					now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC).Add(minutes * time.Minute).UnixNano()
					if a, b := applies(got, now, m, project, tier),
						applies(want, now, m, project, tier); !slices.Equal(a, b) {
						t.Fatalf("to %v of %q and %q apply %v, want %v", m, project, tier, a, b)
					}
				}
			}
		}
	}
}

// streamer is a script that shows its rules by and by.
type streamer struct {
	script
	drafts []*policy.Draft
	panics bool  // when all rules are read
	cut    error // then
}

func (s *streamer) LoadInto(ctx context.Context, d *policy.Draft) (policy.Document, string, error) {
	s.drafts = append(s.drafts, d)
	doc, version, err := s.Load(ctx)
	before := doc
	before.Rules, before.Number = nil, 0
	left := d.Begin(before, 1)
	for i, r := range doc.Rules {
		if left = append(left, r); i%3 == 2 {
			left = d.Read(left)
		}
	}
	if s.panics {
		panic("cut")
	}
	if s.cut != nil {
		return policy.Document{}, "", s.cut
	}
	doc.Rules = left
	return doc, version, err
}

// A cache has rules compiled while they are read, the first ones beside and later ones
// by who reads; what it does with those that are wrong does not depend on that.
func TestCacheDrafts(t *testing.T) {
	source := &streamer{}
	c, err := policy.NewCache(policy.CacheOptions{Source: source,
		Compile: policy.CompileOptions{Endpoints: table(t, "GET /a")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		rules  []policy.Rule
		limit  int64 // written
		want   int64 // in force afterwards
		wrong  string
		drafts int // so far
	}{
		{limit: 0, wrong: "limit is 0", drafts: 1},
		{
			limit:  5,
			rules:  []policy.Rule{{Endpoint: "GET /a", Limit: 1}, {Endpoint: "GET /a", Limit: 2}},
			wrong:  "rules[2]",
			drafts: 2,
		},
		{limit: 5, rules: []policy.Rule{{Endpoint: "GET /a", Limit: 1}}, want: 5, drafts: 3},
		{limit: 6, want: 6, drafts: 4},
		{limit: -1, want: 6, wrong: "limit is -1", drafts: 5},
	} {
		source.set(step.limit, step.rules...)
		err := c.Reload(t.Context())
		if (err != nil) != (step.wrong != "") || err != nil && !strings.Contains(err.Error(), step.wrong) {
			t.Errorf("limit %d: Reload = %v, want %q", step.limit, err, step.wrong)
		}
		if d := source.drafts[len(source.drafts)-1]; d.Alone != (step.drafts > 3) {
			t.Errorf("limit %d: the draft is Alone: %v", step.limit, d.Alone)
		}
		if got := limitOf(c); got != step.want || len(source.drafts) != step.drafts {
			t.Errorf("limit %d: in force %d after %d drafts, want %d after %d", step.limit, got, len(source.drafts),
				step.want, step.drafts)
		}
	}
}

// TestCacheOfAStreamerIsOneOfTheWhole: whichever documents follow each other, the rules in force, since
// when, what was before them and the last good copy do not depend on whether they were compiled while they were read.
func TestCacheOfAStreamerIsOneOfTheWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	texts := []string{"GET /a", "GET /b/{id}", "POST /a"}
	same, refused, copied, started, dir := 0, 0, 0, 0, t.TempDir()
	for range race.Fewer(200) {
		now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
		o := policy.CacheOptions{Now: func() time.Time { return now }, Compile: policy.CompileOptions{
			Endpoints: table(t, texts...), Shared: true}}
		streamed, whole := &streamer{}, &script{}
		var caches [2]*policy.Cache
		var copies [2]string
		copying := rng.IntN(3) == 0
		for i, source := range []policy.Source{streamed, whole} {
			o.Source, o.LastGood = source, ""
			made := policy.NewCache
			if i == 0 && rng.IntN(4) > 0 {
				made = policy.NewForgetfulCache
			}
			if copying {
				o.LastGood = filepath.Join(dir, fmt.Sprint(i))
				_ = os.Remove(o.LastGood)
			}
			copies[i] = o.LastGood
			c, err := made(o)
			if err != nil {
				t.Fatal(err)
			}
			caches[i] = c
		}
		for range 1 + rng.IntN(6) {
			doc := randomDocument(rng, texts, now)
			doc.Source = "test"
			for range rng.IntN(4) {
				spoil(rng, &doc)
			}
			if rng.IntN(3) == 0 { // a load that comes to nothing, of a document that is another by the next one
				streamed.doc = randomDocument(rng, texts, now)
				spoil(rng, &streamed.doc)
				streamed.panics, streamed.cut = rng.IntN(2) == 0, errors.New("cut")
				if err := caches[0].Reload(t.Context()); err == nil {
					t.Fatal("Reload of a source that fails = nil")
				}
				streamed.panics, streamed.cut = false, nil
			}
			for _, s := range []*script{&streamed.script, whole} {
				s.doc, s.version = doc, s.version+1
			}
			reload := (*policy.Cache).Reload
			if rng.IntN(4) == 0 { // with the rules, other endpoints
				next := o.Compile
				next.Endpoints = table(t, texts[:1+rng.IntN(len(texts))]...)
				reload = func(c *policy.Cache, ctx context.Context) error { return c.Recompile(ctx, next) }
			}
			errs := [2]error{reload(caches[0], t.Context()), reload(caches[1], t.Context())}
			if copying {
				for i, err := range errs {
					if err != nil {
						errs[i] = errors.New(strings.ReplaceAll(err.Error(), copies[i], "copy"))
					}
				}
			}
			if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
				t.Fatalf("Reload = %v, want %v", errs[0], errs[1])
			}
			if errs[0] != nil {
				refused++
			} else {
				same++
				for _, path := range copies {
					if path == "" {
						continue
					}
					got, err := policy.LastGood(path)
					if err != nil || got.Fingerprint() != doc.Fingerprint() || len(got.Rules) != len(doc.Rules) ||
						got.Source != doc.Source {
						t.Fatalf("the last good copy has %d rules of %q, %v, want the %d in force", len(got.Rules),
							got.Source, err, len(doc.Rules))
					}
					copied++
				}
			}
			if got, want := caches[0].Set(), caches[1].Set(); want != nil {
				checkSameRules(t, got, want)
			}
			now = now.Add(time.Duration(rng.Int64N(int64(time.Hour))))
		}
		if set := caches[0].Set(); copying && set != nil {
			o.Source, o.LastGood = &script{err: errors.New("away")}, copies[0]
			c, err := policy.NewForgetfulCache(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err != nil || !c.Status().FromDisk || c.Set().Number() != set.Number() {
				t.Fatalf("Start from the copy = %v, %+v, want number %d", err, c.Status(), set.Number())
			}
			started++
		}
	}
	t.Logf("%d documents came into force, %d were copied and %d were refused", same, copied, refused)
	if copied == 0 || started == 0 {
		t.Errorf("%d last good copies were read and %d started from, want some", copied, started)
	}
	if same < race.Fewer(40) || refused < race.Fewer(24) {
		t.Errorf("%d documents came into force and %d were refused, want more", same, refused)
	}
}

// A panic while rules are compiled is one of whoever waits for them.
func TestDraftPanicsWhereItIsCompiled(t *testing.T) {
	o := policy.CompileOptions{Shared: true, Keeps: keepsNothing}
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1, Scope: policy.Strict}}}
	d := policy.NewDraft(o)
	d.Begin(policy.Document{}, 1)
	d.Read(doc.Rules)
	defer func() {
		if r := recover(); fmt.Sprint(r) != "keeps" {
			t.Errorf("Compile recovers %v, want the panic of Keeps", r)
		}
	}()
	d.Compile(doc)
	t.Error("Compile returned, want a panic")
}

func keepsNothing(rate.Shape) error { panic("keeps") }

// A source that panics while rules of it are checked leaves nothing to the document after it.
func TestNothingIsLeftOfALoadThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		wait := sync.OnceFunc(func() { <-goOn })
		source, copyAt := &streamer{}, filepath.Join(t.TempDir(), "copy")
		c, err := policy.NewForgetfulCache(policy.CacheOptions{Source: source, LastGood: copyAt,
			Compile: policy.CompileOptions{Shared: true, Keeps: func(rate.Shape) error { wait(); return nil }}})
		if err != nil {
			t.Fatal(err)
		}
		rules := make([]policy.Rule, 3)
		for i := range rules {
			rules[i] = policy.Rule{Endpoint: policy.Default, Project: fmt.Sprint("a", i), Limit: 1,
				Scope: policy.Strict}
		}
		source.set(7, rules...)
		source.panics = true
		ended := make(chan error, 1)
		go func() { ended <- c.Reload(t.Context()) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("Reload returned while rules were checked, want it to wait for that")
		}
		source.panics = false
		close(goOn)
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "panic: cut") {
			t.Errorf("Reload = %v, want the panic", err)
		}
		source.set(8)
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if kept, err := policy.LastGood(copyAt); err != nil || !reflect.DeepEqual(kept.Rules, source.doc.Rules) {
			t.Errorf("the last good copy has %v, %v, want %v", kept.Rules, err, source.doc.Rules)
		}
	})
}

// Advice about rates that follow an API needs no rule that is gone, unless there is some.
func TestFollowedRulesAreNotKept(t *testing.T) {
	endpoints := table(t, "GET /a")
	a := lookup(t, endpoints, "GET /a")
	o := policy.CompileOptions{Endpoints: endpoints,
		Followed: []policy.Followed{{Endpoint: a, Floor: 102, Judged: 5}}}
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 5},
		{Endpoint: policy.UnknownEndpoint, Limit: 2}, {Endpoint: "GET /a", Limit: 3},
		{Endpoint: "GET /a", Limit: 300, Subject: policy.SubjectEndpoint}}}
	d := policy.NewForgetfulDraft(o, "")
	left := d.Read(append(d.Begin(policy.Document{}, len(doc.Rules)), doc.Rules...))
	if set, problems, again := d.CompileOrLook(policy.Document{Rules: left}); set == nil || again {
		t.Errorf("compiled %v with %v, to be loaded again %v, want that once is enough", set != nil, problems, again)
	}
}
