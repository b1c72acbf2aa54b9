package policy

import "context"

// Streamer is a Source that shows rules while it still reads others, so that
// they are compiled meanwhile.
type Streamer interface {
	Source

	// LoadInto is Load, and tells the Draft, which may be nil, of the rules on the
	// way: Begin, then Read again and again, and Reorder if they came in another
	// order than the document's.
	LoadInto(ctx context.Context, d *Draft) (Document, string, error)
}

// Draft is a document that is compiled while it is read. One goroutine reads,
// and what it has read another checks, rule by rule:
//
//	source    Begin  Read(rules[:1024])  Read(rules[:2048])  …         Compile
//	draft            checks ──────────▶  checks ─────────────────────▶ arranges
//
// A Draft that is Alone checks in Read, so that one processor does both.
//
// The Set and the problems are those that Compile has for the whole document.
// The methods are for one goroutine at a time, and a Draft that is not needed any
// more may be dropped. A nil Draft takes everything and keeps nothing.
type Draft struct {
	// Alone says that whoever reads checks as well. Default false.
	Alone bool

	o    CompileOptions
	idle chan struct{} // holds a token, which whoever compiles has meanwhile

	// Guarded by the token.
	compiler  *compiler // nil if there is none, and the document is compiled whole
	reordered bool
}

// NewDraft returns a Draft to be compiled with options.
func NewDraft(o CompileOptions) *Draft {
	d := &Draft{o: o, idle: make(chan struct{}, 1)}
	d.idle <- struct{}{}
	return d
}

// Begin takes all of a document but its rules, of which there are about so many,
// and but its Number. What was read before is forgotten, and nobody looks at it
// any more.
func (d *Draft) Begin(doc Document, about int) {
	if d == nil {
		return
	}
	<-d.idle
	d.compiler, d.reordered = newCompiler(doc, d.o, about), false
	d.idle <- struct{}{}
}

// Read takes all rules that have been read. They must not change; others may
// follow them. Unless the Draft is Alone it does not wait: rules that come while
// others are checked are checked after them.
func (d *Draft) Read(rules []Rule) {
	if d == nil {
		return
	}
	if d.Alone {
		<-d.idle
		d.read(rules)
		d.idle <- struct{}{}
		return
	}
	select {
	case <-d.idle:
		go func() {
			d.read(rules)
			d.idle <- struct{}{}
		}()
	default: // the next call, or Compile, has these rules too
	}
}

// read is for whoever has the token. A panic is for Compile to have again, where
// somebody waits for it.
func (d *Draft) read(rules []Rule) {
	defer func() {
		if recover() != nil {
			d.compiler = nil
		}
	}()
	if d.compiler != nil {
		d.compiler.read(rules)
	}
}

// Reorder takes all rules before they are put in another order, and returns when
// nobody looks at them any more. The order matters only to problems: a document
// that has some is compiled again, so that they are told in its own.
func (d *Draft) Reorder(rules []Rule) {
	if d == nil {
		return
	}
	<-d.idle
	d.read(rules)
	d.reordered = true
	d.idle <- struct{}{}
}

// Compile is Compile for the whole document. Its beginning must be what was
// given, but for the order if that was said.
func (d *Draft) Compile(doc Document) (*Set, Problems) { return d.compile(doc, d.o) }

// compile is Compile with another Previous and another time.
func (d *Draft) compile(doc Document, o CompileOptions) (*Set, Problems) {
	if d == nil {
		return Compile(doc, o)
	}
	<-d.idle
	c := d.compiler
	d.compiler = nil // it is large
	d.idle <- struct{}{}
	if c == nil || len(doc.Rules) < len(c.doc.Rules) {
		return Compile(doc, o)
	}
	c.o.Previous, c.o.Predecessor, c.doc.Number = o.Previous, o.Predecessor, doc.Number
	c.at(o.Now, o.wall)
	if !d.reordered {
		c.read(doc.Rules)
	}
	c.finish()
	if d.reordered && len(c.problems.list) > 0 {
		return Compile(doc, o)
	}
	return c.result()
}

// drafted is a document as the source of a Cache has loaded it.
type drafted struct {
	Document
	draft *Draft // nil if nothing of it is compiled
}

// draftSource is the source of a Cache. Rules are compiled while they are read: the
// first ones beside, because everybody waits for them, and later ones by who reads.
// Requests are decided meanwhile, and a processor more that is busy with rules is one
// less for them.
type draftSource struct {
	Source
	inForce func() *Set
	draft   func() *Draft
}

func (s draftSource) Load(ctx context.Context) (drafted, string, error) {
	streamer, ok := s.Source.(Streamer)
	if !ok {
		doc, version, err := s.Source.Load(ctx)
		return drafted{Document: doc}, version, err
	}
	d := s.draft()
	d.Alone = s.inForce() != nil
	doc, version, err := streamer.LoadInto(ctx, d)
	return drafted{doc, d}, version, err
}
