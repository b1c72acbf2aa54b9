package anomaly

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/callers"
	"github.com/headgate-io/headgate/key"
)

// DefaultCallers is how many callers are remembered where nobody says.
const DefaultCallers = 1 << 16

const (
	// forgotten is after how long without a request a caller's usual rate may be forgotten, in nanoseconds.
	forgotten = 7 * 24 * 3600 * 1e9

	maxSubject = 256 // bytes, above which hashing a caller allocates
)

// Caller is who asks, as a Table knows them.
type Caller struct {
	key      key.Key
	verified bool
}

// Table is what callers did. It is safe for concurrent use; a nil one counts nothing. Its memory, about 170 bytes a
// caller, is set when somebody is counted first.
//
// A newcomer has the place of a caller that an account says nothing of any more: whose windows are over, and who has
// no usual rate yet or was not there for a week. So a flood of new addresses takes no score and no usual rate from
// anybody. Where there is no such place the newcomer is not counted, and has no score (Stats.Uncounted); but whoever
// has a verified credential takes the place of an address, the one that was not there for longest.
type Table struct {
	keys *key.Hasher
	all  *callers.Table[entry]

	settings  atomic.Pointer[Settings] // nil while nothing is counted
	uncounted atomic.Uint64
}

// entry is a caller. Times are in nanoseconds, of the clock of who asks.
type entry struct {
	key    key.Key // zero for a free entry
	width  int64   // of a window
	newest int64   // window, by its number since 1970

	cells [2]cell      // of the newest window and of the one before, by their numbers modulo 2
	seen  [2][4]uint64 // hashes of the endpoints that were asked for

	usual    int64 // requests in a window, in units
	windows  uint8 // that usual is of, Memory at most
	verified bool
}

// cell is what one window holds.
type cell struct{ sent, asked, fresh, unknown, disguised, answers, errors uint32 }

// New returns a Table for so many callers, 0 for DefaultCallers, that counts nothing before Use.
func New(most int) *Table {
	if most <= 0 {
		most = DefaultCallers
	}
	return &Table{keys: key.NewHasher(), all: callers.New[entry](most)}
}

// Use has callers counted by other settings, which are right (Settings.Check), from now on; nil has none counted. What
// was counted stays, unless the windows are of another length: then everybody is a newcomer.
func (t *Table) Use(s *Settings) { t.settings.Store(s) }

// Settings are those in use, nil while nothing is counted.
func (t *Table) Settings() *Settings {
	if t == nil {
		return nil
	}
	return t.settings.Load()
}

// Caller is how a principal is known here.
func (t *Table) Caller(who *identity.Principal) Caller {
	var room [maxSubject]byte
	return Caller{t.keys.Key(0, 0, who.AppendSubject(room[:0])), who.Kind != identity.Address}
}

// Request is what was asked.
type Request struct {
	Parts  int64 // how many requests it is, for a batch; 0 is one
	Denied bool  // a limit denied it: it counts for the rate, and says nothing else of its caller

	Endpoint  uint64 // names the endpoint, unless Unknown
	Unknown   bool   // it matches none
	Disguised bool   // it is spelled as no client needs to
}

// Asked counts a request.
func (t *Table) Asked(now int64, c Caller, r Request) {
	settings := t.Settings()
	if settings == nil {
		return
	}
	mu, set := t.all.LockMade(c.key)
	defer mu.Unlock()
	width := int64(settings.Window)
	e := find(set, c, now)
	if e == nil {
		t.uncounted.Add(1)
		return
	}
	if e.key != c.key {
		*e = entry{key: c.key, verified: c.verified, width: width, newest: now / width}
	}
	e.turn(now, width)
	own := &e.cells[e.newest&1]
	add(&own.sent, max(1, r.Parts))
	if r.Denied {
		return
	}
	add(&own.asked, 1)
	switch {
	case r.Unknown:
		add(&own.unknown, 1)
	case e.sees(r.Endpoint):
		add(&own.fresh, 1)
	}
	if r.Disguised {
		add(&own.disguised, 1)
	}
}

// Answered counts an answer of the API to a request that matched an endpoint, with a status of HTTP. One of 429 says
// that there were too many, which the rate says too, so it is no error.
func (t *Table) Answered(now int64, c Caller, status int) {
	settings := t.Settings()
	if settings == nil {
		return
	}
	mu, set := t.all.Lock(c.key)
	defer mu.Unlock()
	for i := range set {
		if e := &set[i]; e.key == c.key {
			e.turn(now, int64(settings.Window))
			own := &e.cells[e.newest&1]
			add(&own.answers, 1)
			if 400 <= status && status < 500 && status != 429 {
				add(&own.errors, 1)
			}
		}
	}
}

// Score is that of a caller at this moment.
func (t *Table) Score(now int64, c Caller) (score Score) {
	settings := t.Settings()
	if settings == nil {
		return score
	}
	mu, set := t.all.Lock(c.key)
	defer mu.Unlock()
	for i := range set {
		if e := &set[i]; e.key == c.key {
			e.turn(now, int64(settings.Window))
			n := e.counts(now)
			score = n.score(e.usual, int(e.windows), &settings.Weights)
		}
	}
	return score
}

// Account is what the score of a caller is made of at this moment; false if nothing is known of it.
func (t *Table) Account(now int64, c Caller) (a Account, known bool) {
	settings := t.Settings()
	if settings == nil {
		return a, false
	}
	mu, set := t.all.Lock(c.key)
	defer mu.Unlock()
	for i := range set {
		if e := &set[i]; e.key == c.key {
			e.turn(now, int64(settings.Window))
			n := e.counts(now)
			a = Account{
				Score: n.score(e.usual, int(e.windows), &settings.Weights),
				Sent:  requests(n.sent), Usual: requests(e.usual), Windows: int(e.windows),
				Asked: requests(n.asked), Fresh: requests(n.fresh), Unknown: requests(n.unknown),
				Disguised: requests(n.disguised), Answers: requests(n.answers), Errors: requests(n.errors),
			}
			return a, true
		}
	}
	return a, false
}

// Stats describes a Table.
type Stats struct {
	Window    time.Duration
	Callers   int         // room, once there is any
	Used      int         // callers that are remembered
	AtLeast   map[int]int // callers whose score is so much or more, for From of each of Settings.Tiers
	Uncounted uint64      // requests of callers for whom there was no place
}

// Stats looks at all callers, which takes milliseconds: for those who ask now and then.
func (t *Table) Stats(now int64) Stats {
	stats := Stats{Callers: t.all.Room(), Uncounted: t.uncounted.Load(), AtLeast: map[int]int{}}
	settings := t.Settings()
	if settings == nil {
		return stats
	}
	stats.Window = settings.Window
	for _, tier := range settings.Tiers {
		stats.AtLeast[int(tier.From)] = 0
	}
	for i := range callers.Shards {
		t.all.Visit(i, func(entries []entry) { stats.add(entries, now, settings) })
	}
	return stats
}

func (stats *Stats) add(entries []entry, now int64, settings *Settings) {
	for i := range entries {
		e := &entries[i]
		if e.key == (key.Key{}) {
			continue
		}
		stats.Used++
		e.turn(now, int64(settings.Window))
		n := e.counts(now)
		score := n.score(e.usual, int(e.windows), &settings.Weights)
		for _, tier := range settings.Tiers {
			if score.Total >= tier.From {
				stats.AtLeast[int(tier.From)]++
			}
		}
	}
}

// turn begins the window of now, if it has not begun.
func (e *entry) turn(now, width int64) {
	if e.width != width {
		*e = entry{key: e.key, verified: e.verified, width: width, newest: now / width}
		return
	}
	at := now / width
	switch gone := at - e.newest; {
	case gone == 0 || gone == -1: // a clock that stepped back by less than a window counts where it was
		return
	case gone < 0: // nobody knows how long the window lasted that is left: it says nothing
		e.cells, e.seen = [2]cell{}, [2][4]uint64{}
	case gone == 1:
		e.learn()
		e.cells[at&1], e.seen[at&1] = cell{}, [4]uint64{}
	default:
		e.learn()
		e.cells, e.seen = [2]cell{}, [2][4]uint64{}
	}
	e.newest = at
}

// learn has the newest window count for what is usual. Once something is, a window counts for twice that at most: who
// is suddenly ten times as quick is not usual for hours, and one window of a million requests allows nothing.
func (e *entry) learn() {
	n := int64(e.cells[e.newest&1].sent) * one
	if n == 0 {
		return
	}
	if e.windows >= Learning {
		n = min(n, 2*max(e.usual, LeastUsual*one))
	}
	if e.windows < Memory {
		e.windows++
	}
	e.usual += (n - e.usual) / int64(e.windows)
}

// counts are what counts at now, whose window has begun.
func (e *entry) counts(now int64) counts {
	off := max(0, now-e.newest*e.width)
	left := one * (e.width - min(off, e.width)) / e.width
	a, b := &e.cells[e.newest&1], &e.cells[1-e.newest&1]
	both := func(a, b uint32) int64 { return int64(a)*one + int64(b)*left }
	return counts{
		sent: both(a.sent, b.sent), asked: both(a.asked, b.asked), fresh: both(a.fresh, b.fresh),
		unknown: both(a.unknown, b.unknown), disguised: both(a.disguised, b.disguised),
		answers: both(a.answers, b.answers), errors: both(a.errors, b.errors),
	}
}

// sees notes that an endpoint was asked for, and reports whether that is new in this window and the one before. Of
// more endpoints than some hundred a window, some that are new are taken for others.
func (e *entry) sees(endpoint uint64) (fresh bool) {
	h := endpoint * 0x9e3779b97f4a7c15 >> 56 // endpoints are the operator's, so nobody chooses what collides
	word, bit := h/64, uint64(1)<<(h%64)
	fresh = (e.seen[0][word]|e.seen[1][word])&bit == 0
	e.seen[e.newest&1][word] |= bit
	return fresh
}

// over reports whether an account says nothing any more.
func (e *entry) over(now int64) bool {
	gone := now/e.width - e.newest
	if gone < -1 { // the clock stepped back
		gone = -gone
	}
	return gone >= 2 && (e.windows < Learning || gone*e.width >= forgotten)
}

// find returns the entry of a caller, or one that it may have; nil if there is none.
func find(set []entry, c Caller, now int64) *entry {
	var spare *entry
	rank := 0 // 3 for a free one, 2 for one that is over, 1 for that of an address
	for i := range set {
		e := &set[i]
		if e.key == c.key {
			return e
		}
		own := 0
		switch {
		case e.key == (key.Key{}):
			own = 3
		case e.over(now):
			own = 2
		case c.verified && !e.verified:
			own = 1
		}
		if own > rank || own > 0 && own == rank && own < 3 && e.newest*e.width < spare.newest*spare.width {
			spare, rank = e, own
		}
	}
	return spare
}

// requests turns units into requests.
func requests(units int64) float64 { return float64(units) / one }

// add adds to a count, which stays where it cannot grow.
func add(to *uint32, n int64) { *to = uint32(min(int64(*to)+min(n, math.MaxUint32), math.MaxUint32)) }
