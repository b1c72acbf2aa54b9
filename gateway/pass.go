package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/gateway/upstream"
	"github.com/headgate-io/headgate/internal/values"
)

// crossing is a request on its way to the API, and its answer. It is used for one after the other: maps and buffers
// are most of what a request would allocate.
type crossing struct {
	both    httputil.ProxyRequest
	out     http.Request
	url     url.URL
	text    []byte    // that is sent
	head    string    // of the last answer: many are the same, byte by byte
	said    [3]string // of the client
	request upstream.Request
	answer  upstream.Answer

	w    http.ResponseWriter
	tell func(status int, text []byte, fields []upstream.Field) // interim, made once
}

var crossings = sync.Pool{New: func() any {
	m := &crossing{out: http.Request{Header: http.Header{}}}
	m.tell = m.interim
	return m
}}

const (
	mostText   = 64 << 10 // bytes of it that are kept for the next request
	mostFields = 64       // fields of its header
	mostHead   = 4 << 10  // bytes of the head of an answer that are kept
)

// free forgets a request.
func (m *crossing) free() {
	m.answer.Close()
	if body, ok := m.out.Body.(*incoming); ok {
		body.over.Store(true)
	}
	header := m.out.Header
	if len(header) > mostFields || cap(m.text) > mostText {
		return
	}
	clear(header)
	*m = crossing{out: http.Request{Header: header}, text: m.text[:0], head: m.head, answer: m.answer, tell: m.tell}
	crossings.Put(m)
}

// smallBody is how long a body may be that is sent with the head, in bytes, once it is here. Longer ones are
// passed on as they come.
const smallBody = 8 << 10

// pass sends a request to the API and passes the answer on. It reports false if nothing was done, as the API speaks
// HTTP/2.
func (g *gateway) pass(w http.ResponseWriter, r *http.Request, x *headgate.Exchange) (done bool) {
	if g.options.Pool.HTTP2() {
		return false
	}
	m := crossings.Get().(*crossing)
	m.w = w
	defer m.free()
	g.compose(m, r)
	err := g.write(m, r)
	if err == nil {
		if r.ProtoAtLeast(1, 1) { // RFC 9110 section 15.2: none to others
			m.request.Interim = m.tell
		}
		begin, timed := g.clock(), m.request.Body == nil
		if timed {
			x.Sent()
		}
		err = g.options.Pool.Do(r.Context(), &m.request, &m.answer)
		switch {
		case !timed:
		case errors.Is(err, upstream.ErrHTTP2):
			x.Left()
		default:
			g.took(r.Context(), r.Method, r.RequestURI, begin)
			tell(r.Context(), x, err != nil || m.answer.Status >= http.StatusInternalServerError)
		}
	}
	if errors.Is(err, upstream.ErrHTTP2) {
		m.restore(r)
		return false
	}
	if err != nil {
		g.upstreamFailed(w, &m.out, err)
		return true
	}
	g.passAnswer(w, m)
	return true
}

// tell says what became of a request that was sent.
func tell(ctx context.Context, x *headgate.Exchange, failed bool) {
	if ctx.Err() != nil {
		x.Left()
		return
	}
	x.Answered(failed)
}

// clock is the time, if anybody wants to know what answers take, or zero.
func (g *gateway) clock() (now time.Time) {
	if g.options.Took != nil && (g.options.Times == nil || g.options.Times()) {
		now = time.Now()
	}
	return now
}

// took tells what the answer to a request took that was charged as target.
func (g *gateway) took(ctx context.Context, method, target string, begin time.Time) {
	if begin.IsZero() || ctx.Err() != nil {
		return
	}
	took, endpoints := time.Since(begin), g.options.Limiter.Endpoints()
	if m := endpoints.Match(method, target); m.Status == endpoint.Known {
		g.options.Took(endpoints.Template(m.ID).String(), took)
	}
}

// compose makes the request that is to be sent, but for its line.
func (g *gateway) compose(m *crossing, r *http.Request) {
	header := m.out.Header
	m.out = *r
	m.out.Header = header
	for name, values := range r.Header {
		header[name] = values
	}
	dropHopByHop(header)
	if hasToken(r.Header["Te"], "trailers") {
		header["Te"] = []string{"trailers"}
	}
	for _, name := range [...]string{forwarded, xForwardedFor, xForwardedHost, xForwardedProto} {
		delete(header, name)
	}
	if media, ok := r.Header["Content-Type"]; ok {
		header["Content-Type"] = media // see rewrite
	}
	if r.ContentLength == 0 {
		m.out.Body = nil
	}
	m.both = httputil.ProxyRequest{In: r, Out: &m.out}
}

// hopByHop are fields that are for the next hop alone (RFC 9110 section 7.6.1), with those of older
// times, in the canonical form.
var hopByHop = [...]string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// dropHopByHop removes those, and what Connection names.
func dropHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.Trim(name, " \t"); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// hasToken reports whether one of the lists in lines has a token.
func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(item, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// write writes the request as it goes to the API, and reads its body if that is short.
func (g *gateway) write(m *crossing, r *http.Request) error {
	path := g.outgoing(&m.both, &m.url)
	query, asked := m.url.RawQuery, m.url.ForceQuery
	g.prepare(&m.both, &m.said) // which has no say in the line
	text := append(append(m.text[:0], r.Method...), ' ')
	line := len(text)
	text = append(append(text, g.base...), encoded(path)...)
	pathEnds := len(text)
	if query != "" || asked {
		text = append(append(text, '?'), query...)
	}
	m.text = text
	if !g.faithfully(r.Method, text[line:], pathEnds-line) {
		charged, _, _ := strings.Cut(r.RequestURI, "?") // credentials may stand behind it
		return fmt.Errorf("%w: it would have had the path %.100q for %.100q", errUnfaithful,
			text[line:pathEnds], charged)
	}
	text = append(append(text, " HTTP/1.1\r\nHost: "...), g.host(r.Host)...)
	text = append(text, "\r\n"...)
	for name, values := range m.out.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue // which are made here
		}
		for _, value := range values {
			if !upstream.ValidField(name, value) {
				return fmt.Errorf("the request has a field that cannot be sent: %.40q", name)
			}
			text = append(append(append(append(text, name...), ": "...), value...), "\r\n"...)
		}
	}
	m.text = text
	return m.writeBody(r)
}

// faithfully reports whether a target may be sent for the one that was charged, of which it is
// made: it stays one, and in the part of the API that is behind the base path.
func (g *gateway) faithfully(method string, target []byte, path int) bool {
	for i, c := range target {
		if c <= ' ' || c == 0x7F || i < path && (c > 0x7F || c == '?' || c == '#') {
			return false
		}
		if c == '%' && i < path && (i+2 >= path || !isHex(target[i+1]) || !isHex(target[i+2])) {
			return false
		}
	}
	return path > len(g.base) && target[len(g.base)] == '/' && method != http.MethodConnect &&
		upstream.ValidField(method, "")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// host is what the Host field says: what the client's did, without the zone of an address, which means nothing
// elsewhere (RFC 6874 section 4).
func (g *gateway) host(asked string) string {
	if asked == "" {
		return g.options.Upstream.Host
	}
	if asked[0] == '[' {
		if zone, end := strings.IndexByte(asked, '%'), strings.IndexByte(asked, ']'); zone > 0 && end > zone {
			return asked[:zone] + asked[end:]
		}
	}
	return asked
}

// writeBody ends the head by what frames the body.
func (m *crossing) writeBody(r *http.Request) error {
	q, body := &m.request, m.out.Body
	switch n := r.ContentLength; {
	case body == nil || body == http.NoBody:
		if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
			m.text = append(m.text, "Content-Length: 0\r\n"...)
		}
		m.text = append(m.text, "\r\n"...)
	case n < 0:
		m.text = append(m.text, "Transfer-Encoding: chunked\r\n"...)
		if len(m.out.Trailer) > 0 {
			m.text = append(m.text, "Trailer: "...)
			for name := range m.out.Trailer {
				m.text = append(append(m.text, name...), ',')
			}
			m.text = append(m.text[:len(m.text)-1], "\r\n"...)
		}
		m.text = append(m.text, "\r\n"...)
		q.Body, q.Length, q.Trailer = body, -1, trailerOf(m.out.Trailer)
	default:
		m.text = append(strconv.AppendInt(append(m.text, "Content-Length: "...), n, 10), "\r\n\r\n"...)
		if n > smallBody || len(r.Header["Expect"]) > 0 {
			q.Body, q.Length = body, n
			break
		}
		head := len(m.text)
		m.text = append(m.text, make([]byte, n)...)
		if _, err := io.ReadFull(body, m.text[head:]); err != nil {
			return fmt.Errorf("%w: %w", upstream.ErrBody, err)
		}
	}
	q.Head, q.Again = m.text, q.Body == nil && isIdempotent(r.Method)
	q.Expect = q.Body != nil && len(r.Header["Expect"]) > 0
	q.ToHEAD = r.Method == http.MethodHead
	return nil
}

// isIdempotent reports whether sending a request twice comes to the same as sending it once (RFC 9110 section 9.2.2).
func isIdempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// trailerOf appends the fields of a trailer, which are known once the body was read.
func trailerOf(trailer http.Header) func([]byte) []byte {
	return func(to []byte) []byte {
		for name, values := range trailer {
			for _, value := range values {
				if upstream.ValidField(name, value) {
					to = append(append(append(append(to, name...), ": "...), value...), "\r\n"...)
				}
			}
		}
		return to
	}
}

// restore gives r the body back that was read.
func (m *crossing) restore(r *http.Request) {
	if n := r.ContentLength; m.request.Head != nil && m.request.Body == nil && n > 0 {
		r.Body = io.NopCloser(strings.NewReader(string(m.text[int64(len(m.text))-n:])))
	}
}

// interim passes on an answer of 1xx. The fields of the answer that are set already are not its, and stay.
func (m *crossing) interim(status int, text []byte, fields []upstream.Field) {
	header := m.w.Header()
	kept := maps.Clone(header)
	clear(header)
	addFields(header, string(text), fields, make([]string, len(fields)))
	m.w.WriteHeader(status)
	clear(header)
	maps.Copy(header, kept)
}

// addFields adds what is not for this hop alone, with room for the values, and returns the lines that announce a
// trailer.
func addFields(header http.Header, text string, fields []upstream.Field, values []string) (announced []string) {
	var named []string // by Connection
	for _, f := range fields {
		if name := f.Name(text); len(name) == len("Connection") && strings.EqualFold(name, "Connection") {
			named = append(named, f.Value(text))
		}
	}
	for i, f := range fields {
		name, value := http.CanonicalHeaderKey(f.Name(text)), f.Value(text)
		switch name {
		case "Trailer":
			announced = append(announced, value)
			continue
		case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
			"Transfer-Encoding", "Upgrade":
			continue
		}
		if len(named) > 0 && hasToken(named, name) {
			continue
		}
		if before := header[name]; len(before) > 0 {
			header[name] = append(before, value)
			continue
		}
		values[i] = value
		header[name] = values[i : i+1 : i+1]
	}
	return announced
}

// passAnswer passes on an answer whose head is here.
func (g *gateway) passAnswer(w http.ResponseWriter, m *crossing) {
	a, header := &m.answer, w.Header()
	room := values.Of(w)
	if m.head != string(a.Head) {
		m.head = room.Text(a.Head)
	}
	announced := announcedTrailer(addFields(header, m.head, a.Fields, room.List(len(a.Fields))))
	if len(m.head) > mostHead {
		m.head = ""
	}
	if len(announced) > 0 && a.Chunked() {
		header.Add("Trailer", strings.Join(announced, ", "))
	}
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = nil // else the server makes one up
	}
	w.WriteHeader(a.Status)
	if !a.Ended() {
		g.passBody(w, a)
	}
	if len(a.Trailer) == 0 {
		return
	}
	_ = http.NewResponseController(w).Flush() // else the server may find a length, and leave the trailer out
	for _, f := range a.Trailer {
		name := http.CanonicalHeaderKey(f.Name)
		switch {
		case framing(name):
		case slices.Contains(announced, name):
			header.Add(name, f.Value)
		default:
			header.Add(http.TrailerPrefix+name, f.Value)
		}
	}
}

// passBody copies the body of an answer. What is here is sent before more is waited for: a stream that waits for a
// buffer to fill is not a stream.
func (g *gateway) passBody(w http.ResponseWriter, a *upstream.Answer) {
	buf := g.buffers.Get()
	defer g.buffers.Put(buf)
	for !a.Ended() {
		if a.Waits() {
			_ = http.NewResponseController(w).Flush() // a client that has left is found by ctx, or by Write
		}
		n, err := a.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				panic(http.ErrAbortHandler) // the client left
			}
		}
		if err != nil && err != io.EOF {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, upstream.ErrBody) {
				g.brokeOff(err)
			}
			panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
		}
	}
}

// announcedTrailer returns the names that Trailer announces, but for those that frame a message.
func announcedTrailer(lines []string) (names []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if name != "" && !framing(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// framing reports whether a field, in the canonical form, frames a message or is for one hop.
func framing(name string) bool {
	return name == "Content-Length" || slices.Contains(hopByHop[:], name)
}

// keeper is a ResponseWriter for httputil.ReverseProxy, which removes all fields of an answer after
// one of 1xx that came before it: the limits, and that the connection ends.
type keeper struct {
	http.ResponseWriter
	kept http.Header
	lost bool
}

func keeping(w http.ResponseWriter) *keeper {
	return &keeper{ResponseWriter: w, kept: maps.Clone(w.Header())}
}

// Unwrap is for http.ResponseController.
func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// WriteHeader sends the fields that were set before.
func (k *keeper) WriteHeader(status int) {
	switch {
	case status < http.StatusOK && status != http.StatusSwitchingProtocols:
		k.lost = true
	case k.lost:
		k.lost = false
		header := k.Header()
		for name, values := range k.kept {
			header[name] = append(slices.Clip(values), header[name]...)
		}
	}
	k.ResponseWriter.WriteHeader(status)
}
