package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
)

// jsonNode is a value inside a JSON text that encoding/json has found valid.
// Because it is valid, stepping over a value needs no more than counting
// brackets outside strings; nothing is decoded until it is asked for. That is
// what makes a document of 8 MB, of which 50 kB matter, cheap to read.
type jsonNode struct {
	data     []byte // the whole text
	from, to int    // the value in it, without spaces around
}

// parseJSON reports the document's value, or its first syntax error with the
// offset.
func parseJSON(data []byte) (n node, offset int, err error) {
	if !json.Valid(data) {
		var v json.RawMessage
		err = json.Unmarshal(data, &v) // Valid says no more than no
		offset = len(data)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			offset = max(int(syntax.Offset)-1, 0) // it counts the bytes read
		}
		return nil, offset, err
	}
	from := skipSpace(data, 0)
	return jsonNode{data, from, skipValue(data, from)}, 0, nil
}

func (n jsonNode) kind() kind {
	switch n.data[n.from] {
	case '{':
		return mapping
	case '[':
		return list
	case 'n':
		return null
	}
	return scalar
}

func (n jsonNode) text() string {
	if n.kind() != scalar {
		return ""
	}
	return jsonText(n.data[n.from:n.to])
}

// jsonText decodes a valid string; any other scalar it returns as written.
func jsonText(raw []byte) string {
	if raw[0] != '"' {
		return string(raw)
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	// The text is valid, so the only thing an error could say is impossible.
	_ = json.Unmarshal(raw, &s)
	return s
}

func (n jsonNode) members() []member {
	if n.kind() != mapping {
		return nil
	}
	var ms []member
	i := skipSpace(n.data, n.from+1)
	for n.data[i] != '}' {
		key := i
		end := skipString(n.data, key)
		i = skipSpace(n.data, end)
		i = skipSpace(n.data, i+1) // the colon
		value := jsonNode{n.data, i, skipValue(n.data, i)}
		ms = append(ms, member{
			key:   jsonText(n.data[key:end]),
			keyAt: func() (int, int) { return position(n.data, key) },
			value: value,
		})
		i = n.next(value.to)
	}
	return ms
}

func (n jsonNode) items() []node {
	if n.kind() != list {
		return nil
	}
	var ns []node
	i := skipSpace(n.data, n.from+1)
	for n.data[i] != ']' {
		value := jsonNode{n.data, i, skipValue(n.data, i)}
		ns = append(ns, value)
		i = n.next(value.to)
	}
	return ns
}

func (n jsonNode) at() (line, column int) { return position(n.data, n.from) }

// next steps from the end of one member or item to the next one, or to the
// closing bracket.
func (n jsonNode) next(i int) int {
	i = skipSpace(n.data, i)
	if n.data[i] == ',' {
		i = skipSpace(n.data, i+1)
	}
	return i
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// skipString steps over a string; i is at its opening quote.
func skipString(data []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(data[i:], '"')
		backslashes := 0
		for data[i-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue steps over a value of any kind; i is at its first byte.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			i = skipString(data, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ' ', '\n', '\r', '\t', ',', ':':
			i++
			continue
		default: // number, true, false, null
			for i < len(data) && !isDelimiter(data[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\n', '\r', '\t', ',', ':', '}', ']':
		return true
	}
	return false
}
