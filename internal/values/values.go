// Package values has room for the values of header fields where an answer brings some.
package values

import (
	"net/http"
	"strings"
	"sync"
)

// Room is room for the values of the header of one answer after the other. That of a nil Room is allocated.
type Room struct {
	lists []string
	texts strings.Builder
}

const (
	mostValues = 32      // of an allocation
	textBytes  = 2 << 10 // of an allocation, which stays while anybody keeps one of its texts
)

// shared is what Lend lends: what one answer leaves of an allocation is for the next.
var shared = sync.Pool{New: func() any { return new(Room) }}

// Of returns the room that w brings by a method Values, nil if it has none.
func Of(w http.ResponseWriter) *Room {
	if own, ok := w.(interface{ Values() *Room }); ok {
		return own.Values()
	}
	return nil
}

// Lend is room for an answer that brings none, to be given back when its values are made. They last for as long as
// anybody keeps them, and so do their neighbours, which are of other answers.
func Lend() *Room { return shared.Get().(*Room) }

// GiveBack ends Lend. It is no Reset: what was made stays.
func (r *Room) GiveBack() { shared.Put(r) }

// List returns room for n values, which lasts until Reset.
func (r *Room) List(n int) []string {
	if r == nil || n > mostValues {
		return make([]string, n)
	}
	if n > cap(r.lists)-len(r.lists) {
		r.lists = make([]string, 0, mostValues) // which leaves what was made to whoever has it
	}
	from := len(r.lists)
	r.lists = r.lists[:from+n]
	return r.lists[from : from+n : from+n]
}

// One is a list of one value.
func (r *Room) One(value string) []string {
	list := r.List(1)
	list[0] = value
	return list
}

// Text is b as a string, which lasts. Many share an allocation: what stands in one is never written again.
func (r *Room) Text(b []byte) string {
	if r == nil || len(b) > textBytes/4 {
		return string(b)
	}
	if len(b) > r.texts.Cap()-r.texts.Len() {
		r.texts.Reset() // which leaves what was made to whoever has it
		r.texts.Grow(textBytes)
	}
	from := r.texts.Len()
	_, _ = r.texts.Write(b)
	return r.texts.String()[from:]
}

// Reset begins the next answer: lists may be written again.
func (r *Room) Reset() { r.lists = r.lists[:0] }

// Clear is Reset, and forgets what stands in lists.
func (r *Room) Clear() {
	clear(r.lists[:cap(r.lists)])
	r.Reset()
}
