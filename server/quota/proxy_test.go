package quota_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
	"github.com/headgate-io/headgate/simulate"
)

// service is a Headgate with a clock of its own.
type service struct {
	world    *simulate.World
	book     *quota.Book
	store    bucket.Store
	limits   *descriptor.Limits
	ttl      time.Duration
	frozen   bool
	backlog  []func() // what came while it was
	replicas int
}

const epoch = int64(1_700_000_000_000_000_000)

func (s *service) now() int64 { return epoch + int64(s.world.Now()) }

// read reads limits from a text.
func read(t testing.TB, text string) *descriptor.Limits {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := descriptor.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

func newStore(t testing.TB) *memory.Store {
	t.Helper()
	store, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	store.Learn(0, 0)
	return store
}

var hasher = key.NewHasher()

func newService(t testing.TB, w *simulate.World, limits string, change ...func(*quota.Options)) *service {
	t.Helper()
	s := &service{world: w, limits: read(t, limits), ttl: 5 * time.Second, store: newStore(t), replicas: 1}
	s.begin(t, change...)
	return s
}

// begin begins a process, which knows nothing but what is in the store.
func (s *service) begin(t testing.TB, change ...func(*quota.Options)) {
	t.Helper()
	o := quota.Options{
		Limits: func() *descriptor.Limits { return s.limits }, Buckets: s.store, Now: s.now, TTL: s.ttl,
		Replicas: func() int { return s.replicas },
		Name: func(domain string, subject []byte) (key.Key, uint16) {
			return hasher.Key(0, 0, append([]byte(domain+"\x00"), subject...)), 0
		},
	}
	for _, c := range change {
		c(&o)
	}
	book, err := quota.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.book = book
}

// proxy does what Envoy 1.40 does with one bucket, by its filter rate_limit_quota: read in its
// code, and seen in eval/doors.
type proxy struct {
	world    *simulate.World
	service  *service
	id       []descriptor.Entry
	interval time.Duration
	admitted func()

	// How long messages are on their way, each direction in order.
	delay    func() time.Duration
	to, from time.Duration // when the last one arrives

	known           bool       // the bucket is
	kind            quota.Kind // Nothing: the proxy's own behaviour, which denies
	open            bool       // or, if this is set, allows
	size, number    uint32
	tokens          uint32
	expires         uint64 // counts timers: the last one counts
	allowed, denied uint64

	stream  *stream // nil if there is none
	dead    bool
	ticking bool
	reports int
}

// stream is one between a proxy and a service.
type stream struct {
	borrower *quota.Borrower
	book     *quota.Book
	broken   bool // the proxy knows
	closed   bool // the service does
}

// request is one that a proxy decides about.
func (p *proxy) request() bool {
	if p.dead {
		return false
	}
	ok := false
	switch p.kind {
	case quota.Tokens:
		if ok = p.tokens > 0; ok {
			p.tokens--
		}
	case quota.AllowAll:
		ok = true
	case quota.Nothing:
		ok = p.open
	}
	if ok {
		p.allowed++
		p.admitted()
	} else {
		p.denied++
	}
	if !p.known {
		p.known = true
		p.report()
	}
	if !p.ticking {
		p.ticking = true
		p.tick()
	}
	return ok
}

// tick reports once an interval.
func (p *proxy) tick() {
	p.world.After(p.interval, func() {
		if p.dead {
			return
		}
		if p.known {
			p.report()
		}
		p.tick()
	})
}

// report sends what was counted, over a new stream if the last one is broken.
func (p *proxy) report() {
	u := quota.Usage{Bucket: p.id, Allowed: p.allowed, Denied: p.denied}
	p.allowed, p.denied = 0, 0
	p.reports++
	if p.stream == nil || p.stream.broken {
		p.stream = &stream{}
	}
	s := p.stream
	p.to = max(p.to, p.world.Now()+p.delay())
	p.world.After(p.to-p.world.Now(), func() {
		if !s.broken {
			p.service.hear(p, s, u)
		}
	})
}

// hear is a report that arrives.
func (s *service) hear(p *proxy, on *stream, u quota.Usage) {
	if s.frozen {
		s.backlog = append(s.backlog, func() { s.hear(p, on, u) })
		return
	}
	if on.broken {
		return
	}
	if on.borrower == nil {
		b, err := s.book.Open("d")
		if err != nil {
			on.broken = true
			return
		}
		on.borrower, on.book = b, s.book
		s.turns(p, on)
	}
	if on.book != s.book { // of a process that is gone
		on.broken = true
		return
	}
	s.answer(p, on, on.borrower.Report(context, u))
}

// turns looks once a turn at what a proxy has, until its stream has ended.
func (s *service) turns(p *proxy, on *stream) {
	s.world.After(quota.Turn, func() {
		if on.closed || on.book != s.book {
			return
		}
		if !s.frozen {
			on.borrower.Turns(context, func(_ []descriptor.Entry, a quota.Assignment) { s.answer(p, on, a) })
		}
		s.turns(p, on)
	})
}

// answer sends an assignment.
func (s *service) answer(p *proxy, on *stream, a quota.Assignment) {
	if a.Kind == quota.Nothing {
		return
	}
	p.from = max(p.from, p.world.Now()+p.delay())
	p.world.After(p.from-p.world.Now(), func() {
		if !p.dead && !on.broken {
			p.assign(a)
		}
	})
}

// assign obeys an assignment.
func (p *proxy) assign(a quota.Assignment) {
	if !p.known {
		return
	}
	if a.Kind == quota.Abandon {
		p.known, p.kind, p.allowed, p.denied = false, quota.Nothing, 0, 0
		p.expires++
		return
	}
	if a.Kind == quota.Tokens && !(p.kind == quota.Tokens && p.size == a.Tokens && p.number == a.Number) {
		p.tokens = a.Tokens
	}
	p.kind, p.size, p.number = a.Kind, a.Tokens, a.Number
	p.expires++
	mine := p.expires
	p.world.After(a.TTL.Truncate(time.Second), func() {
		if p.expires == mine {
			p.kind = quota.Nothing
		}
	})
}

// break ends the stream, and what is on its way to the service is lost. When the service hears of
// it, it forgets the borrower.
func (p *proxy) cut(heard time.Duration) {
	s := p.stream
	if s == nil || s.broken {
		return
	}
	s.broken = true
	p.world.After(heard, func() {
		if s.closed = true; s.borrower != nil {
			s.borrower.Close()
		}
	})
}
