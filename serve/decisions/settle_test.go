package decisions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
)

// tell posts to a path.
func tell(t testing.TB, h http.Handler, path, body string, fields ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:4711"
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// metered has a limit of 100 tokens an hour.
func metered(t testing.TB, change ...func(*headgate.Options)) (http.Handler, *trial.Bench) {
	t.Helper()
	b := trial.New(t, templates, []policy.Rule{{Endpoint: "default", Name: "each", Limit: 100, Per: time.Hour}},
		append(change, balancers(t))...)
	h, _, _ := door(t, func(o *decisions.Options) {
		o.Limiter, o.Limit.Now = b.Limiter, func() time.Time { return b.Now }
	})
	return h, b
}

const question = `{"method":"GET","target":"/a","client":"192.0.2.1","cost":`

func answered(t testing.TB, code int, text string) (a decisions.Answer) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &a); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	return a
}

// What was reserved is settled once, to less or to more, and stands if it is not.
func TestSettle(t *testing.T) {
	h, b := metered(t)
	reserve := func() decisions.Answer {
		code, text := post(t, h, question+`40,"reserve":60}`)
		return answered(t, code, text)
	}
	left := func() int64 {
		code, text := post(t, h, question+`1}`)
		return *answered(t, code, text).Remaining + 1
	}
	first := reserve()
	if !first.Allowed || len(first.Reservation) != 32 || !first.Expires.Equal(trial.Epoch.Add(time.Minute)) ||
		*first.Remaining != 60 {
		t.Fatalf("%+v", first)
	}
	say := func(id string, actual int64, more string) string {
		_, text := tell(t, h, "/v1/settle", fmt.Sprintf(`{"reservation":"%s","actual":%d%s}`, id, actual, more))
		return text
	}
	for _, want := range []string{`{"status":"settled","reserved":40,"actual":10}`,
		`{"status":"already_settled","reserved":40,"actual":10}`} {
		if got := say(first.Reservation, 10, ""); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if n := left(); n != 90 {
		t.Errorf("%d are left after 10 of 40 were spent, want 90", n)
	}
	more := reserve()
	if got := say(more.Reservation, 45, ""); got != `{"status":"settled","reserved":40,"actual":45}` {
		t.Error(got)
	}
	late := reserve()
	b.Now = b.Now.Add(61 * time.Second)
	if got := say(late.Reservation, 0, ""); got != `{"status":"reservation_expired","reserved":40,"actual":0}` {
		t.Error(got)
	}
	if got := say(strings.Repeat("0", 32), 3, ""); got != `{"status":"nothing_reserved","reserved":0,"actual":3}` {
		t.Error(got)
	}
	if got := say(strings.Repeat("1", 32), 3, ""); got != `{"status":"no_reservation","reserved":0,"actual":0}` {
		t.Error(got)
	}
	// 100 - 10 - 1 - 45 - 40, and what drains in a minute.
	if refused := reserve(); refused.Allowed || refused.Reservation != "" || refused.Status != 429 {
		t.Errorf("%+v, want a refusal without a reservation", refused)
	}
}

// Several are settled in their order, and a login that succeeded gives all back.
func TestSettlements(t *testing.T) {
	h, _ := metered(t)
	code, text := post(t, h, `{"requests":[`+question+`40,"reserve":60},`+question+`40,"reserve":60},`+question+
		`40,"reserve":60}]}`)
	var got struct{ Decisions []decisions.Answer }
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 || len(got.Decisions) != 3 ||
		got.Decisions[2].Allowed {
		t.Fatalf("%d %s", code, text)
	}
	_, text = tell(t, h, "/v1/settle",
		fmt.Sprintf(
			`{"settlements":[{"reservation":"%s","actual":40,"forgive":true},{"reservation":"%s","actual":15}]}`,
			got.Decisions[0].Reservation, got.Decisions[1].Reservation))
	if text != `{"settlements":[{"status":"settled","reserved":40,"actual":40},{"status":"settled","reserved":40,"actual":15}]}` {
		t.Error(text)
	}
	code, text = post(t, h, question+`1}`)
	if a := answered(t, code, text); *a.Remaining != 84 {
		t.Errorf("%d remain, want 100 - 15 - 1", *a.Remaining)
	}
}

func TestSettlementsThatAreNone(t *testing.T) {
	h, _ := metered(t)
	id := strings.Repeat("a", 32)
	for body, want := range map[string]string{
		``:                                  `"status":400`,
		`{}`:                                `reservation is not 32 hexadecimal digits, want that of an answer; actual is missing or below zero`,
		`{"reservation":"` + id + `"}`:      `actual is missing`,
		`{"reservation":"x","actual":1}`:    `reservation is not 32`,
		`{"reservation":7,"actual":1}`:      `reservation is a JSON number, want a string`,
		`{"settlements":[]}`:                `settlements has 0 elements, want 1 to 1000`,
		`{"settlements":[{"actual":-1}]}`:   `settlements[0].reservation is not 32 hexadecimal digits, want that of an answer; settlements[0].actual`,
		`{"settlements":[{}],"actual":1}`:   `want one of both`,
		`{"spent":1}`:                       `unknown field`,
		`{"settlements":null,"actual":1.5}`: `actual is a JSON number 1.5, want a int64`,
	} {
		if code, got := tell(t, h, "/v1/settle", body); code != 400 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want 400 with %s", body, code, got, want)
		}
	}
	if code, got := post(t, h, question+`1,"reserve":86401}`); code != 400 ||
		!strings.Contains(got, "reserve is 86401, want seconds from 1 to 86400, or 0") {
		t.Errorf("%d %s", code, got)
	}
	for _, path := range []string{"/v1/settle", "/v1/check"} {
		if got := ask(t, h, "GET "+path+" HTTP/1.1"); got.StatusCode != 405 || got.Header.Get("Allow") != "POST" {
			t.Errorf("GET %s: %d %q", path, got.StatusCode, got.Header.Get("Allow"))
		}
	}
}

// lost is a store that does not answer corrections, while it is away.
type lost struct {
	bucket.Store
	away atomic.Bool
}

func (s *lost) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if s.away.Load() {
		return errors.New("away")
	}
	return s.Store.Correct(ctx, now, changes, moved)
}

func (s *lost) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if s.away.Load() {
		return false, errors.New("away")
	}
	return s.Store.TryConsume(ctx, now, takes, outs)
}

// A store that is away settles nothing, and the same settlement does once it is back; what was
// answered meanwhile is not kept for those who ask again.
func TestStoreThatIsAway(t *testing.T) {
	var store *lost
	h, _ := metered(t, func(o *headgate.Options) { store = &lost{Store: o.Buckets}; o.Buckets = store })
	code, text := post(t, h, question+`40,"reserve":60}`)
	a := answered(t, code, text)
	store.away.Store(true)
	settle := `{"reservation":"` + a.Reservation + `","actual":1}`
	if code, text := tell(t, h, "/v1/settle", settle); code != 503 || strings.Contains(text, "away") {
		t.Errorf("while the store is away: %d %s", code, text)
	}
	code, text = tell(t, h, "/v1/check", question+`1}`, "Idempotency-Key", "k")
	if a := answered(t, code, text); a.Status != 503 {
		t.Errorf("%+v", a)
	}
	store.away.Store(false)
	if code, text := tell(t, h, "/v1/settle", settle); code != 200 ||
		text != `{"status":"settled","reserved":40,"actual":1}` {
		t.Errorf("once it is back: %d %s", code, text)
	}
	code, text = tell(t, h, "/v1/check", question+`1}`, "Idempotency-Key", "k")
	if a := answered(t, code, text); a.Status != 200 {
		t.Errorf("%+v", a)
	}
}

// The same question under the same key is charged once, for ten minutes; another one is refused.
func TestIdempotencyKey(t *testing.T) {
	h, b := metered(t)
	once := func(key, body string) (int, string) { return tell(t, h, "/v1/check", body, "Idempotency-Key", key) }
	code, first := once("k", question+`40}`)
	if a := answered(t, code, first); *a.Remaining != 60 {
		t.Fatal(first)
	}
	for _, key := range []string{"k", `"k"`} {
		if code, again := once(key, question+`40}`); code != 200 || again != first {
			t.Errorf("under %s again: %d %s, want %s", key, code, again, first)
		}
	}
	if code, text := once("k", question+`41}`); code != 422 || !strings.Contains(text, "another question") {
		t.Errorf("another question under the key: %d %s", code, text)
	}
	if code, text := once("l", question+`40}`); *answered(t, code, text).Remaining != 20 {
		t.Errorf("under another key: %s", text)
	}
	// A refusal is an answer too.
	_, refused := once("m", question+`40}`)
	b.Now = b.Now.Add(9 * time.Minute)
	if _, again := once("m", question+`40}`); again != refused || !strings.Contains(again, "over_limit") {
		t.Errorf("%s, want %s", again, refused)
	}
	b.Now = b.Now.Add(time.Minute)
	if _, later := once("k", question+`1}`); strings.Contains(later, "another question") {
		t.Errorf("after ten minutes: %s", later)
	}
	for _, key := range []string{"", `""`, strings.Repeat("k", 256), "a,b", `a"b`} {
		if code, text := once(key, question+`1}`); code != 400 ||
			!strings.Contains(text, "Idempotency-Key is not one text") {
			t.Errorf("under %q: %d %s", key, code, text)
		}
	}
	if code, _ := tell(t, h, "/v1/check", question+`1}`, "Idempotency-Key", "a", "Idempotency-Key", "b"); code != 400 {
		t.Errorf("under two keys: %d", code)
	}
}

// Many who ask the same at once are answered the same, and one of them is charged; also if it panics before.
func TestIdempotencyKeyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		store := held{release: make(chan struct{})}
		b := trial.New(t, templates, []policy.Rule{{Endpoint: "default", Name: "each", Limit: 100, Per: time.Hour}},
			func(o *headgate.Options) {
				store.Store = o.Buckets
				o.Buckets = &store
			})
		h, _, _ := door(t, func(o *decisions.Options) {
			o.Limiter = b.Limiter
			o.Limit.Decided = func(*http.Request, *headgate.Decision) {
				if panics.Swap(false) {
					panic("a mistake")
				}
			}
		})
		panics.Store(true)
		var all sync.WaitGroup
		var mu sync.Mutex
		texts := map[string]int{}
		for range 20 {
			all.Go(func() {
				defer func() {
					if recover() != nil {
						mu.Lock()
						defer mu.Unlock()
						texts["panic"]++
					}
				}()
				_, text := tell(t, h, "/v1/check", question+`10}`, "Idempotency-Key", "k")
				mu.Lock()
				defer mu.Unlock()
				texts[text]++
			})
		}
		synctest.Wait() // one is being decided, and all others wait for it
		if n := store.asked.Load(); n != 1 {
			t.Errorf("%d are being decided, want 1", n)
		}
		close(store.release)
		all.Wait()
		if len(texts) != 2 || texts["panic"] != 1 || store.asked.Load() != 2 {
			t.Errorf("%v by %d decisions, want one that panicked, and one answer for the others", texts,
				store.asked.Load())
		}
	})
}

// held decides once it is released.
type held struct {
	bucket.Store
	asked   atomic.Int64
	release chan struct{}
}

func (s *held) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	s.asked.Add(1)
	<-s.release
	return s.Store.TryConsume(ctx, now, takes, outs)
}

// However many keys are made up, what is kept is bounded, and the newest stay.
func TestKeptAnswersAreBounded(t *testing.T) {
	h, _ := metered(t)
	const one = `{"method":"GET","target":"/none","client":"192.0.2.1"}`
	batch := `{"requests":[` + strings.Repeat(one+",", 99) + one + `]}`
	var last string
	for i := range 800 {
		_, last = tell(t, h, "/v1/check", batch, "Idempotency-Key", fmt.Sprint(i))
	}
	if len(last)*800 < 17<<20 {
		t.Fatalf("an answer has %d bytes: too few for this test", len(last))
	}
	if n := decisions.Kept(h); n > 16<<20+len(last) || n < 15<<20 {
		t.Errorf("%d bytes are kept, want 16 MiB at most", n)
	}
	code, text := tell(t, h, "/v1/check", one, "Idempotency-Key", "799")
	if code != 422 {
		t.Errorf("the newest key is forgotten: %d %s", code, text)
	}
	if code, text = tell(t, h, "/v1/check", one, "Idempotency-Key", "0"); code != 200 {
		t.Errorf("the oldest key is kept: %d %s", code, text)
	}
}

func TestDescription(t *testing.T) {
	h, _ := metered(t)
	got := ask(t, h, "GET /v1/openapi.yaml HTTP/1.1")
	if got.StatusCode != 200 || got.Header.Get("Content-Type") != "application/yaml" ||
		got.ContentLength != int64(len(decisions.OpenAPI)) {
		t.Errorf("%d %v", got.StatusCode, got.Header)
	}
}
