package openapi

// node is one value of a document, whichever syntax it is written in. Nodes are
// read as they are asked for, so what is not asked for costs nothing more than
// stepping over it.
type node interface {
	kind() kind
	text() string           // of a scalar; empty for the others
	members() []member      // of a mapping, in document order; nil for the others
	items() []node          // of a list; nil for the others
	at() (line, column int) // from 1
}

// member is one key of a mapping with its value.
type member struct {
	key   string
	keyAt func() (line, column int)
	value node
}

type kind uint8

const (
	null kind = iota
	scalar
	list
	mapping
)

// String names the kind the way error messages do.
func (k kind) String() string {
	return [...]string{"empty", "a single value", "a list", "a mapping"}[k]
}

// find reports the value of a key, or nil.
func find(members []member, key string) node {
	for _, m := range members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}
