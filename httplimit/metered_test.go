package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/llm"
)

// model answers as OpenAI's chat completions do: words of a token each, as many as it is told.
type model struct {
	words, input int
	usage        bool
	wait         chan struct{} // between the words, if it is set
	sent         atomic.Int64
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	for range m.words {
		if m.wait != nil {
			<-m.wait
		}
		if _, err := io.WriteString(w,
			"data: {\"choices\":[{\"delta\":{\"content\":\"abc\"}}],\"usage\":null}\n\n"); err != nil {
			panic(http.ErrAbortHandler)
		}
		_ = http.NewResponseController(w).Flush()
		m.sent.Add(1)
	}
	if m.usage {
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\n",
			m.input, m.words)
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

type budget struct {
	*httptest.Server
	lim   *headgate.Limiter
	now   atomic.Int64
	ended chan struct{} // a request has come to its end, and is settled
}

// serveModel serves a model behind a budget of tokens an hour for each address.
func serveModel(t *testing.T, m http.Handler, tokens int64, o llm.EstimatorOptions, cut bool,
	rules ...string) *budget {
	t.Helper()
	b := &budget{ended: make(chan struct{}, 1000)}
	b.now.Store(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC).UnixNano())
	lim, err := headgate.New(headgate.Options{
		Rules: append(rules, fmt.Sprintf("POST /v1/chat/completions %d/h", tokens), "default 100000/s"),
		Now:   func() time.Time { return time.Unix(0, b.now.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	meter, err := llm.NewMeter(llm.MeterOptions{EstimatorOptions: o})
	if err != nil {
		t.Fatal(err)
	}
	meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: lim.Endpoints(), Metered: []httplimit.Metered{{
		Endpoint: "POST /v1/chat/completions", Cut: cut,
		Ask: func(r *http.Request, body []byte, whole bool) (httplimit.Exchange, int64) {
			return meter.Ask(r, body, whole)
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	b.lim = lim
	h := httplimit.Handler(lim, m, httplimit.Options{Meters: meters})
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { b.ended <- struct{}{} }()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *budget) left(t *testing.T) int64 {
	t.Helper()
	found, err := inspect.Find(t.Context(), b.lim, inspect.Query{Endpoint: "POST /v1/chat/completions",
		Address: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range found.Buckets {
		if one.Endpoint == "POST /v1/chat/completions" {
			return one.Remaining
		}
	}
	t.Fatalf("no bucket among %+v", found)
	return 0
}

func (b *budget) ask(body string) (status int, answer string, err error) {
	got, err := http.Post(b.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return got.StatusCode, string(text), err
}

// prompt has 60 bytes, which are taken for 20 tokens until more is known, and allows for an answer of most tokens.
func prompt(most int) string {
	body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":%d,"messages":"`, most)
	return body + strings.Repeat("x", 60-len(body)-2) + `"}`
}

func TestAnswersAreSettledByTheirUsage(t *testing.T) {
	b := serveModel(t, &model{words: 5, input: 17, usage: true}, 1000, llm.EstimatorOptions{}, false)
	if status, answer, err := b.ask(prompt(500)); status != 200 || err != nil ||
		!strings.HasSuffix(answer, "[DONE]\n\n") {
		t.Fatalf("%d %q %v, want the whole answer", status, answer, err)
	}
	if left := b.left(t); left != 1000-22 {
		t.Errorf("%d tokens are left, want 978", left)
	}
	if status, answer, _ := b.ask(prompt(959)); status != 429 || !strings.Contains(answer, "problem") {
		t.Errorf("a request for 979 tokens of 978 got %d", status)
	}
	if left := b.left(t); left != 978 {
		t.Errorf("%d tokens are left after a refusal, want 978", left)
	}
}

// Without usage in the stream, what was written counts: three bytes of text are a token until more is known.
func TestAnswersThatSayNothingAreSettledByTheirText(t *testing.T) {
	b := serveModel(t, &model{words: 5}, 1000, llm.EstimatorOptions{}, false)
	if status, _, err := b.ask(prompt(500)); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	if left := b.left(t); left != 1000-20-5 {
		t.Errorf("%d tokens are left, want 975", left)
	}
}

// A client that leaves pays for what was written so far, and not for all that it had asked for.
func TestALeftStreamPaysForWhatWasWritten(t *testing.T) {
	m := &model{words: 1000, wait: make(chan struct{})}
	b := serveModel(t, m, 10_000, llm.EstimatorOptions{}, false)
	got, err := http.Post(b.URL+"/v1/chat/completions", "application/json", strings.NewReader(prompt(5000)))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		m.wait <- struct{}{}
	}
	if err := got.Body.Close(); err != nil {
		t.Fatal(err)
	}
	for open := true; open; { // the model writes on until a write fails
		select {
		case m.wait <- struct{}{}:
		case <-b.ended:
			open = false
		}
	}
	left := b.left(t)
	if sent := m.sent.Load(); left < 10_000-20-sent-2 || left > 10_000-20-10 {
		t.Errorf("%d tokens are left, want what %d words have left of 10000", left, sent)
	}
}

// TestParallelStreamsNeverExceedABudget: 64 at once on one budget, whose answers are ten times as long as what was
// learned says. What the clients get, in tokens of the model, is within the budget, and most of it.
func TestParallelStreamsNeverExceedABudget(t *testing.T) {
	const tokens = 20_000
	for _, c := range []struct {
		name  string
		whole bool
		cut   bool
		most  int
	}{{"learned and cut", false, true, 4000}, {"whole", true, false, 900}} {
		t.Run(c.name, func(t *testing.T) {
			m := &model{words: 30, input: 20, usage: true}
			b := serveModel(t, m, tokens, llm.EstimatorOptions{Whole: c.whole}, c.cut)
			for range 30 { // so that something is learned: 50 tokens a request
				if status, _, err := b.ask(prompt(300)); status != 200 || err != nil {
					t.Fatal(status, err)
				}
			}
			spent := int64(30 * 50)
			if left := b.left(t); left != tokens-spent {
				t.Fatalf("%d tokens are left, want %d", left, tokens-spent)
			}
			m.words = 300
			before := m.sent.Load()
			var admitted, cut atomic.Int64
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					for range 3 {
						status, _, err := b.ask(prompt(c.most))
						switch {
						case status == 200:
							admitted.Add(1)
							if err != nil {
								cut.Add(1)
							}
						case status != 429:
							t.Errorf("%d %v", status, err)
						}
					}
				})
			}
			all.Wait()
			// What an answer gives back at its end is for those who ask then.
			for c.cut {
				status, _, _ := b.ask(prompt(c.most))
				if status != 200 {
					break
				}
				admitted.Add(1)
			}
			spent += m.sent.Load() - before + 20*admitted.Load()
			if spent > tokens {
				t.Errorf("%d tokens were had, want %d at most", spent, tokens)
			}
			if c.cut && spent < tokens*95/100 {
				t.Errorf("%d tokens were had, want 95 %% of %d at least", spent, tokens)
			}
			t.Logf("%d of %d tokens were had, %d answers, %d of them cut", spent, tokens, admitted.Load(), cut.Load())
		})
	}
}

// TestAnAnswerEndsWithItsBudget: a model that writes more than it was asked for is cut where its
// caller has no more, and what has passed is paid.
func TestAnAnswerEndsWithItsBudget(t *testing.T) {
	for _, cut := range []bool{true, false} {
		m := &model{words: 300, input: 20, usage: true}
		b := serveModel(t, m, 100, llm.EstimatorOptions{}, cut)
		_, answer, err := b.ask(prompt(10))
		<-b.ended
		want := map[bool]int{true: 80, false: 300}[cut]
		if words := strings.Count(answer, "abc"); (err != nil) != cut || words != want {
			t.Errorf("cut %t: %d words and %v, want %d", cut, words, err, want)
		}
		if left := b.left(t); left != 0 {
			t.Errorf("cut %t: %d tokens are left, want 0", cut, left)
		}
		if r := b.lim.Reservations(); r.Outstanding != 0 {
			t.Errorf("cut %t: %d reservations are outstanding, want none", cut, r.Outstanding)
		}
	}
}

// Bodies beyond MaxBytes reach the model whole, and are taken by their length.
func TestLongBodiesAreTakenByTheirLength(t *testing.T) {
	var got atomic.Int64
	var asked atomic.Pointer[string]
	table := headgateOf(t)
	meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: table.Endpoints(),
		Metered: []httplimit.Metered{{
			Endpoint: "POST /v1/chat/completions", MaxBytes: 100,
			Ask: func(r *http.Request, body []byte, whole bool) (httplimit.Exchange, int64) {
				said := fmt.Sprint(len(body), whole, r.ContentLength)
				asked.Store(&said)
				return nil, 1
			},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(httplimit.Handler(table, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Store(n)
	}), httplimit.Options{Meters: meters}))
	defer s.Close()
	for _, c := range []struct {
		body   io.Reader
		status int
		size   int64
		want   string
	}{
		{strings.NewReader(strings.Repeat("x", 100)), 200, 100, "100 true 100"},
		{strings.NewReader(strings.Repeat("x", 101)), 200, 101, "0 false 101"},
		{struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 100))}, 200, 100, "100 true -1"},
		{struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 5000))}, 411, 0, ""}, // how long, nobody knows
		{nil, 200, 0, "0 true 0"},
	} {
		got.Store(0)
		asked.Store(new(string))
		answer, err := http.Post(s.URL+"/v1/chat/completions", "application/json", c.body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.status || got.Load() != c.size || *asked.Load() != c.want {
			t.Errorf("%d, %d bytes arrived, Ask was told %q; want %d, %d, %q", answer.StatusCode, got.Load(),
				*asked.Load(), c.status, c.size, c.want)
		}
	}
}

// Nobody knows what a compressed body may cost, which is a thousandth as long as what the model would read.
func TestCompressedBodiesReachNoModel(t *testing.T) {
	lim := headgateOf(t)
	reached := 0
	meters, err := httplimit.NewMeters(httplimit.MeterOptions{Endpoints: lim.Endpoints(),
		Metered: []httplimit.Metered{{Endpoint: "POST /v1/chat/completions",
			Ask: func(*http.Request, []byte, bool) (httplimit.Exchange, int64) { return nil, 1 }}}})
	if err != nil {
		t.Fatal(err)
	}
	h := httplimit.Handler(lim, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }),
		httplimit.Options{Meters: meters})
	for _, c := range []struct {
		path, body string
		encoding   []string
		want       int
	}{
		{"/v1/chat/completions", "x", []string{"gzip"}, 415}, {"/v1/chat/completions", "x", []string{" Identity"}, 200},
		{"/v1/chat/completions", "x", []string{"identity", "zstd"}, 415},
		{"/v1/chat/completions", "", []string{"gzip"}, 200}, {"/other", "x", []string{"gzip"}, 200},
	} {
		r := httptest.NewRequest("POST", c.path, strings.NewReader(c.body))
		r.Header["Content-Encoding"] = c.encoding
		w, before := httptest.NewRecorder(), reached
		h.ServeHTTP(w, r)
		if w.Code != c.want || (reached > before) != (c.want == 200) ||
			c.want == 415 && w.Header().Get("Accept-Encoding") != "identity" {
			t.Errorf("%s %q as %q: %d %v, want %d", c.path, c.body, c.encoding, w.Code, w.Header(), c.want)
		}
	}
}

func headgateOf(t *testing.T) *headgate.Limiter {
	t.Helper()
	lim, err := headgate.New(headgate.Options{Rules: []string{"POST /v1/chat/completions 1000/s", "default 1000/s"}})
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func TestNewMetersNamesEveryFault(t *testing.T) {
	template, err := endpoint.ParseTemplate("POST /v1/chat")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(*http.Request, []byte, bool) (httplimit.Exchange, int64) { return nil, 1 }
	_, err = httplimit.NewMeters(httplimit.MeterOptions{Endpoints: table, Metered: []httplimit.Metered{
		{Endpoint: "POST /v1/chatt", MaxBytes: -1, ReadTimeout: -1}, {Endpoint: "POST /v1/chat", Ask: ask},
		{Endpoint: "POST /v1/chat", Ask: ask},
	}})
	for _, want := range []string{`such as "POST /v1/chat"`, "Ask and Bytes are", "MaxBytes is -1",
		"ReadTimeout is -1ns", "stands twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one that says %q", err, want)
		}
	}
	if _, err := httplimit.NewMeters(httplimit.MeterOptions{}); err == nil {
		t.Error("no table: nil error, want one")
	}
}

// What an answer takes more of its budget while it runs is for a request that is under way already, so
// it takes no place beside its own.
func TestAMeteredAnswerHasOnePlace(t *testing.T) {
	const words = 500
	b := serveModel(t, &model{words: words, input: 3, usage: true}, 100000, llm.EstimatorOptions{}, true,
		"POST /v1/chat/completions 1 at once")
	for range 2 {
		status, answer, err := b.ask(prompt(10))
		if n := strings.Count(answer, "abc"); status != http.StatusOK || err != nil || n != words {
			t.Fatalf("%d with %d words and %v, want 200 with %d", status, n, err, words)
		}
		<-b.ended
	}
	if s := b.lim.Reservations(); s.Outstanding != 0 {
		t.Errorf("%d reservations are outstanding", s.Outstanding)
	}
}

// An answer that goes on for longer than any timeout is settled by what it says all the same.
func TestALongAnswerIsSettled(t *testing.T) {
	m := &model{words: 5, input: 17, usage: true, wait: make(chan struct{})}
	b := serveModel(t, m, 1000, llm.EstimatorOptions{}, false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = b.ask(prompt(900))
	}()
	for range 5 {
		m.wait <- struct{}{}
		b.now.Add(int64(time.Hour))
	}
	<-done
	<-b.ended
	if r := b.lim.Reservations(); r.Expired != 0 || r.Settled != 1 || r.Outstanding != 0 {
		t.Errorf("%+v, want one reservation that was settled", r)
	}
}
