// Package problem writes problem details (RFC 9457), the one shape in which
// every HTTP door answers a request that it does not serve.
package problem

import (
	"net/http"
	"strconv"
	"unicode/utf8"
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
		d.ContentType, body = MediaType, d.AppendJSON(make([]byte, 0, 512))
	}
	values := [...]string{d.ContentType, "no-store", "nosniff", strconv.Itoa(len(body))} // one allocation for all
	for i, name := range [...]string{"Content-Type", "Cache-Control", "X-Content-Type-Options", "Content-Length"} {
		h[name] = values[i : i+1 : i+1]
	}
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		// The client is gone if this fails; there is nobody left to tell.
		_, _ = w.Write(body)
	}
}

// AppendJSON appends d as Write sends it. It is encoding/json for this one shape: a flood of refusals is the
// time when a limiter must be cheap.
func (d Details) AppendJSON(b []byte) []byte {
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
	for _, r := range s { // invalid UTF-8 arrives as utf8.RuneError
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
