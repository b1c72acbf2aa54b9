package decisions

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Answers are written by hand: they are most of what a batch of questions costs. What is written is
// what encoding/json writes of an Answer, byte for byte, which a test holds; strings and numbers that
// are out of the ordinary it writes itself.

// append appends a in JSON.
func (a *Answer) append(b []byte) []byte {
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
	if len(a.Header) > 0 {
		b = append(b, `,"header":{`...)
		var room [8]string
		names := slices.AppendSeq(room[:0], maps.Keys(a.Header))
		slices.Sort(names)
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(append(appendText(b, name), ':'), a.Header[name])
		}
		b = append(b, '}')
	}
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

// answersInJSON is what is answered to a question, or to a batch of them.
func answersInJSON(answers []Answer, batch bool) []byte {
	b := make([]byte, 0, usualAnswer*len(answers))
	if !batch {
		return append(answers[0].append(b), '\n')
	}
	b = append(b, `{"decisions":[`...)
	for i := range answers {
		if i > 0 {
			b = append(b, ',')
		}
		b = answers[i].append(b)
	}
	return append(b, "]}\n"...)
}

// appendText appends a string.
func appendText(b []byte, s string) []byte {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' }) {
		return appendAny(b, s)
	}
	b = append(b, '"')
	for part, rest, more := strings.Cut(s, `"`); ; part, rest, more = strings.Cut(rest, `"`) {
		b = append(b, part...)
		if !more {
			return append(b, '"')
		}
		b = append(b, `\"`...)
	}
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
