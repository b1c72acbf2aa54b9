package charge_test

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/slot"
)

// everybodys is one bucket of 2 tokens, one a second, for everybody.
var everybodys = []policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: time.Second, Burst: 2,
	Subject: policy.SubjectEndpoint}}

func slotted(t *testing.T, o slot.Options) *trial.Bench {
	return trial.New(t, []string{"GET /a"}, everybodys, func(g *headgate.Options) { g.Slots = slot.New(o) })
}

// asks asks as one of several clients; waiting is Headgate-Pending, below 0 for none.
func asks(b *trial.Bench, client byte, waiting int) headgate.Decision {
	h := http.Header{}
	if waiting >= 0 {
		h.Set(slot.FieldPending, strconv.Itoa(waiting))
	}
	return b.Check(context.Background(), headgate.Request{
		Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{192, 0, 2, client}), Header: h,
	})
}

// Without slots everybody is told the same; with them, each a token later.
func TestRefusedCallersAreSpaced(t *testing.T) {
	plain := trial.New(t, []string{"GET /a"}, everybodys)
	spaced := slotted(t, slot.Options{})
	for client := range byte(5) {
		p, s := asks(plain, client, -1), asks(spaced, client, -1)
		if p.Allowed != s.Allowed {
			t.Errorf("client %d: allowed %v, with slots %v", client, p.Allowed, s.Allowed)
		}
		if client < 2 {
			continue
		}
		if want := time.Duration(client-1) * time.Second; p.RetryAfter != time.Second || s.RetryAfter != want ||
			s.Slot.Wait != want {
			t.Errorf("client %d: retry after %v, with slots %v and %+v; want 1s and %v", client, p.RetryAfter,
				s.RetryAfter, s.Slot, want)
		}
		if binding, _ := s.Binding(); binding.Outcome.RetryAfter != s.RetryAfter {
			t.Errorf("client %d: the verdict says %v, the decision %v", client,
				binding.Outcome.RetryAfter, s.RetryAfter)
		}
	}
	if again := asks(spaced, 3, -1); again.RetryAfter != 2*time.Second {
		t.Errorf("client 3 asks again: retry after %v, want the time that it has", again.RetryAfter)
	}
}

// A token that is reserved is nobody else's while its time lasts, and the next request of
// one that has more is given a time with the answer.
func TestReservedTokens(t *testing.T) {
	b := slotted(t, slot.Options{Reserve: true})
	first := asks(b, 1, 3)
	if !first.Allowed || first.Slot.Wait != 0 {
		t.Fatalf("%+v, want no slot: there is another token", first.Slot)
	}
	second := asks(b, 1, 2)
	if !second.Allowed || second.Slot != (slot.Offer{Wait: time.Second, Reserved: true}) {
		t.Fatalf("%+v, want a reserved slot in a second", second.Slot)
	}
	b.Now = b.Now.Add(time.Second)
	other := asks(b, 2, -1)
	if other.Allowed || other.Reason != headgate.OverLimit || other.RetryAfter <= 0 || other.Slot.Reserved {
		t.Errorf("another is %v, %v, retry after %v; want it held back", other.Allowed, other.Reason, other.RetryAfter)
	}
	third := asks(b, 1, 0)
	if !third.Allowed || third.Slot.Wait != 0 {
		t.Errorf("%+v, want its own token, and no further slot", third)
	}
	if s := b.Slots(); s.Kept != 1 || s.HeldBack != 1 || s.NoShows != 0 {
		t.Errorf("%+v, want one slot kept and one request held back", s)
	}
}

// A bad credential waits for what is reserved for others as a good one does, and explain says so.
func TestABadCredentialIsHeldBackFirst(t *testing.T) {
	digester, err := identity.NewDigester(make([]byte, identity.MinSecretLength))
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{Keys: &identity.Keyring{}, Digester: digester})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a"}, everybodys, func(o *headgate.Options) {
		o.Slots, o.Identities, o.RefuseBadCredentials = slot.New(slot.Options{Reserve: true}), who, true
	})
	r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{192, 0, 2, 2}),
		Header: http.Header{"X-Api-Key": {"hg_made_up"}}}
	for n, want := range []headgate.Reason{headgate.BadCredential, headgate.OverLimit} {
		if n == 1 {
			b.Now = b.Now.Add(10 * time.Second)
			asks(b, 1, 3)
			asks(b, 1, 2)
			b.Now = b.Now.Add(time.Second)
		}
		x := b.Explain(t.Context(), r)
		d := b.Check(t.Context(), r)
		if d.Reason != want || x.Verdict.Reason != want.String() || x.Verdict.RetryAfter != d.RetryAfter {
			t.Errorf("explain says %+v, and then it is %v, retry after %v, want %v", x.Verdict, d.Reason, d.RetryAfter,
				want)
		}
	}
}

// A cost that no bucket ever holds is said to be that, also while what there is is reserved for others.
func TestNoTimeForWhatNeverFits(t *testing.T) {
	b := slotted(t, slot.Options{Reserve: true})
	for range 3 {
		asks(b, 1, 5)
	}
	b.Now = b.Now.Add(time.Second)
	r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{192, 0, 2, 2}), Cost: 3,
		Header: http.Header{slot.FieldPending: {"1"}}}
	if d := b.Check(t.Context(), r); d.Reason != headgate.CostAboveBurst || d.Slot != (slot.Offer{}) {
		t.Errorf("%v, with %+v, want cost_above_burst and no time", d.Reason, d.Slot)
	}
}

// A request that is under way and asks for more leaves what is reserved for others, and is given no time, as it does
// not come again: it would be taken for one who stays away.
func TestWhatIsUnderWayIsGivenNoTime(t *testing.T) {
	b := slotted(t, slot.Options{Reserve: true, Grace: int64(time.Second)})
	for range 3 {
		asks(b, 1, 5)
	}
	b.Now = b.Now.Add(time.Second)
	r := headgate.Request{Method: "GET", Target: "/a", Peer: netip.AddrFrom4([4]byte{192, 0, 2, 2}), UnderWay: true,
		Header: http.Header{slot.FieldPending: {"1"}}}
	if d := b.Check(t.Context(), r); d.Allowed || d.Slot != (slot.Offer{}) || b.Slots().Slots != 1 {
		t.Errorf("%v, with %+v of %d times, want it held back, and the one time that there was", d.Reason, d.Slot,
			b.Slots().Slots)
	}
}

// annAtAnAddress is a request of ann's, who has more, in the bucket of an address that others share: 2 tokens, one a
// second.
func annAtAnAddress(t *testing.T, penalty policy.Penalty) (b *trial.Bench, ann headgate.Request) {
	rules := []policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: time.Second, Burst: 2, Subject: policy.SubjectIP,
		Penalty: penalty}}
	who, text := trial.Holder(t, identity.Key{ID: "ann"})
	b = trial.New(t, []string{"GET /a"}, rules, func(o *headgate.Options) {
		o.Identities, o.Slots = who, slot.New(slot.Options{Reserve: true})
	})
	return b, headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client,
		Header: http.Header{"X-Api-Key": {text}, slot.FieldPending: {"5"}}}
}

// Whom a bucket has no room for, beside what is reserved for others in it, is held back as well: that counts towards no
// penalty, and Explain foresees none.
func TestHoldingBackBeginsNoPenalty(t *testing.T) {
	b, ann := annAtAnAddress(t, "1 in 10s for 1m with addresses")
	for range 2 {
		b.Check(t.Context(), ann) // and is given a time with the second answer
	}
	b.Now = b.Now.Add(time.Second)
	other := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 2}
	x, d := b.Explain(t.Context(), other), b.Check(t.Context(), other)
	if d.Reason != headgate.OverLimit || b.Slots().HeldBack != 1 || x.Verdict.Reason != d.Reason.String() {
		t.Errorf("explained as %+v, and then %v in %v, %d held back", x.Verdict, d.Reason, d.RetryAfter,
			b.Slots().HeldBack)
	}
}

// What is reserved for others is nobody else's, whether or not the caller understands times, and Explain says so.
func TestExplainSaysThatItIsHeldBack(t *testing.T) {
	b, ann := annAtAnAddress(t, "")
	for range 3 {
		b.Check(t.Context(), ann)
	}
	b.Now = b.Now.Add(time.Second)
	other := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}
	x, d := b.Explain(t.Context(), other), b.Check(t.Context(), other)
	if x.Verdict.Allowed || d.Allowed || x.Verdict.RetryAfter != d.RetryAfter {
		t.Errorf("explained as %+v, and then %v in %v", x.Verdict, d.Reason, d.RetryAfter)
	}
}

// A change of the limit, and a bucket that is made full, leave no slots behind that hold
// anybody back.
func TestSlotsAfterAChange(t *testing.T) {
	b := slotted(t, slot.Options{Reserve: true})
	for range 3 {
		asks(b, 1, 5)
	}
	b.Now = b.Now.Add(time.Hour)
	for range 2 {
		if d := asks(b, 2, -1); !d.Allowed {
			t.Errorf("denied by slots of an hour ago: %+v", d)
		}
	}
}

// What a client claims to have waiting is worth one slot, and nonsense is worth nothing.
func TestPendingIsNotBelieved(t *testing.T) {
	for value, understood := range map[string]bool{
		"0": true, "7": true, "4294967295": true, "": false, "-1": false, "many": false, "1e3": false,
		"99999999999999999999": false,
	} {
		b := slotted(t, slot.Options{Reserve: true})
		var d headgate.Decision
		for range 3 {
			d = b.Check(context.Background(), headgate.Request{
				Method: "GET", Target: "/a", Peer: trial.Client, Header: http.Header{slot.FieldPending: {value}},
			})
		}
		if d.Allowed || d.Slot.Reserved != understood {
			t.Errorf("%q: %+v, want a slot that is reserved: %v", value, d.Slot, understood)
		}
		if got := b.Slots().Slots; got != 1 {
			t.Errorf("%q: %d slots, want 1", value, got)
		}
	}
}

// Slots allocate nothing for those who pass.
func TestSlotsCostAllowedRequestsNoAllocation(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1_000_000, Per: time.Second,
		Burst: 1_000_000}},
		func(g *headgate.Options) { g.Slots = slot.New(slot.Options{Reserve: true}) })
	b.Get("/a")
	if n := testing.AllocsPerRun(100, func() { b.Get("/a") }); n >= trial.Allocations {
		t.Errorf("%v allocations, want less than %v", n, trial.Allocations)
	}
}
