package warnings_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/warnings"
)

// bench is a limiter that is watched, in the test's time.
type bench struct {
	*trial.Bench
	watch  *warnings.Watch
	events []warnings.Event
}

func watched(t *testing.T, m warnings.Marks, rules ...policy.Rule) *bench {
	t.Helper()
	return following(t, m, nil, rules...)
}

// following is watched with rates, and how many requests are under way, that follow the API as a table has it.
func following(t *testing.T, m warnings.Marks, table *adaptive.Table, rules ...policy.Rule) *bench {
	t.Helper()
	b := &bench{}
	var o warnings.Options
	o.Caller = func(who *identity.Principal) string { return "hash-of-" + who.ID }
	o.Send = func(e warnings.Event) { b.events = append(b.events, e) }
	o.Now = func() time.Time { return b.Now }
	o.Log = slog.New(slog.DiscardHandler)
	b.Bench = &trial.Bench{Now: trial.Epoch}
	b.watch = warnings.New(o)
	b.watch.Use(m)
	inner := trial.New(t, []string{"GET /a", "GET /b"}, rules, func(o *headgate.Options) {
		o.Observe, o.Now, o.Adaptive = b.watch.Observe, func() time.Time { return b.Now }, table
	})
	now := b.Now
	b.Bench = inner
	b.Now = now
	return b
}

// ask sends a request of somebody who is logged in, or of an address.
func (b *bench) ask(id string) bool { return b.askFor(id, "/a") }

func (b *bench) askFor(id, target string) bool {
	r := headgate.Request{Method: "GET", Target: target, Peer: trial.Client}
	if id != "" {
		r.User = &identity.User{ID: id, Project: "acme"}
	}
	return b.Check(context.Background(), r).Allowed
}

func (b *bench) told() string {
	var told []string
	for _, e := range b.events {
		told = append(told, fmt.Sprintf("%s %s %d%%", e.Kind, e.State, e.Percent))
	}
	b.events = nil
	return strings.Join(told, ", ")
}

func (b *bench) pass(d time.Duration) {
	for range d / (10 * time.Second) {
		b.Now = b.Now.Add(10 * time.Second)
		b.watch.Look()
	}
}

// TestNearLimit: a caller is told of once when it has used 80 of a hundred, and when that is over;
// again an hour later at the soonest, however often it goes to and fro.
func TestNearLimit(t *testing.T) {
	b := watched(t, warnings.Marks{CallerPercent: 80, CallerFill: time.Minute},
		policy.Rule{Endpoint: "GET /a", Limit: 100, Per: 100 * time.Minute, Name: "quota"})
	want := func(told string) {
		t.Helper()
		if got := b.told(); got != told {
			t.Errorf("told %q, want %q", got, told)
		}
	}
	for range 79 {
		b.ask("ann")
	}
	want("")
	b.ask("ann")
	if e := b.events[0]; e.Caller != "hash-of-ann" || e.CallerKind != "user" || e.Project != "acme" ||
		e.Rule != "quota" || e.Limit != "100 per 1h40m" ||
		e.Endpoint != "GET /a" || e.ID == "" || !e.Time.Equal(b.Now) {
		t.Errorf("%+v", e)
	}
	want("caller_near_limit begun 80%")
	for range 15 {
		b.ask("ann")
	}
	for range 100 {
		b.ask("")
	}
	want("") // it was told, and nobody knows who an address is
	b.pass(20 * time.Minute)
	b.ask("ann")
	want("") // 76 of them are in use
	b.pass(18 * time.Minute)
	b.ask("ann")
	want("caller_near_limit over 59%")
	for range 30 {
		b.ask("ann")
	}
	want("") // an hour is not over
	b.pass(24 * time.Minute)
	want("")
	b.ask("ann")
	for range 25 {
		b.ask("ann")
	}
	want("caller_near_limit begun 80%")
	b.pass(101 * time.Minute)
	want("caller_near_limit over 0%") // it asked no more
	if s := b.watch.Stats(); s.Begun[warnings.NearLimit] != 2 || s.Active[warnings.NearLimit] != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// A caller has a bucket for each endpoint of a rule, and under some rules for each of its addresses. That
// one of them is full does not end what another one began.
func TestNearLimitInOneOfSeveral(t *testing.T) {
	for name, test := range map[string]struct {
		rule  policy.Rule
		other func(*bench)
	}{
		"another endpoint": {
			policy.Rule{Endpoint: policy.Default, Limit: 10, Per: 100 * time.Minute},
			func(b *bench) { b.askFor("ann", "/b") },
		},
		"another address": {
			policy.Rule{Endpoint: "GET /a", Limit: 10, Per: 100 * time.Minute, Subject: policy.SubjectPrincipalIP},
			func(b *bench) {
				b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/a",
					Peer: netip.MustParseAddr("192.0.2.77"), User: &identity.User{ID: "ann", Project: "acme"}})
			},
		},
	} {
		b := watched(t, warnings.Marks{CallerPercent: 80, CallerFill: time.Minute}, test.rule)
		for range 9 {
			b.ask("ann")
		}
		b.told()
		test.other(b)
		if got := b.told(); got != "" {
			t.Errorf("%s: told %q", name, got)
		}
		b.pass(31 * time.Minute) // 59 % of the first one are in use
		test.other(b)
		if got := b.told(); !strings.HasPrefix(got, "caller_near_limit over") && name == "another address" {
			t.Errorf("%s, when the first is below the mark: told %q", name, got)
		}
		b.pass(2 * time.Hour)
		if s := b.watch.Stats(); s.Active[warnings.NearLimit] != 0 || s.Begun[warnings.NearLimit] != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Active lists what has begun and is not over, the newest first.
func TestActive(t *testing.T) {
	b := watched(t, warnings.Marks{CallerPercent: 80, CallerFill: time.Minute},
		policy.Rule{Endpoint: "GET /a", Limit: 10, Per: 100 * time.Minute, Name: "quota"})
	active := func(most int) string {
		events, all := b.watch.Active(most)
		text := fmt.Sprint(all)
		for _, e := range events {
			text += " " + e.Caller + " " + e.State
			if e.ID == "" || e.Time.IsZero() || e.Rule != "quota" {
				t.Errorf("%+v", e)
			}
		}
		return text
	}
	for _, who := range []string{"ann", "bob"} {
		for range 8 {
			b.ask(who)
		}
		b.pass(10 * time.Second)
	}
	for _, step := range []struct{ got, want string }{
		{active(10), "2 hash-of-bob begun hash-of-ann begun"}, {active(1), "2 hash-of-bob begun"}, {active(0), "2"},
	} {
		if step.got != step.want {
			t.Errorf("active: %s, want %s", step.got, step.want)
		}
	}
	b.pass(2 * time.Hour)
	if got := active(10); got != "0" {
		t.Errorf("when all is over: %s", got)
	}
}

// Of rules that fill quickly nobody is told, nor of those in shadow.
func TestNotWatched(t *testing.T) {
	b := watched(t, warnings.Marks{CallerPercent: 80, CallerFill: time.Minute},
		policy.Rule{Endpoint: "GET /a", Limit: 10},
		policy.Rule{Endpoint: policy.All, Limit: 10, Per: time.Hour, Mode: policy.Shadow})
	for range 30 {
		b.ask("ann")
	}
	if got := b.told(); got != "" {
		t.Errorf("told %q", got)
	}
}

// Any number of callers takes the memory of so many, and the others are counted.
func TestBounded(t *testing.T) {
	b := watched(t, warnings.Marks{CallerPercent: 80, CallerFill: time.Minute},
		policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Hour})
	for i := range warnings.MaxCallers + 100 {
		b.ask(fmt.Sprint(i))
	}
	if s := b.watch.Stats(); len(b.events) != warnings.MaxCallers || s.Lost != 100 ||
		s.Active[warnings.NearLimit] != warnings.MaxCallers {
		t.Errorf("%d events, %d lost, %d active", len(b.events), s.Lost, s.Active[warnings.NearLimit])
	}
	b.events = nil
	b.pass(time.Hour)
	b.events = nil
	b.ask("one more")
	if got := b.told(); got != "caller_near_limit begun 100%" {
		t.Errorf("after an hour: %q", got)
	}
}

// TestDenied: what lasts ten minutes is told, once; what comes and goes is not.
func TestDenied(t *testing.T) {
	b := watched(t, warnings.Marks{DeniedPercent: 5, DeniedFor: 10 * time.Minute},
		policy.Rule{Endpoint: "GET /a", Limit: 90, Per: 10 * time.Second, Burst: 90})
	minutes := func(n, requests int) {
		for range n * 6 {
			for range requests {
				b.ask("ann")
			}
			b.pass(10 * time.Second)
		}
	}
	want := func(told string) {
		t.Helper()
		if got := b.told(); got != told {
			t.Errorf("told %q, want %q", got, told)
		}
	}
	minutes(30, 90)
	want("")
	for range 10 { // nine minutes of every ten
		minutes(9, 100)
		minutes(1, 50)
	}
	want("")
	minutes(11, 100)
	want("requests_denied begun 10%")
	minutes(60, 93) // 3 % are more than half of the mark
	want("")
	minutes(9, 90)
	minutes(1, 100)
	want("") // it was better for nine minutes
	minutes(12, 91)
	want("requests_denied over 1%")
	minutes(9, 100)
	want("")
	minutes(3, 100)
	want("requests_denied begun 10%")
	minutes(11, 0)
	want("requests_denied over 0%") // nobody asks
	b = watched(t, warnings.Marks{DeniedPercent: 5, DeniedFor: 10 * time.Minute},
		policy.Rule{Endpoint: "GET /a", Limit: 1, Per: time.Hour})
	minutes(60, 4)
	want("") // of a few requests a part says nothing
}

// TestHook: what is sent is signed, tried again, given up, and never more than there is room for;
// nobody is sent elsewhere.
func TestHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		secret, mu := []byte("0123456789abcdef"), sync.Mutex{}
		var answers []int
		var bodies, signatures []string
		var at []time.Duration
		begin := time.Now()
		address, _ := url.Parse("https://hooks.example/T0P/s3cr3t-path?token=s3cr3t-query")
		h := warnings.NewHook(warnings.HookOptions{
			URL: address, Secret: func() ([]byte, error) { return secret, nil },
			Log: slog.New(slog.NewTextHandler(&log, nil)),
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				body, _ := io.ReadAll(r.Body)
				bodies, signatures, at = append(bodies, string(body)),
					append(signatures, r.Header.Get(warnings.SignatureField)), append(at, time.Since(begin))
				if r.URL.String() != address.String() || r.Method != "POST" {
					t.Errorf("%s %s is asked", r.Method, r.URL)
				}
				if len(answers) == 0 {
					return nil, io.ErrUnexpectedEOF
				}
				status := answers[0]
				answers = answers[1:]
				return &http.Response{
					StatusCode: status,
					Header:     http.Header{"Location": {"http://169.254.169.254/"}},
					Body:       io.NopCloser(strings.NewReader("x")),
				}, nil
			}),
		})
		ctx, stop := context.WithCancel(context.Background())
		go h.Run(ctx)
		event := warnings.Event{ID: "7", Kind: warnings.Denied, State: "begun", Percent: 12, Requests: 900}
		answers = []int{500, 302, 204} // a redirect is followed by nobody
		h.Send(event)
		time.Sleep(time.Minute)
		if s := h.Stats(); s != (warnings.HookStats{Delivered: 1}) || fmt.Sprint(at) != "[0s 1s 5s]" {
			t.Errorf("%+v after attempts at %v", s, at)
		}
		for i := range bodies {
			var got warnings.Event
			if err := json.Unmarshal([]byte(bodies[i]), &got); err != nil || got.ID != "7" || got.Percent != 12 {
				t.Errorf("%s: %v", bodies[i], err)
			}
			if want := warnings.Sign(secret, begin.Add(at[i]), []byte(bodies[i])); signatures[i] != want {
				t.Errorf("attempt %d is signed %q, want %q", i, signatures[i], want)
			}
		}
		bodies, at, begin = nil, nil, time.Now()
		h.Send(event)
		time.Sleep(10 * time.Minute)
		if s := h.Stats(); s.Failed != 1 || fmt.Sprint(at) != "[0s 1s 5s 21s 1m25s]" {
			t.Errorf("%+v after attempts at %v", s, at)
		}
		for range 1000 {
			h.Send(event) // never waits
		}
		synctest.Wait()
		if s := h.Stats(); s.Dropped < 1000-258 {
			t.Errorf("%+v, want most of a thousand dropped", s)
		}
		stop()
		synctest.Wait()
		if said := log.String(); !strings.Contains(said, "hooks.example") || strings.Contains(said, "s3cr3t") ||
			strings.Contains(said, "0123456789abcdef") {
			t.Errorf("the log says %s", said)
		}
	})
}

// TestHookAtTheEnd: what waits when the process stops is tried once more, by the secret of then and for two seconds in
// all, whatever the receiver does.
func TestHookAtTheEnd(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			address, _ := url.Parse("https://hooks.example/")
			var heard []string
			secret, down := []byte("the first secret"), true
			h := warnings.NewHook(warnings.HookOptions{
				URL: address, Secret: func() ([]byte, error) { return secret, nil }, Log: slog.New(slog.DiscardHandler),
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					body, _ := io.ReadAll(r.Body)
					switch {
					case down:
						return nil, io.ErrUnexpectedEOF
					case hangs:
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					if want := warnings.Sign(secret, time.Now(), body); r.Header.Get(warnings.SignatureField) != want {
						t.Errorf("it is signed %q, want %q", r.Header.Get(warnings.SignatureField), want)
					}
					var e warnings.Event
					_ = json.Unmarshal(body, &e)
					heard = append(heard, e.ID)
					return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
				}),
			})
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() { h.Run(ctx); close(ended) }()
			for _, id := range []string{"1", "2", "3"} {
				h.Send(warnings.Event{ID: id, Kind: warnings.Denied, State: "begun"})
			}
			time.Sleep(3 * time.Second) // the first one was tried twice
			synctest.Wait()
			secret, down = []byte("the second secret"), false
			at := time.Now()
			stop()
			<-ended
			want, stats := "[1 2 3]", warnings.HookStats{Delivered: 3}
			if hangs {
				want, stats = "[]", warnings.HookStats{Failed: 3}
			}
			if s := h.Stats(); fmt.Sprint(heard) != want || s != stats || time.Since(at) > 2*time.Second {
				t.Errorf("hangs %v: heard %v after %v, %+v; want %s", hangs, heard, time.Since(at), s, want)
			}
		})
	}
}

// TestHookIsSentElsewhereWhileItStops: a reload that names another receiver and another secret, while the process
// stops, holds for what is still to be sent; what is under way is signed as it was begun, and nothing is lost or
// sent twice.
func TestHookIsSentElsewhereWhileItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, heard := true, []string{}
		to := func(name string) warnings.HookOptions {
			address, _ := url.Parse("https://" + name + ".example/")
			return warnings.HookOptions{
				URL: address, Secret: func() ([]byte, error) { return []byte(name), nil },
				Log: slog.New(slog.DiscardHandler),
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					if down {
						return nil, io.ErrUnexpectedEOF
					}
					time.Sleep(time.Second / 2)
					body, _ := io.ReadAll(r.Body)
					var e warnings.Event
					_ = json.Unmarshal(body, &e)
					if want := warnings.Sign([]byte(name), time.Now().Add(-time.Second/2), body); r.Header.Get(
						warnings.SignatureField) != want || r.URL.Host != name+".example" {
						t.Errorf("%s is sent to %s, and not signed by the secret of %s", e.ID, r.URL.Host, name)
					}
					heard = append(heard, e.ID+" by "+name)
					return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
				}),
			}
		}
		h := warnings.NewHook(to("first"))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { h.Run(ctx); close(ended) }()
		for _, id := range []string{"1", "2"} {
			h.Send(warnings.Event{ID: id, Kind: warnings.Denied, State: "begun"})
		}
		synctest.Wait() // the first one waits for its second attempt
		down = false
		stop()
		synctest.Wait() // its last attempt is under way
		h.Use(to("second"))
		<-ended
		if s := h.Stats(); fmt.Sprint(heard) != "[1 by first 2 by second]" || s != (warnings.HookStats{Delivered: 2}) {
			t.Errorf("heard %v, %+v", heard, s)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A receiver over the network gets what is signed. The signature is that of the published scheme: HMAC-SHA-256 of
// "1700000000.{}" under "whsec_test", made with OpenSSL.
func TestHookOverHTTP(t *testing.T) {
	const made = "t=1700000000,v1=35495024f4ef3f94e5a93e22221544c4b75e9a42300cd965ab81cb85cd994e91"
	if got := warnings.Sign([]byte("whsec_test"), time.Unix(1_700_000_000, 0), []byte("{}")); got != made {
		t.Errorf("Sign = %s, want %s", got, made)
	}
	got := make(chan string, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("a redirect is followed")
	}))
	defer elsewhere.Close()
	first := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Content-Type") + " " + string(body)
	}))
	defer server.Close()
	address, _ := url.Parse(server.URL + "/hook")
	h := warnings.NewHook(warnings.HookOptions{
		URL:    address,
		Secret: func() ([]byte, error) { return []byte("x"), nil },
		Wait:   time.Millisecond,
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go h.Run(ctx)
	h.Send(warnings.Event{ID: "8", Kind: warnings.Denied, State: "over"})
	select {
	case text := <-got:
		if !strings.HasPrefix(text, `application/json {"id":"8"`) {
			t.Errorf("the receiver got %s", text)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing arrives")
	}
}

// TestNearWhatIsInForce: of a limit on requests under way of which a part is in force, a caller is near its limit by
// that part.
func TestNearWhatIsInForce(t *testing.T) {
	rule := policy.Rule{Endpoint: "GET /a", Limit: 10, Per: time.Hour,
		Subject: policy.SubjectPrincipal.Counting(policy.CountsUnderWay)}
	table := &adaptive.Table{}
	b := following(t, warnings.Marks{CallerPercent: 80, CallerFill: time.Minute}, table, rule)
	table.Use(map[string]adaptive.Settings{"GET /a": {SLO: time.Second, Floor: adaptive.Whole / 2, AtOnce: true}},
		b.Now.UnixNano())
	for range 10 {
		for n := range uint64(60) {
			table.Named("GET /a").Sent(b.Now.UnixNano(), n)
			table.Named("GET /a").Answered(b.Now.UnixNano(), n, 2*time.Second, false)
		}
		b.Now = b.Now.Add(2 * time.Second)
	}
	for range 3 {
		b.ask("ann")
	}
	if told := b.told(); told != "" {
		t.Errorf("with three of five under way told %q, want nothing", told)
	}
	b.ask("ann")
	if told := b.told(); told != "caller_near_limit begun 80%" {
		t.Errorf("with four of five told %q, want that it is near", told)
	}
}
