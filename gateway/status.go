package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// callStatus is how a call by gRPC ends that is not served. It is an answer of 200 whose header or trailer says so.
type callStatus struct {
	code     uint32 // google.rpc.Code
	message  string
	pushback string // grpc-retry-pushback-ms (gRFC A6); "" for nothing said
}

// The codes of google.rpc.Code that answers of this gateway have.
const (
	canceled          uint32 = 1
	invalidArgument   uint32 = 3
	permissionDenied  uint32 = 7
	resourceExhausted uint32 = 8
	unimplemented     uint32 = 12
	internal          uint32 = 13
	unavailable       uint32 = 14
	unauthenticated   uint32 = 16
)

// never is the pushback of a call that is not to be made again.
const never = "-1"

// pushbackOf is what clients are told that call again by themselves.
func pushbackOf(code uint32, retry time.Duration) string {
	switch {
	case retry > 0:
		return strconv.FormatInt(int64((retry-1)/time.Millisecond+1), 10) // rounded up
	case code == resourceExhausted:
		return never
	}
	return ""
}

// codeOf is the code for a status of HTTP. What is nobody's fault but the gateway's or the API's is
// unavailable, never unknown.
func codeOf(status int) uint32 {
	switch status {
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return unimplemented
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return resourceExhausted
	case http.StatusInternalServerError:
		return internal
	}
	if status >= 500 {
		return unavailable
	}
	return invalidArgument
}

// write writes the fields of s.
func (s *callStatus) write(h http.Header) {
	h.Set("Grpc-Status", strconv.FormatUint(uint64(s.code), 10))
	h.Set("Grpc-Message", percentEncoded(s.message))
	if s.pushback != "" {
		h.Set("Grpc-Retry-Pushback-Ms", s.pushback)
	}
}

// answer answers with s alone, which gRPC calls Trailers-Only.
func (s *callStatus) answer(w http.ResponseWriter) {
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/grpc")
	s.write(h)
	w.WriteHeader(http.StatusOK)
}

// percentEncoded is a message as gRPC writes it: bytes of ASCII that can be read, and others as escapes.
func percentEncoded(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// statuses has refusals of calls by gRPC say so as gRPC does. Its clients take a 429 for UNAVAILABLE, and
// try again at once.
func statuses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !callsGRPC(r) {
			next.ServeHTTP(w, r)
			return
		}
		c := &callAnswer{ResponseWriter: w}
		next.ServeHTTP(c, r)
		c.finish()
	})
}

// callAnswer is the answer to a call. What is problem details it keeps back, to make a status of it, and
// what is refused in other words than gRPC's, as rules may have them.
type callAnswer struct {
	http.ResponseWriter
	status int // of what is kept back; 0 while nothing is
	body   []byte
}

// maxProblem bounds what is kept of problem details; they are shorter.
const maxProblem = 16 << 10

func (c *callAnswer) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *callAnswer) WriteHeader(status int) {
	media := c.Header().Get("Content-Type")
	refused := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable // in the words of a rule
	if status >= 400 && media == "application/problem+json" ||
		refused && !strings.HasPrefix(media, "application/grpc") {
		c.status = status
		return
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *callAnswer) Write(p []byte) (int, error) {
	if c.status == 0 {
		return c.ResponseWriter.Write(p)
	}
	c.body = append(c.body, p[:min(len(p), maxProblem-len(c.body))]...)
	return len(p), nil
}

// FlushError sends what there is, but not the head of what is kept back: a proxy flushes each answer.
func (c *callAnswer) FlushError() error {
	if c.status != 0 {
		return nil
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

func (c *callAnswer) finish() {
	if c.status == 0 {
		return
	}
	var said struct{ Title, Detail string }
	_ = json.Unmarshal(c.body, &said) // which nothing of ours fails, and an API's may
	s := &callStatus{code: codeOf(c.status), message: said.Detail}
	if s.message == "" {
		s.message = cmp.Or(said.Title, http.StatusText(c.status))
	}
	seconds, _ := strconv.ParseInt(c.Header().Get("Retry-After"), 10, 32)
	s.pushback = pushbackOf(s.code, time.Duration(seconds)*time.Second)
	s.answer(c.ResponseWriter)
}
