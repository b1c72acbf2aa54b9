package charge_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// gone is a shared store that answers nobody.
type gone struct{}

func (gone) TryConsume(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return false, trial.ErrGone
}

func (gone) Attempt(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool,
	func(context.Context, int64), error) {
	return false, nil, trial.ErrGone
}
func (gone) Peek(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return false, trial.ErrGone
}
func (gone) Correct(context.Context, int64, []bucket.Change, []int64) error { return trial.ErrGone }

// withScopes is a limiter whose shared store is away, one of three replicas.
func withScopes(t *testing.T, rules []policy.Rule) *trial.Bench {
	t.Helper()
	local, err := memory.New(memory.Options{MaxBuckets: 1024})
	if err != nil {
		t.Fatal(err)
	}
	names, err := key.NewNamer([]byte("a secret of replicas"))
	if err != nil {
		t.Fatal(err)
	}
	return trial.New(t, []string{"GET /a"}, rules, func(o *headgate.Options) {
		store, err := scoped.New(scoped.Options{Local: local, Strict: gone{},
			Replicas: func() int { return 3 }, Began: 1})
		if err != nil {
			t.Fatal(err)
		}
		o.Buckets, o.Names = store, names
	})
}

// A store that is lost: before that is certain every rule denies, and then each as it says.
func TestStoreLoss(t *testing.T) {
	local := policy.Rule{Endpoint: policy.Default, Limit: 100, Subject: policy.SubjectIP}
	for loss, want := range map[policy.StoreLoss]struct {
		allowed bool
		reason  headgate.Reason
		lost    bool
	}{
		policy.LossClosed: {false, headgate.StoreFailed, false},
		policy.LossShare:  {false, headgate.OverLimit, false}, // a share that begins empty
		policy.LossOpen:   {true, headgate.WithinLimits, true},
	} {
		b := withScopes(t, []policy.Rule{local, {Endpoint: policy.Default, Limit: 10, Per: time.Hour,
			Scope: policy.Strict, OnStoreLoss: loss}})
		for i := range 5 {
			if d := b.Get("/a"); d.Allowed || d.Reason != headgate.StoreFailed || d.Lost {
				t.Errorf("%v, failure %d: %t, %v, lost %t, want a denial", loss, i, d.Allowed, d.Reason, d.Lost)
			}
		}
		d := b.Get("/a")
		if d.Allowed != want.allowed || d.Reason != want.reason || d.Lost != want.lost {
			t.Errorf("%v: %t, %v, lost %t, want %+v", loss, d.Allowed, d.Reason, d.Lost, want)
		}
		if v, ok := d.Binding(); loss == policy.LossOpen &&
			(!ok || d.Policies().Rule(v.Rule).Subject != policy.SubjectIP) {
			t.Errorf("%v: the binding rule is %+v, want the one that was asked", loss, v)
		}
	}
}

// Rules that count locally are decided without the store, whether or not it is there.
func TestLocalRulesNeedNoStore(t *testing.T) {
	b := withScopes(t, []policy.Rule{{Endpoint: policy.Default, Limit: 2, Per: time.Hour}})
	for i := range 3 {
		if d := b.Get("/a"); d.Allowed != (i < 2) {
			t.Errorf("request %d: %t, %v", i, d.Allowed, d.Reason)
		}
	}
}

func TestExplainTellsTheEnvelope(t *testing.T) {
	b := withScopes(t, []policy.Rule{
		{
			Endpoint:    policy.Default,
			Limit:       10,
			Per:         time.Minute,
			Burst:       12,
			Scope:       policy.Strict,
			OnStoreLoss: policy.LossOpen,
		},
		{Endpoint: policy.Default, Limit: 10, Per: time.Minute, Burst: 12, Subject: policy.SubjectIP},
		{
			Endpoint: policy.Default,
			Limit:    10,
			Per:      time.Minute,
			Burst:    13,
			Subject:  policy.SubjectEndpoint,
			Scope:    policy.Split,
		},
	})
	for range 5 {
		b.Get("/a")
	}
	x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
	want := map[string]struct {
		envelope inspect.Envelope
		loss     string
		unknown  bool
	}{
		"strict": {inspect.Envelope{Replicas: 3, Burst: 12, Tokens: 10, Per: time.Minute}, "open", true},
		"local":  {inspect.Envelope{Replicas: 3, Burst: 36, Tokens: 30, Per: time.Minute}, "", false},
		"split":  {inspect.Envelope{Replicas: 3, Burst: 12, Tokens: 10, Per: time.Minute}, "", false},
	}
	if len(x.Buckets) != len(want) {
		t.Fatalf("%+v, want three buckets", x)
	}
	for _, got := range x.Buckets {
		w := want[got.Scope]
		if got.Envelope == nil || *got.Envelope != w.envelope || got.OnStoreLoss != w.loss || got.Unknown != w.unknown {
			t.Errorf("%s: %+v, %+v, want %+v", got.Scope, got, got.Envelope, w)
		}
	}
}
