package token_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/token"
)

// issuer is a server of keys whose answer can be changed.
type issuer struct {
	mu     sync.Mutex
	answer http.HandlerFunc // guarded by mu
	asked  atomic.Int64
	header http.Header // guarded by mu; of the newest request
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.asked.Add(1)
	i.mu.Lock()
	answer := i.answer
	i.header = r.Header.Clone()
	i.mu.Unlock()
	answer(w, r)
}

func (i *issuer) set(answer http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

func (i *issuer) sent(name string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.header.Get(name)
}

func serves(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }
}

var oneKey = jwks(rsaJWK("k1", &rsaKey.PublicKey, ""))

// clock is a time that tests move.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return now.Add(time.Duration(c.at.Load())) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

func newSource(t testing.TB, o token.SourceOptions) *token.Source {
	t.Helper()
	if o.Algorithms == nil {
		o.Algorithms = []string{"RS256"}
	}
	o.Log = slog.New(slog.DiscardHandler)
	s, err := token.NewSource(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKeysOfAnIssuer asks a real server that misbehaves in every way. Whatever
// it does, the last good keys stay, until they are too old.
func TestKeysOfAnIssuer(t *testing.T) {
	server := &issuer{answer: serves(oneKey)}
	at := httptest.NewServer(server)
	defer at.Close()
	elsewhere := httptest.NewServer(serves(oneKey))
	defer elsewhere.Close()
	var c clock
	s := newSource(t, token.SourceOptions{JWKSURL: at.URL, Now: c.now, Timeout: time.Minute})
	if s.Set() != nil {
		t.Error("there are keys before the first fetch")
	}
	if err := s.Start(context.Background()); err != nil || s.Set().Len() != 1 {
		t.Fatalf("Start: %v, want one key", err)
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = io.Copy(z, io.LimitReader(zeros{}, 64<<20))
	z.Close()
	failures := uint64(0)
	for _, bad := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "the server answers 500"},
		{"404 with keys", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.Write(oneKey)
		}, "the server answers 404"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		}, "redirects are not followed"},
		{"garbage", serves([]byte("<html>")), "no JSON Web Key Set"},
		{"nothing", serves(nil), "no JSON Web Key Set"},
		{"no keys", serves([]byte(`{}`)), "no usable key"},
		{"empty set", serves([]byte(`{"keys":[]}`)), "no usable key"},
		{"keys in capitals", serves(bytes.Replace(oneKey, []byte("keys"), []byte("KEYS"), 1)), "no usable key"},
		{"keys twice", serves([]byte(`{"keys":[],` + string(oneKey[1:]))), "no JSON Web Key Set"},
		{"more behind it", serves(append(oneKey[:len(oneKey):len(oneKey)], '{')), "no JSON Web Key Set"},
		{"a secret", serves(jwks(rsaJWK("k1", &rsaKey.PublicKey, ""), `{"kty":"oct","k":"`+b64(make([]byte, 32))+`"}`)),
			"holds a secret"},
		{"the same kid twice", serves(jwks(rsaJWK("k1", &rsaKey.PublicKey, ""), rsaJWK("k1", &otherRSA.PublicKey, ""))),
			`two keys have the kid "k1"`},
		{"too many", serves(jwks(strings.Split(strings.Repeat("{}\n", 100)+"{}", "\n")...)), "has 101 keys"},
		{"too many without kid", serves(jwks(nameless(5)...)), "more than 4 keys for RS256 have no kid"},
		{"huge", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<30)) },
			"longer than 524288 bytes"},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		}, "longer than 524288 bytes"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			w.Write(oneKey)
		}, "unexpected EOF"},
		{"closes", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		server.set(bad.answer)
		err := s.Start(context.Background())
		if err == nil || !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), at.URL) {
			t.Errorf("%s: %v, want %q and no URL", bad.name, err, bad.want)
		}
		failures++
		if status := s.Status(); s.Set() == nil || s.Set().Len() != 1 || status.Failures != failures ||
			status.LastError == nil {
			t.Errorf("%s: %+v, want the last good key and %d failures", bad.name, status, failures)
		}
	}
	c.advance(24 * time.Hour)
	if s.Set() == nil {
		t.Error("no keys after 24 h, want the last good ones")
	}
	c.advance(time.Nanosecond)
	if s.Set() != nil {
		t.Error("keys of more than 24 h ago are in force")
	}
	v := newVerifier(t, s, nil)
	if _, err := v.Verify(context.Background(), sign(head, claims(nil), rsaKey)); !errors.Is(err,
		identity.ErrUnavailable) {
		t.Errorf("Verify without keys: %v, want ErrUnavailable", err)
	}
	server.set(serves(oneKey))
	if err := s.Start(context.Background()); err != nil || s.Set().Len() != 1 || s.Status().LastError != nil ||
		s.Status().Age != 0 {
		t.Errorf("back again: %v, %+v", err, s.Status())
	}
}

// TestAnIssuerThatHangs holds that a fetch takes its Timeout and no more, and
// leaves the last good keys.
func TestAnIssuerThatHangs(t *testing.T) {
	for name, begin := range map[string]http.HandlerFunc{
		"silent": func(http.ResponseWriter, *http.Request) {},
		"slow": func(w http.ResponseWriter, _ *http.Request) {
			w.Write(oneKey[:10])
			w.(http.Flusher).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &issuer{answer: serves(oneKey)}
				network := make(pipes)
				web := &http.Server{Handler: server}
				go web.Serve(network)
				defer close(network)
				transport := &http.Transport{DialContext: network.dial, DisableKeepAlives: true}
				s := newSource(t, token.SourceOptions{
					JWKSURL: "http://localhost/keys",
					Client:  &http.Client{Transport: transport},
					Timeout: 250 * time.Millisecond,
				})
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				server.set(func(w http.ResponseWriter, r *http.Request) {
					begin(w, r)
					<-r.Context().Done() // until nobody waits for it
				})
				began := time.Now()
				err := s.Start(t.Context())
				if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "deadline exceeded") ||
					took != 250*time.Millisecond {
					t.Errorf("Start: %v after %v, want an error after the Timeout of 250ms", err, took)
				}
				if status := s.Status(); s.Set().Len() != 1 || status.Failures != 1 || status.LastError == nil {
					t.Errorf("%+v, want the last good key and one failure", status)
				}
			})
		})
	}
}

// TestStatusWaitsForNobody: metrics are read while the issuer does not answer.
func TestStatusWaitsForNobody(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(reached)
		<-release
		w.Write(oneKey)
	}))
	defer at.Close()
	s := newSource(t, token.SourceOptions{JWKSURL: at.URL})
	started := make(chan error, 1)
	go func() { started <- s.Start(context.Background()) }()
	<-reached
	if status := s.Status(); status.Keys != 0 || s.Set() != nil {
		t.Errorf("%+v before the answer", status)
	}
	select {
	case err := <-started:
		t.Errorf("Status waited for the end of the fetch: %v", err)
	default:
	}
	close(release)
	if err := <-started; err != nil || s.Status().Keys != 1 {
		t.Errorf("%v, %+v", err, s.Status())
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func nameless(n int) (keys []string) {
	for range n {
		keys = append(keys, strings.Replace(rsaJWK("", &rsaKey.PublicKey, ""), `"kid":"",`, "", 1))
	}
	return keys
}

// TestConditionalFetch holds that what did not change is not sent again.
func TestConditionalFetch(t *testing.T) {
	var answers atomic.Int64
	server := &issuer{answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"v1"`)
		w.Header().Set("Last-Modified", "Fri, 20 Nov 2026 11:00:00 GMT")
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		answers.Add(1)
		w.Write(oneKey)
	}}
	at := httptest.NewServer(server)
	defer at.Close()
	var c clock
	s := newSource(t, token.SourceOptions{JWKSURL: at.URL, Now: c.now})
	for range 3 {
		c.advance(time.Hour)
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if answers.Load() != 1 || s.Status().Age != 0 ||
		server.sent("If-Modified-Since") != "Fri, 20 Nov 2026 11:00:00 GMT" {
		t.Errorf("%d bodies, age %v, If-Modified-Since %q", answers.Load(), s.Status().Age,
			server.sent("If-Modified-Since"))
	}
	server.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	fresh := newSource(t, token.SourceOptions{JWKSURL: at.URL})
	if err := fresh.Start(context.Background()); err == nil || fresh.Set() != nil ||
		server.sent("If-None-Match") != "" {
		t.Errorf("304 to the first request: %v, want an error", err)
	}
}

// pipes is a network without sockets, for a bubble of synctest.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// TestKeysThatWereAwayAtTheStart: they are there soon after the issuer is back, not only at the next look that is due.
func TestKeysThatWereAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &issuer{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }}
		network := make(pipes)
		web := &http.Server{Handler: server}
		go web.Serve(network)
		s := newSource(t, token.SourceOptions{JWKSURL: "http://localhost/keys", Refresh: time.Hour,
			Client: &http.Client{Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}})
		if err := s.Start(t.Context()); err == nil {
			t.Fatal("Start of an issuer that is away = nil")
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		server.set(serves(oneKey))
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if s.Set() == nil {
			t.Error("there are no keys after 31 s, want them after 30")
		}
		stop()
		running.Wait()
		close(network)
		_ = web.Close()
	})
}

// TestRunFollowsTheIssuer runs a source against a server for a simulated day.
func TestRunFollowsTheIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &issuer{answer: serves(oneKey)}
		network := make(pipes)
		web := &http.Server{Handler: server}
		go web.Serve(network)
		transport := &http.Transport{DialContext: network.dial, DisableKeepAlives: true}
		s := newSource(t, token.SourceOptions{JWKSURL: "http://localhost/keys",
			Client: &http.Client{Transport: transport}})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		fetches := func(during time.Duration) int64 {
			before := server.asked.Load()
			time.Sleep(during)
			synctest.Wait()
			return server.asked.Load() - before
		}
		if n := fetches(time.Hour); n != 12 {
			t.Errorf("%d fetches in an hour, want 12: one every 5 m", n)
		}

		// Keys rotate: the first token of the new key brings it.
		v := newVerifier(t, s, func(o *token.Options) { o.Now = time.Now })
		bySecond := func(kid string, key *rsa.PrivateKey) error {
			_, err := v.Verify(t.Context(), sign(`{"alg":"RS256","kid":"`+kid+`"}`,
				claims(map[string]any{"iat": nil, "exp": time.Now().Unix() + 60}), key))
			return err
		}
		if err := bySecond("k1", rsaKey); err != nil {
			t.Errorf("before the rotation: %v", err)
		}
		server.set(serves(jwks(rsaJWK("k2", &otherRSA.PublicKey, ""))))
		if err := bySecond("k2", otherRSA); !errors.Is(err, identity.ErrTokenUnfit) {
			t.Errorf("a key not known yet: %v, want ErrTokenUnfit", err)
		}
		fetches(31 * time.Second)
		if err := bySecond("k2", otherRSA); err != nil {
			t.Errorf("the new key after 31 s: %v", err)
		}
		if err := bySecond("k1", rsaKey); !errors.Is(err, identity.ErrTokenUnfit) {
			t.Errorf("the withdrawn key: %v, want ErrTokenUnfit", err)
		}

		// A flood of made-up kids fetches no more than one each 30 s.
		asking, enough := context.WithCancel(ctx)
		running.Go(func() {
			for i := 0; asking.Err() == nil; i++ {
				_ = bySecond(fmt.Sprint("made-up-", i), rsaKey)
				time.Sleep(250 * time.Millisecond)
			}
		})
		if n := fetches(10 * time.Minute); n < 19 || 21 < n {
			t.Errorf("%d fetches in 10 m of made-up kids, want 20", n)
		}
		enough()

		// The issuer is away: asked less and less often, at last each 5 m.
		server.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		fetches(5 * time.Minute)
		if n := fetches(time.Hour); n < 12 || 16 < n {
			t.Errorf("%d fetches in an hour while the issuer is away, want 12 to 16", n)
		}
		if err := bySecond("k2", otherRSA); err != nil {
			t.Errorf("while the issuer is away: %v", err)
		}
		fetches(24 * time.Hour)
		if err := bySecond("k2", otherRSA); !errors.Is(err, identity.ErrUnavailable) {
			t.Errorf("a day later: %v, want ErrUnavailable", err)
		}
		server.set(serves(oneKey))
		fetches(6 * time.Minute)
		if err := bySecond("k1", rsaKey); err != nil {
			t.Errorf("the issuer is back: %v", err)
		}
		stop()
		running.Wait()
		transport.CloseIdleConnections()
		close(network)
		web.Close()
	})
}

// TestLogSaysWhetherKeysAreInForce: at a first fetch that fails there are no last good ones.
func TestLogSaysWhetherKeysAreInForce(t *testing.T) {
	server := &issuer{answer: http.NotFound}
	at := httptest.NewServer(server)
	defer at.Close()
	var log bytes.Buffer
	s, err := token.NewSource(token.SourceOptions{JWKSURL: at.URL, Of: "the agent a", Algorithms: []string{"RS256"},
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Start(t.Context())
	if !strings.Contains(log.String(), "the keys of the agent a could not be read; none are in force") {
		t.Errorf("the log says\n%s\nwant that there are no keys", &log)
	}
	log.Reset()
	server.set(serves(oneKey))
	_ = s.Start(t.Context())
	server.set(http.NotFound)
	_ = s.Start(t.Context())
	if !strings.Contains(log.String(), "could not be read; the last good ones stay in force") {
		t.Errorf("the log says\n%s\nwant that the last good keys are in force", &log)
	}
}

func TestKeysInFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keys.json", oneKey)
	s := newSource(t, token.SourceOptions{JWKSFile: path("keys.json")})
	v := newVerifier(t, s, nil)
	valid, other := sign(head, claims(nil), rsaKey), sign(head, claims(nil), otherRSA)
	expect := func(step string, wantErr bool, first, second bool) {
		t.Helper()
		err := s.Start(context.Background())
		_, err1 := v.Verify(context.Background(), valid)
		_, err2 := v.Verify(context.Background(), other)
		if (err != nil) != wantErr || (err1 == nil) != first || (err2 == nil) != second {
			t.Errorf("%s: %v, %v, %v", step, err, err1, err2)
		}
	}
	expect("the first", false, true, false)
	expect("unchanged", false, true, false)
	write("keys.json", []byte("{"))
	expect("broken", true, true, false)
	os.Remove(path("keys.json"))
	expect("gone", true, true, false)
	write("keys.json", jwks(rsaJWK("k1", &otherRSA.PublicKey, "")))
	expect("another key under the same kid", false, false, true)
	write("keys.json", bytes.Repeat([]byte(" "), 1<<20))
	expect("huge", true, false, true)
}

func TestSourceOptions(t *testing.T) {
	for _, c := range []struct {
		o    token.SourceOptions
		want string
	}{
		{token.SourceOptions{}, "0 places"},
		{token.SourceOptions{JWKSURL: "https://a.example", JWKSFile: "x"}, "2 places"},
		{token.SourceOptions{JWKSURL: "ftp://a.example"}, "want https://HOST/PATH"},
		{token.SourceOptions{JWKSURL: "file:///etc/passwd"}, "want https://HOST/PATH"},
		{token.SourceOptions{JWKSURL: "https://u:p4ss@a.example"}, "no user name or password"},
		{token.SourceOptions{JWKSURL: "http://a.example/keys"}, "want https: over http"},
		{token.SourceOptions{JWKSURL: "http://127.0.0.1.example/keys"}, "want https: over http"},
		{token.SourceOptions{JWKSURL: "http://a.example/keys", AllowHTTP: true}, ""},
		{token.SourceOptions{JWKSURL: "http://[::1]:9/keys"}, ""},
		{token.SourceOptions{JWKSURL: "http://localhost:9/keys"}, ""},
	} {
		_, err := token.NewSource(c.o)
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) && err != nil ||
			strings.Contains(got, "p4ss") {
			t.Errorf("NewSource(%+v): %v, want %q", c.o, err, c.want)
		}
	}
}
