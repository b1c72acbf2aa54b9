package body

// MostText is how long a text is that ReadText tells from others.
const MostText = 256

// ReadText returns the text in a field of the object that a body is; empty if the field is not there, or is no text,
// or a longer one than MostText bytes. A field that stands twice or that may be taken for another, and control
// characters are a Fault, as for ReadMessage. An empty body has none.
func ReadText(body []byte, name string) (string, Fault) {
	var space [MostText]byte
	text, fault := findJSON(space[:0], body, [][]byte{[]byte(name)}, MostDepth, MostText)
	begins := scanner{b: body}
	switch {
	case len(body) == 0:
		return "", Empty
	case fault == Kind && begins.peek() != '{':
		return "", Kind // no object, and not read to its end
	case fault == Missing, fault == Kind, fault == Length:
		return "", None
	case fault != None:
		return "", fault
	case hasControl(text):
		return "", Text
	default:
		return string(text), None
	}
}
