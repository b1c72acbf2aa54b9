package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bucket"
)

// Evaler runs scripts on the server that holds the buckets, or on the one of several that holds the
// keys named. It must be safe for concurrent use.
type Evaler interface {
	// Eval sends the command EVALSHA or EVAL with a script, which is the SHA-1 in hexadecimal
	// digits of a source or a source, the keys and the arguments; all but the command may hold any
	// bytes. It reports the answer: an int64, a string, or a []any of such. What the server answers
	// as an error is an error whose text begins with the server's. It returns when ctx is done, and
	// never sends a command twice.
	Eval(ctx context.Context, command, script string, keys, args []string) (any, error)
}

// Options configures a Store. Server is required.
type Options struct {
	Server Evaler

	// Prefix begins the names of all buckets: those who share buckets have the same. Letters,
	// digits and any of -_.: up to 16. Default "hg".
	Prefix string

	// Cluster says that Server is a cluster, where one script reaches the buckets of one tag only.
	// A decision over several tags then takes a script each, at the same time, and gives back what
	// it took if one of them denies. Others may be denied meanwhile by what is given back; nobody
	// is admitted who would not be. The zero value is for one server and its replicas.
	Cluster bool

	// CallersClock decides at the times that callers pass, and lets no bucket expire. It is for
	// tests and simulations: where callers' clocks differ, whoever lags behind sees less drained
	// than the others wrote. The zero value ignores those times, and asks the server.
	CallersClock bool

	// Now is the clock that bucket.Take.Since is a time of, in Unix nanoseconds: that of decisions
	// (headgate.Options.Now). It may be set to any time, and must not step. The default begins at
	// the wall clock's time and goes on evenly.
	Now func() int64
}

// Store is buckets that are kept on a server. It is safe for concurrent use, and holds no state but
// what it has computed of shapes and knows of clocks.
type Store struct {
	server  Evaler
	prefix  string
	cluster bool
	callers bool
	now     func() int64
	shapes  shapes
	clocks  clocks
	own     [8]byte // begins the names of places that this store takes, and no other's
	mended  atomic.Uint64
}

// New makes a Store, or says everything that is wrong with o. It does not talk to the server.
func New(o Options) (*Store, error) {
	var errs []error
	if o.Server == nil {
		errs = append(errs, errors.New("Server is nil, want one"))
	}
	if err := checkPrefix(o.Prefix); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("redis bucket options: %w", errors.Join(errs...))
	}
	s := &Store{
		server:  o.Server,
		prefix:  o.Prefix,
		cluster: o.Cluster,
		callers: o.CallersClock,
		now:     o.Now,
		clocks:  newClocks(o.Cluster),
	}
	_, _ = rand.Read(s.own[:]) // never fails: crypto/rand
	if s.now == nil {
		start := time.Now()
		s.now = func() int64 { return start.UnixNano() + int64(time.Since(start)) }
	}
	if s.prefix == "" {
		s.prefix = defaultPrefix
	}
	return s, nil
}

// script is a source, and its name on the server.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) // the server's choice, and a name only
	return script{source, hex.EncodeToString(sum[:])}
}

var (
	//go:embed take.lua
	takeSource string
	//go:embed one.lua
	oneSource string
	//go:embed slow.lua
	slowSource string
	//go:embed held.lua
	heldSource string
	//go:embed shift.lua
	shiftSource string
	//go:embed grant.lua
	grantSource string
	//go:embed report.lua
	reportSource string
	//go:embed members.lua
	membersSource string
	//go:embed notices.lua
	noticesSource string
	//go:embed mend.lua
	mendSource string
	//go:embed place.lua
	placeSource string
	//go:embed places.lua
	placesSource string
	//go:embed replays.lua
	replaysSource string

	takeScript, placesScript   = newScript(slowSource + placeSource + takeSource), newScript(placeSource + placesSource)
	oneScript, shiftScript     = newScript(oneSource), newScript(slowSource + heldSource + shiftSource)
	grantScript, membersScript = newScript(slowSource + heldSource + grantSource), newScript(membersSource)
	noticesScript              = newScript(noticesSource)
	reportScript               = newScript(slowSource + heldSource + reportSource)
	replaysScript              = newScript(replaysSource)
	mendScript                 = newScript(slowSource + heldSource + mendSource)
)

// runDated is run of a script that answers the time first, and tells how that is to be compared with Options.Now.
func (s *Store) runDated(ctx context.Context, tag uint16, what script, keys, args []string) ([]any, dates, error) {
	sent := s.moment(0)
	answer, err := s.run(ctx, what, keys, args)
	if err != nil || s.callers {
		return answer, dates{}, err
	}
	at, ok := number(answer[0])
	if !ok {
		return nil, dates{}, unreadable(answer)
	}
	d := s.dates(at*1000, trip{sent, s.now()})
	s.clocks.observe(tag, d)
	return answer, d, nil
}

// run runs a script. A server that does not know it, because it is new, was restarted or told to forget, learns it.
func (s *Store) run(ctx context.Context, what script, keys, args []string) ([]any, error) {
	answer, err := s.server.Eval(ctx, "EVALSHA", what.sha, keys, args)
	if err != nil && Unlearnt(err) {
		answer, err = s.server.Eval(ctx, "EVAL", what.source, keys, args)
	}
	if err != nil {
		return nil, fault(err)
	}
	if list, ok := answer.([]any); ok && len(list) >= 2 {
		return list, nil
	}
	return nil, unreadable(answer)
}

// Unlearnt reports whether an error of an Evaler is the answer of a server that does not know a
// script yet, and is told it next. That is no failure.
func Unlearnt(err error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// unreadable is an answer that none of our scripts gives. What it is may hold anything, so it is not told.
func unreadable(answer any) error {
	return &Error{NoScripts, fmt.Errorf("the script answered a %T that it never answers", answer)}
}

// TryConsume takes from all the buckets named, or from none, and writes into outs[i] what became of
// takes[i]. It reports whether all takes that are not shadows were allowed. A denied decision
// changes nothing, but see Options.Cluster.
//
// The time is the server's, and now counts only under Options.CallersClock. Takes of one bucket are
// added up, as in bucket/memory. An error means that nothing was decided: an *Error if the server
// could not answer, else outs is too short, one bucket was named with two shapes, or a limit is
// none that the store can keep (see Coarsen).
func (s *Store) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	allowed, _, err := s.decide(ctx, now, takes, outs, true)
	return allowed, err
}

// Attempt is TryConsume of what may have to be given back, because somebody else denies the
// request. If it was allowed, undo does so, as far as it has not drained on the server's clock by
// then: so nothing is ever granted by it, however late it arrives.
func (s *Store) Attempt(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (allowed bool,
	undo func(ctx context.Context, now int64), err error) {
	allowed, claims, err := s.decide(ctx, now, takes, outs, true)
	if !allowed || err != nil {
		return false, nil, err
	}
	return true, func(ctx context.Context, now int64) {
		for _, group := range byTag(claims) {
			s.giveBack(ctx, now, group)
		}
	}, nil
}

// Peek answers what TryConsume would, and changes nothing.
func (s *Store) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	allowed, _, err := s.decide(ctx, now, takes, outs, false)
	return allowed, err
}

func (s *Store) decide(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome, charge bool) (bool,
	[]*claim, error) {
	if len(outs) < len(takes) {
		return false, nil, fmt.Errorf("there is room for %d outcomes, want %d", len(outs), len(takes))
	}
	if len(takes) == 0 {
		return true, nil, nil
	}
	claims, of, err := s.merge(takes)
	if err != nil {
		return false, nil, err
	}
	allowed, err := s.ask(ctx, now, claims, charge)
	if err != nil {
		return false, nil, err
	}
	for i := range takes {
		claims[of[i]].report(&outs[i], takes[i].Shadow, allowed)
	}
	return allowed, claims, nil
}

// ask decides all claims: together where that can be, else apart.
func (s *Store) ask(ctx context.Context, now int64, claims []*claim, charge bool) (bool, error) {
	if s.cluster {
		if groups := byTag(claims); len(groups) > 1 {
			return s.apart(ctx, now, groups, charge)
		}
	}
	return s.together(ctx, now, claims, charge)
}

// attempts is how often one decision reads a bucket that was left under another limit and finds it
// changed when it wants to put it back. Whoever changed it has converted it in most cases, so the
// second attempt needs nothing put back.
const attempts = 16

var errRestless = errors.New(
	"buckets were changed under other limits again and again: replicas disagree about the rules")

// together decides claims by one script, which must reach all of them.
func (s *Store) together(ctx context.Context, now int64, claims []*claim, charge bool) (bool, error) {
	if charge && len(claims) == 1 && s.plain(claims[0], now) {
		if allowed, changed, err := s.one(ctx, now, claims[0]); !changed {
			return allowed, err
		}
	}
	keys, args := make([]string, len(claims)), make([]string, len(claims), 2*len(claims))
	for i, c := range claims {
		keys[i] = c.key
	}
	for n := range attempts {
		for i, c := range claims {
			args[i] = s.wants(c, now, charge)
		}
		answer, dates, err := s.runDated(ctx, claims[0].take.Tag, takeScript, keys, args)
		if err != nil {
			return false, err
		}
		if answer[1] == int64(-1) {
			if args, err = s.restated(ctx, answer, dates, claims, args, charge && n == 0); err != nil {
				return false, err
			}
			continue
		}
		return read(answer, claims)
	}
	return false, &Error{Busy, errRestless}
}

// one decides a plain claim, unless its bucket was left under another limit.
func (s *Store) one(ctx context.Context, now int64, c *claim) (allowed, changed bool, err error) {
	var room [96]byte
	arg := append(appendDoubles(room[:0], s.time(now), c.units, c.shape.Capacity-c.units, c.shape.Drain),
		c.shape.name...)
	c.texts = [2]string{c.key, string(arg)}
	answer, _, err := s.runDated(ctx, c.take.Tag, oneScript, c.texts[:1], c.texts[1:])
	if err != nil {
		return false, false, err
	}
	ok := false
	switch debt := answer[1]; {
	case debt == int64(-1):
		return false, true, nil
	case debt == int64(-2) && len(answer) == 4:
		ok = c.read(answer[0], answer[2], answer[3])
	case len(answer) == 2:
		allowed, ok = true, c.read(answer[0], debt, answer[0])
	case len(answer) == 3:
		allowed, ok = true, c.read(answer[0], debt, answer[2])
	}
	if !ok {
		return false, false, unreadable(answer)
	}
	c.allowed, c.shadowAllowed = allowed, true
	return allowed, false, nil
}

// read takes apart what the script answers about claims.
func read(answer []any, claims []*claim) (allowed bool, err error) {
	if len(answer) != 2+3*len(claims) {
		return false, unreadable(answer)
	}
	for i, c := range claims {
		of := answer[2+3*i:]
		fits, ok := number(of[0])
		if !ok || !c.read(answer[0], of[1], of[2]) {
			return false, unreadable(answer)
		}
		c.allowed, c.shadowAllowed = fits&1 != 0, fits&2 != 0
	}
	return answer[1] == int64(1), nil
}

// number is a whole number that the script answered.
func number(v any) (int64, bool) {
	n, ok := v.(int64)
	return n, ok && n >= 0 && n < exact
}
