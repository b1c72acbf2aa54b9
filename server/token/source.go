package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// SourceOptions says where keys come from: exactly one of the first four.
type SourceOptions struct {
	SecretFiles []string // secrets for HS256, HS384 and HS512
	KeyFiles    []string // PEM files with public keys or certificates
	JWKSFile    string   // file with a JSON Web Key Set
	JWKSURL     string   // URL of a JSON Web Key Set

	Base64     bool     // secrets stand in their files as base64
	Algorithms []string // see Options

	// Directory says that JWKSURL is where an agent publishes what it signs requests with; see ParseDirectory.
	Directory bool

	// Of says in log lines whose keys they are. Default "bearer tokens".
	Of string

	// AllowHTTP lets JWKSURL be http:// beyond this machine: then whoever is on
	// the way decides which tokens are good.
	AllowHTTP bool

	// Refresh is how often a URL is asked for changes. Default 5 m. Files are
	// read every 5 s.
	Refresh time.Duration

	// MinRefetch is the shortest time between two fetches, however many tokens
	// name keys that are not known. Default 30 s.
	MinRefetch time.Duration

	// MaxStale is how long the last good keys stay in force while they cannot
	// be had. Default 24 h.
	MaxStale time.Duration

	Timeout time.Duration // of one fetch, default 10 s

	Client *http.Client // for tests with a certificate of their own; redirects are refused anyway
	Log    *slog.Logger // default slog.Default
	Now    func() time.Time
}

const (
	maxJWKSBytes = 512 << 10
	fileInterval = 5 * time.Second
)

// Source is a KeySource that keeps itself up to date while Run runs. The last
// good keys stay in force when new ones cannot be had or make no sense.
type Source struct {
	options  SourceOptions
	fetch    func(context.Context) (set *Set, err error) // errUnchanged: what there is, is current
	interval time.Duration
	wake     chan struct{}

	current  atomic.Pointer[loaded]
	failures atomic.Uint64
	lastErr  atomic.Pointer[error] // of the newest attempt; nil if it succeeded

	// Held during an attempt, which can take as long as Timeout.
	mu       sync.Mutex
	asked    time.Time         // guarded by mu; when the newest attempt began
	etag     string            // guarded by mu; of the set in force
	modified string            // guarded by mu
	content  [sha256.Size]byte // guarded by mu; of what the files held
}

var _ KeySource = (*Source)(nil)

// loaded is a set and when it was last known to be current.
type loaded struct {
	set *Set
	at  time.Time
}

// SourceStatus is the state of a Source.
type SourceStatus struct {
	Keys      int
	Age       time.Duration // since the keys were last known to be current
	Failures  uint64        // attempts that failed
	LastError error         // of the newest attempt
	Ignored   []string      // see Set
}

// NewSource returns a Source without keys: Start fetches them.
func NewSource(o SourceOptions) (*Source, error) {
	if o.Refresh == 0 {
		o.Refresh = 5 * time.Minute
	}
	if o.MinRefetch == 0 {
		o.MinRefetch = 30 * time.Second
	}
	if o.MaxStale == 0 {
		o.MaxStale = 24 * time.Hour
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Of == "" {
		o.Of = "bearer tokens"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Source{options: o, interval: fileInterval, wake: make(chan struct{}, 1)}
	kinds := 0
	for _, given := range []bool{len(o.SecretFiles) > 0, len(o.KeyFiles) > 0, o.JWKSFile != "", o.JWKSURL != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return nil,
			fmt.Errorf("keys come from %d places, want one of secret files, PEM files, a JWKS file and a JWKS URL",
				kinds)
	}
	s.fetch = s.readFiles
	if o.JWKSURL != "" {
		if err := CheckURL(o.JWKSURL, o.AllowHTTP); err != nil {
			return nil, fmt.Errorf("JWKS URL %w", err)
		}
		s.fetch, s.interval = s.get, o.Refresh
		s.options.Client = newClient(o.Client)
	}
	return s, nil
}

// CheckURL says what is wrong with the URL of a key set, or nothing.
func CheckURL(text string, allowHTTP bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https", u.Fragment != "":
		return fmt.Errorf("is %q, want https://HOST/PATH", withoutUser(text))
	case u.User != nil:
		return fmt.Errorf("is %q, want no user name or password in it", withoutUser(text))
	case u.Scheme == "http" && !allowHTTP && !local(u.Hostname()):
		return fmt.Errorf("is %q, want https: over http, whoever is on the way decides which keys are good", text)
	}
	return nil
}

// withoutUser is a URL as it may be shown, whatever is wrong with it.
func withoutUser(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "…" + text[at:]
	}
	return text
}

func local(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// newClient returns a client that goes where it is sent and nowhere else: a
// redirect would let whoever holds the old host choose the keys.
func newClient(base *http.Client) *http.Client {
	client := http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: 10 * time.Second,
		MaxIdleConns:          1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2: true,
	}}
	if base != nil {
		client = *base
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// Set returns the keys in force, or nil if there are none, or they are older
// than MaxStale.
func (s *Source) Set() *Set {
	l := s.current.Load()
	if l == nil || s.options.Now().Sub(l.at) > s.options.MaxStale {
		return nil
	}
	return l.set
}

// Missing lets Run look for new keys as soon as it may.
func (s *Source) Missing() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Status returns the state of the source. It waits for nothing.
func (s *Source) Status() SourceStatus {
	status := SourceStatus{Failures: s.failures.Load()}
	if err := s.lastErr.Load(); err != nil {
		status.LastError = *err
	}
	if l := s.current.Load(); l != nil {
		status.Keys, status.Age, status.Ignored = l.set.Len(), s.options.Now().Sub(l.at), l.set.Ignored
	}
	return status
}

// Start gets the keys for the first time. If it returns an error, they may
// still come while Run runs.
func (s *Source) Start(ctx context.Context) error { return s.refresh(ctx) }

// Run keeps the keys up to date until ctx ends.
func (s *Source) Run(ctx context.Context) {
	failed := 0
	if s.lastErr.Load() != nil { // Start did
		failed = 1
	}
	for {
		wait := s.interval
		if failed > 0 { // sooner than usual, and then ever later
			wait = min(wait, s.options.MinRefetch<<min(failed-1, 10))
		}
		if !s.sleep(ctx, wait) {
			return
		}
		if err := s.refresh(ctx); err != nil {
			failed++
		} else {
			failed = 0
		}
	}
}

// sleep waits for the time of the next attempt, which a missing key brings
// forward. It reports false when ctx ends.
func (s *Source) sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-s.wake:
	}
	s.mu.Lock()
	soonest := s.options.MinRefetch - s.options.Now().Sub(s.asked)
	s.mu.Unlock()
	early := time.NewTimer(soonest)
	defer early.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-early.C:
	case <-timer.C:
	}
	select { // those who asked meanwhile are answered by this attempt too
	case <-s.wake:
	default:
	}
	return true
}

var errUnchanged = errors.New("unchanged")

func (s *Source) refresh(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = s.options.Now()
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	set, err := s.fetch(ctx)
	last := s.current.Load()
	switch {
	case err == errUnchanged && last != nil:
		s.current.Store(&loaded{last.set, s.asked})
	case err != nil:
		s.failures.Add(1)
		// once, not with every attempt
		if before := s.lastErr.Swap(&err); before == nil || (*before).Error() != err.Error() {
			inForce, what := s.inForce(), "the last good ones stay in force"
			if inForce == 0 {
				what = "none are in force"
			}
			s.options.Log.Warn("the keys of "+s.options.Of+" could not be read; "+what, "error", err, "keys", inForce)
		}
		return err
	default:
		s.current.Store(&loaded{set, s.asked})
		s.options.Log.Info("keys of "+s.options.Of, "keys", set.Len(), "ignored", set.Ignored)
	}
	if s.lastErr.Swap(nil) != nil {
		s.options.Log.Info("the keys of " + s.options.Of + " can be read again")
	}
	return nil
}

func (s *Source) inForce() int {
	if set := s.Set(); set != nil {
		return set.Len()
	}
	return 0
}

// get fetches the set of a URL. Called with mu held.
func (s *Source) get(ctx context.Context) (*Set, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.options.JWKSURL, nil)
	if err != nil {
		return nil, err
	}
	accept, parse := "application/jwk-set+json, application/json", s.parseJWKS
	if s.options.Directory {
		accept, parse = "application/http-message-signatures-directory+json", ParseDirectory
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "headgate")
	if s.current.Load() != nil {
		if s.etag != "" {
			request.Header.Set("If-None-Match", s.etag)
		}
		if s.modified != "" {
			request.Header.Set("If-Modified-Since", s.modified)
		}
	}
	response, err := s.options.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", withoutURL(err))
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified:
		return nil, errUnchanged
	case response.StatusCode/100 == 3:
		return nil,
			fmt.Errorf(
				"fetch the key set: the server answers %d, want 200: redirects are not followed, name its final "+
					"URL", response.StatusCode)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("fetch the key set: the server answers %d, want 200", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxJWKSBytes+1))
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", withoutURL(err))
	}
	if len(body) > maxJWKSBytes {
		return nil, fmt.Errorf("fetch the key set: it is longer than %d bytes", maxJWKSBytes)
	}
	set, err := parse(body)
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", err)
	}
	s.etag, s.modified = response.Header.Get("Etag"), response.Header.Get("Last-Modified")
	return set, nil
}

func (s *Source) parseJWKS(body []byte) (*Set, error) {
	return ParseJWKS(body, s.options.Algorithms, true)
}

// withoutURL is err without the URL, whose query may be a secret.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// readFiles reads the keys of files. Called with mu held.
func (s *Source) readFiles(context.Context) (*Set, error) {
	o := &s.options
	var paths []string
	paths = append(append(append(paths, o.SecretFiles...), o.KeyFiles...), o.JWKSFile)
	var contents [][]byte
	all := sha256.New()
	for _, path := range paths {
		if path == "" {
			continue
		}
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		contents = append(contents, data)
		fmt.Fprintf(all, "%d:%s", len(data), data)
	}
	content := [sha256.Size]byte(all.Sum(nil))
	if content == s.content && s.current.Load() != nil {
		return nil, errUnchanged
	}
	set, err := o.parseFiles(paths, contents)
	if err != nil {
		return nil, err
	}
	s.content = content
	return set, nil
}

func (o *SourceOptions) parseFiles(paths []string, contents [][]byte) (*Set, error) {
	if o.JWKSFile != "" {
		set, err := ParseJWKS(contents[0], o.Algorithms, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.JWKSFile, err)
		}
		return set, nil
	}
	var keys []*Key
	for i, data := range contents {
		var found []*Key
		var err error
		if len(o.SecretFiles) > 0 {
			var key *Key
			if key, err = ParseSecret(data, o.Base64, o.Algorithms); err == nil {
				found = []*Key{key}
			}
		} else {
			found, err = ParsePEM(data, o.Algorithms)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %w", paths[i], err)
		}
		keys = append(keys, found...)
	}
	return newSet(keys, nil)
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxJWKSBytes+1))
	if err == nil && len(data) > maxJWKSBytes {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxJWKSBytes)
	}
	return data, err
}
