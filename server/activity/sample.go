package activity

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
)

// maxTemplates is how many endpoints the sample tells apart. A request for another one is not in it.
const maxTemplates = 1 << 14

// maxThinning is the smallest part of the callers that is looked at: one in 2^maxThinning.
const maxThinning = 20

// sample holds requests of the last hour, of those callers whose hash begins with so many zeros. At first that is
// everybody. When there is no room for an hour of them, one more zero is asked for, which halves the callers, and what
// the others did is forgotten: so what is there is all that some callers did, drawn without regard to how much that
// is. When less than a quarter of the room was needed for an hour, one zero fewer is asked for; whom that lets in is
// shown when he has been there for an hour.
//
//	lines    a ring: at most one for each second, caller and endpoint
//	callers  by hash; those of the lines
type sample struct {
	thinning atomic.Int64 // zeros that are asked for

	mu        sync.Mutex // guards everything below
	start     int64
	lines     []line
	first     int // of the lines in use
	used      int
	callers   map[key.Key]*sampled
	templates map[endpoint.Template]uint16
	listed    []endpoint.Template
	changed   int64 // when it was last made larger or smaller
	before    int64 // zeros that were asked for until then, if those were more
}

// line is how often one caller asked for one endpoint within a second, and when in it that began
// and ended: ten requests at once are not ten over a second.
type line struct {
	who      *sampled
	second   int32 // since the start
	template uint16
	count    uint16
	begin    uint16 // milliseconds into the second
	end      uint16
}

// sampled is a caller of the sample.
type sampled struct {
	key   key.Key
	who   identity.Principal
	last  int // its newest line
	lines int // that it has
}

func (s *sample) init(most int, now int64) {
	s.start, s.changed = now, now
	s.lines = make([]line, most)
	s.callers, s.templates = map[key.Key]*sampled{}, map[endpoint.Template]uint16{}
}

// has reports whether a caller is in the sample.
func (s *sample) has(k key.Key) bool { return drawn(k, s.thinning.Load()) }

func drawn(k key.Key, thinning int64) bool { return k.Lo>>(64-uint(thinning)) == 0 }

// note adds a request.
func (s *sample) note(k key.Key, now int64, d *headgate.Decision) {
	second := int32(min((now-s.start)/int64(time.Second), math.MaxInt32))
	millisecond := uint16((now - s.start) % int64(time.Second) / int64(time.Millisecond))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(k) {
		return // it was, when the request was asked about
	}
	template, ok := s.number(d.Template())
	if !ok {
		return
	}
	c := s.callers[k]
	if c == nil {
		c = &sampled{key: k, who: kept(&d.Principal)}
		s.callers[k] = c
	}
	if l := &s.lines[c.last]; c.lines > 0 && l.who == c && l.second >= second && l.template == template &&
		l.count < math.MaxUint16 {
		l.count++
		if l.second == second {
			l.end = max(l.end, millisecond)
		}
		return
	}
	s.makeRoom(now, second)
	if !s.has(k) {
		return
	}
	at := (s.first + s.used) % len(s.lines)
	s.lines[at] = line{who: c, second: second, template: template, count: 1, begin: millisecond, end: millisecond}
	s.used++
	c.last = at
	c.lines++
	s.callers[k] = c // makeRoom may have forgotten it
}

// number names a template.
func (s *sample) number(t endpoint.Template) (uint16, bool) {
	n, ok := s.templates[t]
	if !ok && len(s.listed) < maxTemplates {
		n, ok = uint16(len(s.listed)), true
		s.templates[t] = n
		s.listed = append(s.listed, t)
	}
	return n, ok
}

// makeRoom forgets what is older than an hour, and if there is no room then, half of the callers.
func (s *sample) makeRoom(now int64, second int32) {
	for s.used > 0 && int64(second)-int64(s.lines[s.first].second) > int64(Window/time.Second) {
		s.forgetFirst()
	}
	for s.used == len(s.lines) {
		if s.thinning.Load() == maxThinning {
			s.forgetFirst()
			break
		}
		s.thin(now)
	}
	if thinning := s.thinning.Load(); thinning > 0 && now-s.changed > int64(Window) && s.used < len(s.lines)/4 {
		s.thinning.Store(thinning - 1)
		s.changed, s.before = now, thinning
	}
}

func (s *sample) forgetFirst() {
	l := &s.lines[s.first]
	if l.who.lines--; l.who.lines == 0 {
		delete(s.callers, l.who.key)
	}
	*l = line{}
	s.first = (s.first + 1) % len(s.lines)
	s.used--
}

// thin halves the callers.
func (s *sample) thin(now int64) {
	thinning := s.thinning.Add(1)
	s.changed, s.before = now, thinning
	kept := 0
	for i := range s.used {
		l := s.lines[(s.first+i)%len(s.lines)]
		if !drawn(l.who.key, thinning) {
			delete(s.callers, l.who.key)
			continue
		}
		at := (s.first + kept) % len(s.lines)
		s.lines[at] = l
		l.who.last = at
		kept++
	}
	for i := kept; i < s.used; i++ {
		s.lines[(s.first+i)%len(s.lines)] = line{}
	}
	s.used = kept
}

// Request is what a caller of the sample asked for within a second.
type Request struct {
	At       time.Time          // of the first
	Until    time.Time          // of the last
	Who      identity.Principal // its Kind, ID, Project, Client and Prefix
	Hash     string             // as in Caller
	Template endpoint.Template  // the zero Template for UNKNOWN
	Count    int                // requests within this second
}

// Sample is what some callers did in the last hour.
type Sample struct {
	Since    time.Time // before, nothing is known
	Until    time.Time
	Part     float64 // of the callers, that are in it: 1, 1/2, 1/4 …
	Callers  int     // in it
	Requests []Request
}

// Sample returns the requests of the last hour that are remembered, in the order of time.
func (t *Table) Sample() Sample {
	now := t.clock.Now()
	ahead := t.clock.Wall(now) - now
	s := &t.sample
	s.mu.Lock()
	defer s.mu.Unlock()
	at := func(second int32, millisecond uint16) time.Time {
		return time.Unix(0, s.start+int64(second)*int64(time.Second)+
			int64(millisecond)*int64(time.Millisecond)+ahead).UTC()
	}
	thinning := s.thinning.Load()
	if now-s.changed < int64(Window) {
		thinning = max(thinning, s.before)
	}
	out := Sample{
		Since: time.Unix(0, max(s.start, now-int64(Window))+ahead).UTC(), Until: time.Unix(0, now+ahead).UTC(),
		Part: math.Ldexp(1, -int(thinning)), Requests: make([]Request, 0, s.used),
	}
	oldest := int32((max(s.start, now-int64(Window)) - s.start) / int64(time.Second))
	hashes := map[*sampled]string{}
	for i := range s.used {
		l := &s.lines[(s.first+i)%len(s.lines)]
		if l.second < oldest || !drawn(l.who.key, thinning) {
			continue
		}
		hash, ok := hashes[l.who]
		if !ok {
			hash = t.names.shown(l.who.key)
			hashes[l.who] = hash
		}
		out.Requests = append(out.Requests, Request{
			At: at(l.second, l.begin), Until: at(l.second, l.end), Who: l.who.who, Hash: hash,
			Template: s.listed[l.template], Count: int(l.count),
		})
	}
	out.Callers = len(hashes)
	return out
}
