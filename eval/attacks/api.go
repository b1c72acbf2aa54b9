package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// number is the header field by which the API recognises a request of an attack. No limiter here reads it.
const number = "Attack-Number"

// goodPassword is the victim's.
const goodPassword = "correct horse"

// arrival is a request as the API saw it.
type arrival struct {
	at       time.Duration // since the API started
	resource string        // what the API served
	user     string        // whose login was tried
}

// api is what stands behind every limiter: it answers at once, and keeps a record. It reads paths
// as nginx does (see resource), which is how most servers read them that do not refuse.
type api struct {
	*httptest.Server
	start time.Time

	mu      sync.Mutex
	arrived map[int]arrival // by number; guarded by mu
}

func newAPI() *api {
	a := &api{start: time.Now(), arrived: map[int]arrival{}}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	return a
}

// since is the time on the clock of the record.
func (a *api) since() time.Duration { return time.Since(a.start) }

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	got := arrival{at: a.since(), resource: resource(r.RequestURI)}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		var login struct{ Username, Password string }
		body, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
		if json.Unmarshal(body, &login) != nil || login.Password != goodPassword {
			status = http.StatusUnauthorized
		}
		got.user = login.Username
	}
	if n, err := strconv.Atoi(r.Header.Get(number)); err == nil {
		a.mu.Lock()
		if _, again := a.arrived[n]; !again {
			a.arrived[n] = got
		}
		a.mu.Unlock()
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "ok\n")
}

// take returns what arrived of the numbers from low to below high, and forgets it.
func (a *api) take(low, high int) map[int]arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := map[int]arrival{}
	for n := low; n < high; n++ {
		if one, ok := a.arrived[n]; ok {
			got[n] = one
			delete(a.arrived, n)
		}
	}
	return got
}

// resource is the path that nginx serves for a target: decoded once, slashes merged, dot segments
// removed; "" where it refuses. Only above the root it stops, as other servers do, where nginx
// refuses. The test holds it against what nginx was measured to do.
func resource(target string) string {
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		if at := strings.IndexByte(rest, '/'); at >= 0 {
			target = rest[at:]
		} else {
			target = "/"
		}
	}
	if at := strings.IndexAny(target, "?#"); at >= 0 {
		target = target[:at]
	}
	var path strings.Builder
	for i := 0; i < len(target); i++ {
		c := target[i]
		if c == '%' {
			if i+2 >= len(target) {
				return ""
			}
			v, err := strconv.ParseUint(target[i+1:i+3], 16, 8)
			if err != nil || v == 0 {
				return ""
			}
			c, i = byte(v), i+2
		}
		path.WriteByte(c)
	}
	decoded := path.String()
	if !strings.HasPrefix(decoded, "/") {
		return ""
	}
	var kept []string
	segments := strings.Split(decoded[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case "", ".":
			if last {
				kept = append(kept, "")
			}
		case "..":
			kept = kept[:max(0, len(kept)-1)]
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}
