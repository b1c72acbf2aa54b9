package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestTransfersAreCountedAsAnAccountWould: random requests in parallel, said and unsaid, broken off and whole. What
// reached both ends is never more than the budget, and what is left is what an account of it says.
func TestTransfersAreCountedAsAnAccountWould(t *testing.T) {
	const tokens = 400_000
	for seed := range uint64(4) {
		api := new(files)
		s := serveBytes(t, api, tokens, httplimit.Bytes{}, true)
		var received, answered, refused atomic.Int64
		var all sync.WaitGroup
		for worker := range uint64(16) {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, worker))
				for range 12 {
					query := fmt.Sprintf("size=%d", rng.IntN(8000))
					for _, how := range []string{"&announced", "&streamed"} {
						if rng.IntN(2) == 0 {
							query += how
						}
					}
					var body io.Reader
					switch n := rng.IntN(8000); rng.IntN(4) {
					case 0:
						body = bytes.NewReader(make([]byte, n))
					case 1:
						body = unsaid(n)
					case 2:
						body = io.MultiReader(unsaid(n), failing{})
					}
					status, got, _, _ := s.send("POST", query, body)
					switch status {
					case 200:
						received.Add(got)
						answered.Add(1)
					case 429:
						refused.Add(1)
					}
				}
			})
		}
		all.Wait()
		s.Close() // which waits for those that their clients have left
		left := s.left(t, "POST")
		passed := api.got.Load() + received.Load()
		if passed > tokens || left < 0 || refused.Load() == 0 {
			t.Errorf("seed %d: %d bytes passed of %d, %d refused", seed, passed, tokens, refused.Load())
		}
		if spent := tokens - left; spent != api.spent.Load() || spent < passed {
			t.Errorf("seed %d: %d tokens were spent, want %d, and %d bytes passed", seed, spent, api.spent.Load(),
				passed)
		}
		if passed < tokens*95/100 {
			t.Errorf("seed %d: %d bytes passed, want 95 %% of %d at least", seed, passed, tokens)
		}
		if out := s.lim.Reservations().Outstanding; out != 0 {
			t.Errorf("seed %d: %d reservations are outstanding, want none", seed, out)
		}
		t.Logf("seed %d: %d of %d bytes passed, %d answers, %d refused, %d ended", seed, passed, tokens,
			answered.Load(), refused.Load(), s.meters.Ended())
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, context.Canceled }

// A transfer has two reservations, and a third for a moment, however long it goes on, and none expires under it.
func TestALongTransferHoldsLittle(t *testing.T) {
	next := make(chan struct{})
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range next {
			_, _ = w.Write(make([]byte, 1000))
			_ = http.NewResponseController(w).Flush()
		}
	})
	s := serveBytes(t, api, 1_000_000, httplimit.Bytes{}, true)
	done := make(chan int64)
	go func() {
		_, got, _, _ := s.send("GET", "", nil)
		done <- got
	}()
	for range 500 {
		next <- struct{}{}
		s.now.Add(int64(time.Second))
		if out := s.lim.Reservations().Outstanding; out > 3 {
			t.Errorf("%d reservations are outstanding, want 3 at most", out)
		}
	}
	close(next)
	got := <-done
	<-s.ended
	r := s.lim.Reservations()
	if got != 500_000 || r.Expired != 0 || r.Outstanding != 0 {
		t.Errorf("%d bytes, %+v; want 500000, and no reservation that expired", got, r)
	}
}

// away is a store that can be asked so often, and then fails.
type away struct {
	bucket.Store
	left int
}

func (a *away) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if a.left--; a.left < 0 {
		return false, errors.New("the store is away")
	}
	return a.Store.TryConsume(ctx, now, takes, outs)
}

// believed believes a token so often.
type believed struct{ left int }

func (b *believed) Verify(_ context.Context, token string) (identity.Claims, error) {
	if b.left--; b.left < 0 {
		return identity.Claims{}, identity.ErrTokenUnfit
	}
	return identity.Claims{Subject: token}, nil
}

// Where the store fails in the middle of a transfer, it is asked once, and not once for each smaller step; and a caller
// who is believed no more has no more, where such callers are refused.
func TestTransfersWhoseMoreCannotBeTaken(t *testing.T) {
	const size, target = 20_000_000, file + "?size=20000000&streamed"
	own := policy.Rule{Endpoint: "GET /v1/files/{name}", Limit: 1 << 40, Per: time.Hour}
	open := own
	open.OnStoreLoss = policy.LossOpen
	for _, c := range []struct {
		name  string
		rule  policy.Rule
		store int // how often it can be asked
		token int // how often it is believed
		cut   bool
		whole bool
	}{
		{"the store fails", own, 40, 1000, true, false},
		{"the store fails, and what passes is owed", own, 40, 1000, false, true},
		{"the store fails open", open, 40, 1000, true, true},
		{"the token expires", own, 1000, 30, true, false},
		{"the token expires, and what passes is owed", own, 1000, 30, false, true},
		{"nothing happens", own, 1000, 1000, true, true},
	} {
		who, err := identity.New(identity.Options{Tokens: &believed{c.token}})
		if err != nil {
			t.Fatal(err)
		}
		store := &away{left: c.store}
		b := trial.New(t, []string{own.Endpoint}, []policy.Rule{c.rule}, func(o *headgate.Options) {
			store.Store = o.Buckets
			o.Buckets, o.Identities, o.RefuseBadCredentials = store, who, true
		})
		meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: b.Table, Metered: []httplimit.Metered{
			{Endpoint: own.Endpoint, Bytes: &httplimit.Bytes{}, Cut: c.cut}}})
		if err != nil {
			t.Fatal(err)
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", target, nil)
		r.Header.Set("Authorization", "Bearer alice")
		func() {
			defer func() { _ = recover() }()
			httplimit.Handler(b.Limiter, new(files), httplimit.Options{Meters: meters}).ServeHTTP(w, r)
		}()
		if n := w.Body.Len(); n < size/20 || (n == size) != c.whole || store.left < -6 {
			t.Errorf("%s: %d bytes of %d passed, want all: %v; the store was asked %d times more, want 6 at most",
				c.name, n, size, c.whole, -store.left)
		}
		if out := b.Reservations().Outstanding; out != 0 {
			t.Errorf("%s: %d reservations are outstanding, want none", c.name, out)
		}
	}
}

// script is a request and its answer as a fuzzer writes them: of each pair of bytes the first says what is done, and
// the second how much of it.
type script struct {
	steps []byte
	in    int64 // that the handler has read
	out   int64 // and written
}

func (s *script) Read(p []byte) (int, error) { // a body that lasts as long as it is read
	return len(p), nil
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for i := 0; i+1 < len(s.steps); i += 2 {
		size := int(s.steps[i+1]) * 7
		switch s.steps[i] % 6 {
		case 0:
			n, _ := r.Body.Read(make([]byte, size))
			s.in += int64(n)
		case 1, 2:
			n, _ := w.Write(make([]byte, size))
			s.out += int64(n)
		case 3:
			w.Header().Set("Content-Length", strconv.Itoa(size*10))
		case 4:
			w.WriteHeader(200 + size%300)
		case 5:
			if size == 0 {
				panic(http.ErrAbortHandler)
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// FuzzTransfers: whatever a handler does, what is left is what an account of the bytes that passed says; with cut there
// is never less than nothing, and nothing stays outstanding.
func FuzzTransfers(f *testing.F) {
	f.Add([]byte{3, 10, 1, 100, 1, 200, 5, 1, 0, 30}, uint16(3000), byte(1))
	f.Add([]byte{0, 255, 0, 255, 1, 255, 5, 0}, uint16(2000), byte(0))
	f.Add([]byte{0, 200, 0, 200, 4, 3, 1, 1}, uint16(300), byte(3))
	f.Fuzz(func(t *testing.T, steps []byte, budget uint16, how byte) {
		if len(steps) > 400 || budget == 0 {
			return
		}
		cut, method, per := how&1 != 0, []string{"GET", "POST"}[how>>1&1], int64(1+how>>2&3)
		endpoint := method + " /v1/files/{name}"
		b := trial.New(t, []string{endpoint}, []policy.Rule{{Endpoint: endpoint, Limit: int64(budget), Per: time.Hour}})
		meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: b.Table, Metered: []httplimit.Metered{
			{Endpoint: endpoint, Bytes: &httplimit.Bytes{PerToken: per}, Cut: cut}}})
		if err != nil {
			t.Fatal(err)
		}
		s := &script{steps: steps}
		r := httptest.NewRequest(method, file, s)
		r.ContentLength = -1
		func() {
			defer func() { _ = recover() }()
			httplimit.Handler(b.Limiter, s, httplimit.Options{Meters: meters}).ServeHTTP(httptest.NewRecorder(), r)
		}()
		found, err := inspect.Find(t.Context(), b.Limiter, inspect.Query{Endpoint: endpoint,
			Address: netip.MustParseAddr("192.0.2.1")})
		if err != nil {
			t.Fatal(err)
		}
		spent := max(1, (s.in+s.out+per-1)/per)
		if left := found.Buckets[0].Remaining; left != max(0, int64(budget)-spent) {
			t.Errorf("%d of %d tokens are left, want %d: %d bytes were read and %d written", left, budget,
				int64(budget)-spent, s.in, s.out)
		}
		if cut && spent > int64(budget) {
			t.Errorf("%d tokens passed of %d", spent, budget)
		}
		if out := b.Reservations().Outstanding; out != 0 {
			t.Errorf("%d reservations are outstanding, want none", out)
		}
	})
}
