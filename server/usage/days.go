package usage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/key"
)

const (
	// KeptDays is for how many days, the present one among them, Days remembers callers.
	KeptDays = 31

	// MaxRows is how many callers and days are counted apart, in about 250 bytes each. What there is
	// no room for is counted together, by day.
	MaxRows = 100_000
)

// Others is the kind of the row of all callers of a day that there was no room for.
const Others = "others"

// Row is what one caller did on one day.
type Row struct {
	Day     time.Time // its beginning, in UTC
	Hash    string    // names the caller while the process runs
	Kind    string    // api_key, token …; or Others
	ID      string    // of the key, subject, certificate or user
	Project string

	Admitted, Denied uint64 // requests
	Tokens           uint64 // what those that were admitted cost
}

// Days counts what verified callers did, by the day of UTC: for people who charge for it, or want to
// know who grows. It is exact since it was made, and safe for concurrent use.
type Days struct {
	keys   *key.Hasher
	clock  *steady.Clock
	caller func(*identity.Principal) string
	most   int // rows of a shard
	shards [shards]days

	// What follows is changed by Load alone, before anything is counted.
	since time.Time
	gaps  []Gap
}

// Gap is a time of which something may be missing, as a process was killed that had not written it down.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

type days struct {
	mu     sync.Mutex // guards everything below
	rows   map[callerDay]*Row
	others map[int64]*Row
	latest int64 // the newest day that was counted
}

type callerDay struct {
	day    int64 // since 1970
	caller key.Key
}

// NewDays returns empty Days, which name callers by a hash. The clock is time.Now if it is nil.
func NewDays(caller func(*identity.Principal) string, now func() time.Time) *Days {
	d := &Days{keys: key.NewHasher(), clock: steady.New(now), caller: caller, most: MaxRows / shards}
	d.since = time.Unix(0, d.clock.Wall(d.clock.Now())).UTC()
	for i := range d.shards {
		d.shards[i].rows, d.shards[i].others = map[callerDay]*Row{}, map[int64]*Row{}
	}
	return d
}

// Since is when counting began.
func (d *Days) Since() time.Time { return d.since }

// Gaps are the times since then of which something may be missing.
func (d *Days) Gaps() []Gap { return d.gaps }

// Observe counts one decision, for each of the principals that it charged. It fits
// headgate.Options.Observe.
func (d *Days) Observe(r *headgate.Request, decided *headgate.Decision) {
	underWay := r != nil && r.UnderWay // tokens, and no other request
	if decided.Principal.Kind == identity.Address || underWay && !decided.Allowed {
		return
	}
	day := d.today()
	d.observe(day, &decided.Principal, decided, underWay)
	for i := range decided.Others {
		d.observe(day, &decided.Others[i], decided, underWay)
	}
}

// Abandoned takes back what Observe has counted of an admitted request whose caller left before its turn, at a time by
// the clock of Decision.At. It fits headgate.Options.Abandoned.
func (d *Days) Abandoned(r *headgate.Request, decided *headgate.Decision, at int64) {
	if decided.Principal.Kind == identity.Address {
		return
	}
	day := d.clock.Wall(d.clock.Now()-max(0, at-decided.At)) / aDay
	underWay := r != nil && r.UnderWay
	d.takeBack(day, &decided.Principal, decided, underWay)
	for i := range decided.Others {
		d.takeBack(day, &decided.Others[i], decided, underWay)
	}
}

// takeBack takes a request back from the row of its caller, or of the others among whom it was counted: of its day, or
// of the next one, if midnight came between the decision and its count.
func (d *Days) takeBack(day int64, who *identity.Principal, decided *headgate.Decision, underWay bool) {
	k := d.key(day, named(who))
	s := &d.shards[k.caller.Hi%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; k.day <= day+1; k.day++ {
		r := cmp.Or(s.rows[k], s.others[k.day])
		if r == nil || r.Admitted == 0 {
			continue
		}
		if !underWay {
			r.Admitted--
		}
		r.Tokens -= min(r.Tokens, uint64(max(0, decided.Cost)))
		return
	}
}

// key is where the row of a caller is, who is named.
func (d *Days) key(day int64, who *identity.Principal) callerDay {
	var room [maxSubject]byte
	return callerDay{day, d.keys.Key(0, 0, who.AppendSubject(room[:0]))}
}

const aDay = int64(24 * time.Hour)

// mostName is how many bytes of a caller's name are kept, and of its project's. Of a longer one the beginning is, and a
// hash of it.
const mostName = 256

func named(who *identity.Principal) *identity.Principal {
	if kept(who.ID) && kept(who.Project) {
		return who
	}
	return &identity.Principal{Kind: who.Kind, ID: shortened(who.ID), Project: shortened(who.Project)}
}

func kept(name string) bool { return len(name) <= mostName && utf8.ValidString(name) }

func shortened(name string) string {
	if kept(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "…" + hex.EncodeToString(sum[:16])
	return strings.ToValidUTF8(name[:min(len(name), mostName-len(end))], "") + end
}

func (d *Days) today() int64 { return d.clock.Wall(d.clock.Now()) / aDay }

func (d *Days) observe(day int64, who *identity.Principal, decided *headgate.Decision, underWay bool) {
	who = named(who)
	k := d.key(day, who)
	s := &d.shards[k.caller.Hi%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[k]
	if r == nil {
		r = d.enterLocked(s, k, who)
	}
	if !decided.Allowed {
		r.Denied++
		return
	}
	if !underWay {
		r.Admitted++
	}
	r.Tokens += uint64(max(0, decided.Cost))
}

// enterLocked returns the row of a caller that has none yet.
func (d *Days) enterLocked(s *days, k callerDay, who *identity.Principal) *Row {
	if k.day > s.latest {
		s.latest = k.day
		maps.DeleteFunc(s.rows, func(old callerDay, _ *Row) bool { return old.day <= k.day-KeptDays })
		maps.DeleteFunc(s.others, func(old int64, _ *Row) bool { return old <= k.day-KeptDays })
	}
	at := time.Unix(0, k.day*aDay).UTC()
	if len(s.rows) < d.most {
		r := &Row{Day: at, Hash: d.caller(who), Kind: who.Kind.String(), ID: strings.Clone(who.ID),
			Project: strings.Clone(who.Project)}
		s.rows[k] = r
		return r
	}
	r := s.others[k.day]
	if r == nil {
		r = &Row{Day: at, Kind: Others}
		s.others[k.day] = r
	}
	return r
}

// Rows are those from one day to another, both included, the oldest first and of one day the callers
// who asked most.
func (d *Days) Rows(from, to time.Time) []Row {
	var all []Row
	others := map[time.Time]Row{}
	oldest := time.Unix(0, (d.today()-KeptDays+1)*aDay)
	within := func(r *Row) bool { return !r.Day.Before(from) && !r.Day.After(to) && !r.Day.Before(oldest) }
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		for _, r := range s.rows {
			if within(r) {
				all = append(all, *r)
			}
		}
		for _, r := range s.others {
			if within(r) {
				sum := others[r.Day]
				sum.Day, sum.Kind = r.Day, Others
				sum.Admitted, sum.Denied, sum.Tokens = sum.Admitted+r.Admitted, sum.Denied+r.Denied, sum.Tokens+r.Tokens
				others[r.Day] = sum
			}
		}
		s.mu.Unlock()
	}
	for _, r := range others {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(b.Admitted+b.Denied, a.Admitted+a.Denied),
			cmp.Compare(a.Hash, b.Hash))
	})
	return all
}

// ParseDay reads a day as 2026-11-25.
func ParseDay(text string) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return at, fmt.Errorf("is %.40q, want a day of UTC such as 2026-11-25", text)
	}
	return at, nil
}
