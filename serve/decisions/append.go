package decisions

import (
	"bytes"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Answers are written by hand: they are most of what a batch of questions costs. What is written is
// what encoding/json writes of an Answer, byte for byte, which a test holds; strings and numbers that
// are out of the ordinary it writes itself.

// append appends a in JSON, with these fields in the place of Header.
func (a *Answer) append(b []byte, header http.Header) []byte {
	b = strconv.AppendBool(append(b, `{"allowed":`...), a.Allowed)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(a.Status), 10)
	b = appendText(append(b, `,"reason":`...), a.Reason)
	if a.Endpoint != "" {
		b = appendText(append(b, `,"endpoint":`...), a.Endpoint)
	}
	if a.Cost != 0 {
		b = strconv.AppendInt(append(b, `,"cost":`...), a.Cost, 10)
	}
	if a.Rule != "" {
		b = appendText(append(b, `,"rule":`...), a.Rule)
	}
	if a.Remaining != nil {
		b = strconv.AppendInt(append(b, `,"remaining":`...), *a.Remaining, 10)
	}
	if a.RetryAfter != nil {
		b = appendNumber(append(b, `,"retry_after":`...), *a.RetryAfter)
	}
	if a.ResetAfter != nil {
		b = appendNumber(append(b, `,"reset_after":`...), *a.ResetAfter)
	}
	if a.Reservation != "" {
		b = appendText(append(b, `,"reservation":`...), a.Reservation)
	}
	if a.Expires != nil {
		b = appendAny(append(b, `,"expires":`...), a.Expires)
	}
	b = appendFields(b, header)
	if len(a.Problem) > 0 {
		b = appendAny(append(b, `,"problem":`...), a.Problem)
	}
	if a.Body != "" {
		b = appendText(append(b, `,"body":`...), a.Body)
	}
	return append(b, '}')
}

// usualAnswer is about how long the answer to a question is, in bytes.
const usualAnswer = 384

// appendFields appends a header, in the order of names and without a Content-Length, which the caller writes.
func appendFields(b []byte, header http.Header) []byte {
	var room [8]string
	names := room[:0]
	for name := range header {
		if name != "Content-Length" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return b
	}
	slices.Sort(names)
	before := `,"header":{`
	for _, name := range names {
		b = append(appendText(append(b, before...), name), ':')
		if lines := header[name]; len(lines) == 1 {
			b = appendText(b, lines[0])
		} else {
			b = appendText(b, strings.Join(lines, ", "))
		}
		before = ","
	}
	return append(b, '}')
}

// appendText appends a string.
func appendText(b []byte, s string) []byte {
	whole := len(b)
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~' || c == '\\':
			return appendAny(b[:whole], s)
		case c == '"':
			b = append(b, '\\', '"')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// appendNumber appends a number.
func appendNumber(b []byte, f float64) []byte {
	if size := math.Abs(f); f != 0 && (size < 1e-6 || size >= 1e21) {
		return appendAny(b, f)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

func appendAny(b []byte, v any) []byte {
	return append(b, bytes.TrimSuffix(inJSON(v), []byte("\n"))...)
}
