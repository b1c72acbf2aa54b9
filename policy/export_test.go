package policy

import "github.com/headgate-io/headgate/internal/steady"

// NewCacheBy is NewCache with a clock in the test's hands.
func NewCacheBy(clock *steady.Clock, o CacheOptions) (*Cache, error) {
	o.clock = clock
	return NewCache(o)
}

// InPlace reports whether the Set of a document has the rows of its compiler.
func InPlace(doc Document, o CompileOptions) bool {
	c := newCompiler(doc, o, len(doc.Rules))
	c.read(doc.Rules)
	c.finish()
	return len(c.rows) > 0 && len(c.set.rows) > 0 && &c.rows[0] == &c.set.rows[0]
}

// SpareRows is for how many rows more than it has a Set has room.
func (s *Set) SpareRows() int { return cap(s.rows) - len(s.rows) }
