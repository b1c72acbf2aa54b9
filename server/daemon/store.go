package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/bucket/lease"
	buckets "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/bucket/scoped"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/redis"
)

// shared is the store of the buckets that gateways share.
type shared struct {
	conf     config.Store
	log      *slog.Logger
	link     *redis.Link
	calls    *calls
	names    *key.Namer
	strict   scoped.Shared
	mended   func() uint64      // how many buckets were put in order
	lessor   *buckets.Authority // nil by CL.THROTTLE
	ledger   *buckets.Ledger    // nil by CL.THROTTLE
	members  population
	notices  *buckets.Notices // nil by CL.THROTTLE
	replayed *buckets.Store   // where what is good once is remembered; nil by CL.THROTTLE
	adaptive *adaptive.Table  // adapts sets it, before run
	scoped   *scoped.Store    // over makes it
	leases   *lease.Store     // over makes it, too, where there is a lessor
	reports  *report.Store    // over makes it, too, where there is a ledger
	now      func() int64     // the clock that decisions are made by; over is given it

	replaySecret []byte // names what is good once

	mu        sync.Mutex
	since     time.Time // guarded by mu; when the store began to answer, or ceased to
	fault     error     // guarded by mu; nil while it answers
	unseen    error     // guarded by mu; in a cluster, that no member tells of the others
	said      string    // guarded by mu; the last complaint about connecting
	strangers int       // guarded by mu; as last told
	watched   watched   // guarded by mu
}

// newShared makes the store of c, nil if it has none. A server that cannot be
// reached is no error: what happens then is for the rules to say. One that is
// not in order is.
func newShared(ctx context.Context, c config.Config, log *slog.Logger) (*shared, error) {
	if !c.Store.On() {
		return nil, nil
	}
	s := &shared{conf: c.Store, log: logger(log), since: time.Now(), fault: errors.New("it was never asked")}
	secret, err := StoreSecret(c)
	if err != nil {
		return nil, err
	}
	if s.names, err = key.NewNamer(secret); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	own := hmac.New(sha256.New, secret) // nothing that is named under it means something elsewhere
	own.Write([]byte("headgate: what is good once"))
	s.replaySecret = own.Sum(nil)
	o, err := StoreOptions(c.Store)
	if err != nil {
		return nil, err
	}
	if s.link, err = redis.NewLink(o); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := s.onServer(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := s.connect(ctx); err != nil {
		s.link.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	return s, nil
}

// population is who shares the store. buckets.Members is, and presumed.
type population interface {
	Replicas() int
	Count() int
	Strangers() int
	Beat(ctx context.Context) error
	Run(ctx context.Context, heard func(error))
}

// onServer makes what is kept on the server.
func (s *shared) onServer() error {
	s.calls = &calls{to: s.link}
	if s.conf.Throttles() {
		return s.byThrottle()
	}
	strict, err := buckets.New(buckets.Options{
		Server: s.calls, Prefix: s.conf.Prefix, Cluster: s.conf.Cluster,
		Now: func() int64 { return s.now() }, // over is given it, before any decision
	})
	if err != nil {
		return err
	}
	s.strict, s.mended, s.replayed = strict, strict.Mended, strict
	if s.lessor, err = buckets.NewAuthority(strict, buckets.AuthorityOptions{TTL: s.conf.LeaseTTL}); err != nil {
		return err
	}
	if s.ledger, err = buckets.NewLedger(strict,
		buckets.LedgerOptions{Keep: max(time.Second, 4*s.conf.SyncInterval)}); err != nil {
		return err
	}
	if s.notices, err = buckets.NewNotices(strict, buckets.NoticesOptions{
		TTL: noticed, Longest: adaptive.MaxTold(config.MaxAdaptive),
	}); err != nil {
		return err
	}
	s.members, err = buckets.NewMembers(strict, buckets.MembersOptions{
		TTL: s.conf.MemberTTL, Presumed: s.conf.Replicas,
		// The name of a bucket that no rule has tells one secret from another, and nothing of either.
		Naming: s.names.Name(0, "members", nil).Hi,
	})
	return err
}

// startPatience is how long the start waits for the server.
const startPatience = 5 * time.Second

// connect is the first attempt to connect.
func (s *shared) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err := s.link.Connect(ctx)
	if err != nil && !redis.Away(err) {
		return err
	}
	if beat := s.members.Beat(ctx); err == nil {
		err = beat
	}
	s.tried(err)
	return nil
}

// run keeps the connection and tells the others of this replica until ctx
// ends.
func (s *shared) run(ctx context.Context) {
	if s == nil {
		return
	}
	s.link.Run(ctx, s.tried)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { s.link.Follow(ctx, s.looked) })
	following.Go(func() { s.try(ctx) })
	following.Go(func() { s.agree(ctx) })
	following.Go(func() { s.link.Watch(ctx, s.saw) })
	s.members.Run(ctx, s.heard)
}

func (s *shared) close() {
	if s == nil {
		return
	}
	if s.reports != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		s.reports.Flush(ctx)
		cancel()
	}
	if s.scoped != nil {
		s.scoped.Leave()
	}
	s.link.Close()
}

// lastWords is how long a gateway that ends tries to tell the store what it has
// admitted.
const lastWords = 500 * time.Millisecond

// tried notes whether the server could be connected to. One complaint is said
// once.
func (s *shared) tried(err error) {
	if err != nil {
		s.mu.Lock()
		known := s.said == err.Error()
		s.said = err.Error()
		s.mu.Unlock()
		if !known {
			s.log.Error(
				"the store of shared buckets cannot be used: each rule does what it says for that, until it can",
				"error", err)
		}
	}
	s.note(err)
}

// tryEvery is how often it is looked whether a lost server is due for a try.
const tryEvery = 50 * time.Millisecond

// try tries servers that are lost, until ctx ends: a gateway that is not ready
// for their sake gets no requests that do.
func (s *shared) try(ctx context.Context) {
	every(ctx, tryEvery, func() { s.scoped.Try(ctx, s.now(), s.link.Try) })
}

// heard notes what the server said to a word about this replica.
func (s *shared) heard(err error) {
	s.note(err)
	if err != nil {
		return
	}
	now := s.members.Strangers()
	s.mu.Lock()
	before := s.strangers
	s.strangers = now
	s.mu.Unlock()
	switch {
	case now > 0 && before == 0:
		s.log.Error("other gateways on the store name buckets under another secret, so every limit is counted "+
			"apart there: want one store.secret_file for all", "gateways", now)
	case now == 0 && before > 0:
		s.log.Info("all gateways on the store name buckets under one secret")
	}
}

// note keeps since when the store answers, or does not.
func (s *shared) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (err == nil) != (s.fault == nil) {
		before := time.Since(s.since)
		s.since = time.Now()
		if err == nil {
			s.log.Info("the store of shared buckets answers", "after", before.Round(time.Millisecond))
		} else {
			s.log.Warn("the store of shared buckets does not answer", "error", err)
		}
	}
	s.fault = err
}

// looked notes what members of a cluster tell of it.
func (s *shared) looked(retired []int, err error) {
	for _, server := range retired {
		s.scoped.Retire(server)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = err
}

// away reports whether nothing of the store can be used. Of a cluster it is
// enough that one member can: without the others, some of the requests are
// decided as if it were lost, but if no gateway were ready, all were refused.
func (s *shared) away() bool {
	now := s.scoped.Status()
	if !s.conf.Cluster || !s.link.Connected() {
		return s.fault != nil || now.Lost
	}
	there, lost := 0, 0
	for _, name := range s.link.Servers() {
		if name != "" {
			there++
		}
	}
	for _, one := range now.Servers {
		if one.Lost {
			lost++
		}
	}
	return s.unseen != nil || lost >= there
}

// ready says why the process should not be sent requests for the store's sake,
// or nil.
func (s *shared) ready() error {
	if s == nil || !s.conf.ReadyFollows {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.away() {
		return nil
	}
	since := s.since
	if s.fault == nil { // it answers those who have more patience than requests
		since = s.wall(s.scoped.Status().Since)
	}
	// What it said has addresses, which are for the log.
	return fmt.Errorf("the store of shared buckets does not answer in time since %s", since.UTC().Format(time.RFC3339))
}

// StoreSecret is the secret under which a configuration names shared buckets.
func StoreSecret(c config.Config) (database.Secret, error) {
	if c.Store.SecretFile == "" {
		secrets, err := database.LoadSecrets(c.SecretFile, nil)
		return secrets.Current, err
	}
	return oneSecret("store.secret_file", c.Store.SecretFile)
}

// oneSecret reads a secret that all gateways share from the file of a setting.
func oneSecret(setting, path string) (database.Secret, error) {
	secrets, err := database.ReadSecrets(path, nil)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil,
			fmt.Errorf("%s is %q, which does not exist, want a file that is the same for all gateways, such as "+
				"\"openssl rand -hex 32\" makes once", setting, path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", setting, err)
	case secrets.Previous != nil:
		return nil, fmt.Errorf("%s is %q, which holds two secrets, want one: a bucket has one name", setting, path)
	}
	return secrets.Current, nil
}

// StoreOptions is how to reach the server of a store. It reads the files that
// c names.
func StoreOptions(c config.Store) (redis.Options, error) {
	o := redis.Options{
		Addresses: c.Redis, Cluster: c.Cluster, Sentinel: c.Sentinel, Database: c.Database, Username: c.Username,
		Prefix:    c.Prefix,
		Throttles: c.Throttles(),
		// A connection that was given up sooner would fail the requests that wait
		// for it, though the server may answer within their deadline.
		ConnectTimeout: max(time.Second, c.Deadline),
	}
	if c.PasswordFile != "" {
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return o, fmt.Errorf("store.password_file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if o.Password = strings.TrimSuffix(line, "\r"); o.Password == "" {
			return o, fmt.Errorf("store.password_file: the first line of %s is empty, want the password",
				c.PasswordFile)
		}
	}
	var err error
	o.TLS, err = storeTLS(c.TLS)
	return o, err
}

func storeTLS(t config.StoreTLS) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("store.tls.ca_file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("store.tls.ca_file: %s has no certificate, want some in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("store.tls.cert_file: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
