// Package problem writes problem details (RFC 9457), the one shape in which
// every HTTP door answers a request that it does not serve.
package problem

import (
	"net/http"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/values"
)

// Types registered for quotas by draft-ietf-httpapi-ratelimit-headers-10 §7.
const (
	QuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	Blank                    = "about:blank" // RFC 9457 §4.2.1: title and status say it all
)

// MediaType is that of problem details.
const MediaType = "application/problem+json"

// Details is a problem. Its texts must not repeat what a client sent.
type Details struct {
	Type     string // default Blank
	Title    string // default the status text
	Status   int
	Detail   string
	Violated []string // names of the violated policies

	// JSON, if it begins, is what AppendJSON writes, in parts.
	JSON [3]string

	// Body, if there is one, is sent in the place of problem details, as ContentType.
	Body        []byte
	ContentType string
}

// Write answers with d, never to be cached, without a body for HEAD. Headers
// already set stay. The answer does not wait for the body of r: if that has not
// arrived, the connection is closed after the answer.
func Write(w http.ResponseWriter, r *http.Request, d Details) {
	Release(w, r)
	h := w.Header()
	body := d.Body
	if body == nil {
		room := bodies.Get().(*[]byte)
		defer bodies.Put(room)
		d.ContentType, body = MediaType, d.AppendJSON((*room)[:0])
		if *room = body; cap(body) > mostBody {
			*room = nil
		}
	}
	var digits [20]byte
	room := values.Of(w)
	list := room.List(4)
	list[0], list[1], list[2] = d.ContentType, "no-store", "nosniff"
	list[3] = room.Text(strconv.AppendInt(digits[:0], int64(len(body)), 10))
	for i, name := range [...]string{"Content-Type", "Cache-Control", "X-Content-Type-Options", "Content-Length"} {
		h[name] = list[i : i+1 : i+1]
	}
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		// The client is gone if this fails; there is nobody left to tell.
		_, _ = w.Write(body)
	}
}

// bodies are those of answers, while they are written.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

const mostBody = 4 << 10 // bytes of one that are kept

// AppendJSON appends d as Write sends it. It is encoding/json for this one shape: a flood of refusals is the
// time when a limiter must be cheap.
func (d Details) AppendJSON(b []byte) []byte {
	if d.JSON[0] != "" {
		for _, part := range d.JSON {
			b = append(b, part...)
		}
		return b
	}
	if d.Type == "" {
		d.Type = Blank
	}
	if d.Title == "" {
		d.Title = http.StatusText(d.Status)
	}
	b = appendString(append(b, `{"type":`...), d.Type)
	b = appendString(append(b, `,"title":`...), d.Title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(d.Status), 10)
	if d.Detail != "" {
		b = appendString(append(b, `,"detail":`...), d.Detail)
	}
	for i, name := range d.Violated {
		separator := `,`
		if i == 0 {
			separator = `,"violated-policies":[`
		}
		b = appendString(append(b, separator...), name)
	}
	if len(d.Violated) > 0 {
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

// Quote is s as a string of JSON, as AppendJSON writes it.
func Quote(s string) string { return string(appendString(nil, s)) }

const hex = "0123456789abcdef"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	plain := 0
	for plain < len(s) && s[plain] >= ' ' && s[plain] < utf8.RuneSelf && s[plain] != '"' && s[plain] != '\\' {
		plain++
	}
	b = append(b, s[:plain]...)
	for _, r := range s[plain:] { // invalid UTF-8 arrives as utf8.RuneError
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, `\u00`...)
			b = append(b, hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
