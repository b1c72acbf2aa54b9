package policy

import "github.com/headgate-io/headgate/internal/steady"

// NewCacheBy is NewCache with a clock in the test's hands.
func NewCacheBy(clock *steady.Clock, o CacheOptions) (*Cache, error) {
	o.clock = clock
	return NewCache(o)
}

// NewForgetfulCache is NewCache that keeps no rules of documents however small.
func NewForgetfulCache(o CacheOptions) (*Cache, error) {
	o.kept = -1
	return NewCache(o)
}

// NewForgetfulDraft is NewDraft of one that keeps no rules, and has them for a last good copy if that is to be at a
// path.
func NewForgetfulDraft(o CompileOptions, copyAt string) *Draft {
	d := newDraft(o, -1)
	if copyAt != "" {
		d.spool = &spool{copy: copyAt}
	}
	return d
}

// CompileOrLook is Compile that reports whether rules were looked at once more.
func (d *Draft) CompileOrLook(doc Document) (*Set, Problems, bool) { return d.compile(doc, d.o) }

// InPlace reports whether the Set of a document has the rows of its compiler.
func InPlace(doc Document, o CompileOptions) bool {
	c := newCompiler(doc, o, len(doc.Rules))
	c.read(doc.Rules, 0)
	c.finish()
	return len(c.rows) > 0 && len(c.set.rows) > 0 && &c.rows[0] == &c.set.rows[0]
}

// SpareRows is for how many rows more than it has a Set has room.
func (s *Set) SpareRows() int { return cap(s.rows) - len(s.rows) }
