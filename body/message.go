package body

// Message is what a message of JSON-RPC 2.0 says of itself, as far as limits go by it.
type Message struct {
	// Method is what is called, 1 to MostMethod bytes; empty in a response.
	Method string

	// Name is params.name, in MCP the tool or prompt that is asked for; empty where there is none, or it is no text
	// or longer than MostMethod.
	Name string

	// ID is the value by which its answer is known, as it is written: a string or a whole number of at most MostID
	// bytes. Nil if it has none, or another.
	ID []byte
}

// The bounds of Message.
const (
	MostMethod = 256
	MostID     = 256
)

var (
	methodPath = [][]byte{[]byte("method")}
	namePath   = [][]byte{[]byte("params"), []byte("name")}
	idPath     = [][]byte{[]byte("id")}
)

// ReadMessage reads the one message that a body is. An array, a name that stands twice or that may be taken for
// another, and control characters are a Fault: who reads it after us could find another method or tool.
func ReadMessage(body []byte) (m Message, fault Fault) {
	if len(body) == 0 {
		return m, Empty
	}
	var space [MostMethod]byte
	method, fault := findJSON(space[:0], body, methodPath, MostDepth, MostMethod)
	switch {
	case fault == Missing:
	case fault != None:
		return Message{}, fault
	case len(method) == 0:
		return Message{}, Length
	}
	if hasControl(method) {
		return Message{}, Text
	}
	m.Method = string(method)
	name, fault := findJSON(space[:0], body, namePath, MostDepth, MostMethod)
	switch {
	case fault == Missing, fault == Kind, fault == Length: // such a thing has no tool
	case fault != None:
		return Message{}, fault
	case hasControl(name):
		return Message{}, Text
	default:
		m.Name = string(name)
	}
	from, to, _, fault := locate(body, idPath, MostDepth)
	switch fault {
	case None:
		if body[from-1] == '"' {
			from, to = from-1, to+1
		}
		if to-from <= MostID {
			m.ID = body[from:to]
		}
	case Missing, Kind: // it has no answer, or none that could be told apart
	default:
		return Message{}, fault
	}
	return m, None
}

func hasControl(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == 0x7f {
			return true
		}
	}
	return false
}
