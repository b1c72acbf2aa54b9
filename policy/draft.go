package policy

import (
	"context"
	"io"
	"math"
)

// Streamer is a Source that shows rules while it still reads others, so that
// they are compiled meanwhile.
type Streamer interface {
	Source

	// LoadInto is Load, and tells the Draft, which may be nil, of the rules on the
	// way: Begin, then Read again and again, and Reorder if they came in another
	// order than the document's. The Document has the rules that these left.
	LoadInto(ctx context.Context, d *Draft) (Document, string, error)
}

// Draft is a document that is compiled while it is read. One goroutine reads,
// and what it has read another checks, rule by rule:
//
//	source    Begin  Read(1024 rules)  Read(the next)  …         Compile
//	draft            checks ────────▶  checks ─────────────────▶ arranges
//
// A Draft that is Alone checks in Read, so that one processor does both.
//
// The rules of a large document are not kept: once they are checked, others are
// read in their place. A million would take five times as much as in force. If
// something is wrong that needs the words of rules that are gone, whoever loads
// does so once more, and keeps them.
//
// The Set and the problems are those that Compile has for the whole document.
// The methods are for one goroutine at a time, and a Draft that is not needed any
// more may be dropped. A nil Draft takes everything and keeps nothing.
type Draft struct {
	// Alone says that whoever reads checks as well. Default false.
	Alone bool

	o     CompileOptions
	kept  int           // of documents with fewer rules all are kept
	spool *spool        // holds those that are not, for the last good copy; nil without one
	idle  chan struct{} // holds a token, which whoever compiles has meanwhile

	// For whoever reads.
	forgets bool
	gone    int    // rules that are not kept
	spare   []Rule // is read into next: nobody looks at it once the token is back

	// Guarded by the token.
	compiler  *compiler // nil if there is none, and the document is compiled whole
	reordered bool
}

// keptRules is how many rules are kept although they are checked, until there are
// more: they take a few MiB, and what is wrong with them is told without a second
// load.
const keptRules = 1 << 14

// backlog is how many rules that will not be kept wait to be checked at most.
const backlog = 1 << 12

// NewDraft returns a Draft to be compiled with options. It keeps all rules.
func NewDraft(o CompileOptions) *Draft { return newDraft(o, math.MaxInt) }

func newDraft(o CompileOptions, kept int) *Draft {
	d := &Draft{o: o, kept: kept, idle: make(chan struct{}, 1)}
	d.idle <- struct{}{}
	return d
}

// Begin takes all of a document but its rules, of which there are about so many,
// and but its Number. What was read before is forgotten, and nobody looks at it
// any more. It returns room for rules.
func (d *Draft) Begin(doc Document, about int) []Rule {
	if d == nil {
		return make([]Rule, 0, about)
	}
	<-d.idle
	defer func() { d.idle <- struct{}{} }()
	d.compiler, d.reordered = newCompiler(doc, d.o, about), false
	d.forgets, d.gone, d.spare = false, 0, nil
	d.spool.drop()
	return make([]Rule, 0, max(0, min(about, d.kept)))
}

// Read takes all rules that have been read since those that it did not return. It
// returns the ones to keep unchanged and to append to. Unless the Draft is Alone it
// hardly waits: rules that come while others are checked are checked after them.
func (d *Draft) Read(rules []Rule) []Rule {
	switch {
	case d == nil:
		return rules
	case d.Alone || d.forgets && len(rules) >= backlog || len(rules) >= d.kept:
		<-d.idle
	default:
		select {
		case <-d.idle:
		default: // the next call, or Compile, has these rules too
			return rules
		}
	}
	if !d.forgets && len(rules) >= d.kept {
		d.forgets = true
		d.spool.begin()
	}
	first, left := d.gone, rules
	if d.forgets {
		left = d.spare[:0]
		d.gone, d.spare = d.gone+len(rules), rules
	}
	check := func() {
		d.read(rules, first)
		d.idle <- struct{}{}
	}
	if d.Alone {
		check()
	} else {
		go check()
	}
	return left
}

// read is for whoever has the token. A panic is for Compile to have again, where
// somebody waits for it.
func (d *Draft) read(rules []Rule, first int) {
	defer func() {
		if recover() != nil {
			d.compiler = nil
		}
	}()
	if d.compiler == nil {
		return
	}
	d.compiler.read(rules, first)
	if d.forgets {
		d.compiler.rules = nil // others will be in their place
		d.spool.add(rules)
	}
}

// Reorder takes all rules that are left before they are put in another order, and
// returns those to put in order when nobody looks at them any more: all, or none.
// The order matters only to problems: a document that has some is compiled again,
// so that they are told in its own.
func (d *Draft) Reorder(rules []Rule) []Rule {
	if d == nil {
		return rules
	}
	<-d.idle
	d.read(rules, d.gone)
	d.reordered = true
	d.idle <- struct{}{}
	if !d.forgets {
		return rules
	}
	d.gone += len(rules)
	return nil
}

// Compile is Compile for the whole document, which has the rules that are left. Its
// beginning must be what was given, but for the order if that was said.
func (d *Draft) Compile(doc Document) (*Set, Problems) {
	set, problems, _ := d.compile(doc, d.o)
	return set, problems
}

// compile is Compile with another Previous and another time. It reports whether
// rules were looked at once more, to say what is wrong. If those were gone, there is
// neither a Set nor a problem.
func (d *Draft) compile(doc Document, o CompileOptions) (set *Set, problems Problems, looked bool) {
	<-d.idle
	c := d.compiler
	d.compiler = nil // it is large
	defer func() { d.idle <- struct{}{} }()
	whole := c == nil || d.gone+len(doc.Rules) < c.count
	if !whole {
		c.o.Previous, c.o.Predecessor, c.doc.Number = o.Previous, o.Predecessor, doc.Number
		c.at(o.Now, o.wall)
		if !d.reordered {
			c.read(doc.Rules, d.gone)
		}
		if d.forgets {
			d.spool.add(doc.Rules)
		}
		c.finish()
		whole = d.reordered && len(c.problems.list) > 0
		looked = whole || c.looked
	}
	switch {
	case d.forgets && (looked || whole):
		return nil, nil, true
	case whole:
		set, problems = Compile(doc, o)
	default:
		set, problems = c.result()
	}
	return set, problems, looked
}

// drafted is a document as the source of a Cache has loaded it.
type drafted struct {
	Document     // without the rules that its Draft did not keep
	count    int // of rules

	compiled bool
	set      *Set // of one that is compiled; nil if the problems hold an error
	problems Problems

	spool *spool // has the rules for the last good copy; nil if the Document has them
}

// draftSource is the source of a Cache. Rules are compiled while they are read: the
// first ones beside, because everybody waits for them, and later ones by who reads.
// Requests are decided meanwhile, and a processor more that is busy with rules is one
// less for them.
type draftSource struct {
	Source
	inForce func() *Set
	options func(previous *Set) CompileOptions
	spool   *spool // nil without a last good copy
	kept    int    // of documents with fewer rules all are kept

	keepAll bool // of any: those of the last document were looked at once more
}

func (s *draftSource) Load(ctx context.Context) (loaded drafted, version string, err error) {
	streamer, ok := s.Source.(Streamer)
	if !ok {
		doc, version, err := s.Source.Load(ctx)
		return drafted{Document: doc, count: len(doc.Rules)}, version, err
	}
	loaded, err = s.compile(s.spool, func(d *Draft) (doc Document, err error) {
		doc, version, err = streamer.LoadInto(ctx, d)
		return doc, err
	})
	return loaded, version, err
}

// decode loads the last good copy.
func (s *draftSource) decode(from io.ReadSeeker) (drafted, error) {
	return s.compile(nil, func(d *Draft) (Document, error) {
		if _, err := from.Seek(0, io.SeekStart); err != nil {
			return Document{}, err
		}
		doc, _, err := decodeCopy(from, d)
		return doc, err
	})
}

// compile has a document loaded into a Draft, and a second time if the first one
// did not keep rules that are needed. A document without any is left alone.
func (s *draftSource) compile(spool *spool, load func(*Draft) (Document, error)) (drafted, error) {
	for {
		loaded, err := s.compileOnce(spool, load)
		if err != nil || loaded.count == 0 || loaded.compiled {
			return loaded, err
		}
	}
}

func (s *draftSource) compileOnce(spool *spool, load func(*Draft) (Document, error)) (loaded drafted, err error) {
	previous, kept := s.inForce(), s.kept
	if s.keepAll {
		kept = math.MaxInt
	}
	d := newDraft(s.options(previous), kept)
	d.Alone, d.spool = previous != nil, spool
	defer func() { // a panic of the source's too
		<-d.idle // nobody uses the spool any more, which the next load does
		if loaded.spool == nil {
			spool.drop()
		}
	}()
	doc, err := load(d)
	loaded = drafted{Document: doc, count: d.gone + len(doc.Rules)}
	if err != nil || loaded.count == 0 {
		return loaded, err
	}
	loaded.set, loaded.problems, s.keepAll = d.compile(doc, s.options(previous))
	loaded.compiled = loaded.set != nil || len(loaded.problems) > 0
	if d.forgets && loaded.set != nil {
		loaded.spool = spool
	}
	return loaded, nil
}
