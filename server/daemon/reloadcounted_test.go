package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestNothingIsTriedForNothing: codes are tried at an endpoint that counts only those that there
// are not, by clients that wait for the answer, hang up, or break their body off once the API has
// acted, while endpoints and the answers that count are loaded anew. Whatever they do, the API acts
// on so many wrong codes as the limit allows, and right ones are free.
func TestNothingIsTriedForNothing(t *testing.T) {
	const limit, codes = 60, "POST /v1/codes/{code}"
	var tried, free atomic.Int64
	var arrived sync.Map // of chan bool, by the number of a request
	release := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wrong := strings.HasSuffix(r.URL.Path, "wrong")
		if wrong {
			tried.Add(1)
		}
		if signal, ok := arrived.Load(r.Header.Get("Number")); ok {
			close(signal.(chan bool))
			select { // until the client is gone
			case <-r.Context().Done():
			case <-release:
			}
		}
		if wrong {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(api.Close)
	t.Cleanup(func() { close(release) })
	counted := map[string][]config.Status{codes: {"404"}}
	r := newReloading(t, []policy.Rule{
		{Endpoint: codes, Limit: limit, Per: 24 * time.Hour, Burst: limit}, {Endpoint: policy.Default, Limit: 1e6},
	}, func(c *config.Config) { c.Upstream = api.URL })
	r.routes(t, codes+"\n")
	r.edit(func(c *config.Config) { c.CountWhen = counted })
	r.reload(t)

	var numbers atomic.Int64
	leave := func(broken bool) { // once the API has acted, or the request was refused
		number, signal := fmt.Sprint(numbers.Add(1)), make(chan bool)
		arrived.Store(number, signal)
		defer arrived.Delete(number)
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn,
			"POST /v1/codes/wrong HTTP/1.1\r\nHost: x\r\nNumber: %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n"+
				"{}\r\n", number)
		refused := make(chan bool)
		go func() {
			defer close(refused)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
			}
		}()
		select {
		case <-signal:
		case <-refused:
			return
		}
		if broken {
			_, _ = io.WriteString(conn, "no chunk\r\n")
			<-refused
		}
	}
	ask := func(code string) int {
		answer, err := http.Post(r.gate+"/v1/codes/"+code, "", strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return 0
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return answer.StatusCode
	}

	var clients, background sync.WaitGroup
	over := make(chan struct{})
	var reloads atomic.Int64
	background.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			r.edit(func(c *config.Config) {
				c.CountWhen = map[string][]config.Status{codes: {"404", []config.Status{"410", "403"}[i%2]}}
			})
			r.routes(t, fmt.Sprintf("GET /a%d\n", i%3)+codes+"\n")
			if status, body := call(t, "POST", r.admin+"/v1/reload", ""); status != 200 {
				t.Errorf("reload: %d %s", status, body)
			}
			reloads.Add(1)
		}
	})
	for kind := range 4 {
		clients.Go(func() {
			for range limit / 4 {
				switch kind {
				case 0:
					leave(true)
				case 1:
					leave(false)
				case 2:
					ask("wrong")
				default:
					if ask("right") == http.StatusOK {
						free.Add(1)
					}
				}
			}
		})
	}
	clients.Wait()
	for reloads.Load() < 5 {
		time.Sleep(time.Millisecond)
	}
	close(over)
	background.Wait()
	if free.Load() == 0 {
		t.Error("no right code was answered 200")
	}
	// What is under way counts, so that some were refused although there was room.
	for end := time.Now().Add(time.Minute); ask("right") != http.StatusOK && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	for range 2 * limit {
		if status := ask("wrong"); status == http.StatusTooManyRequests {
			break
		}
	}
	if got := tried.Load(); got != limit {
		t.Errorf("the API acted on %d wrong codes during %d reloads, want %d", got, reloads.Load(), limit)
	}
}
