package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// spellings of GET /v1/customers/{customer}; %d is the id.
var spellings = []string{
	"/v1/customers/%d", "//v1/customers/%d", "/v1/./customers/%d", "/v1/%%63ustomers/%d",
	"/v1/customers/%d/", "/v1/customers/%d?x=1", "/v1/customers/%%2e/%d", "/v1/x/../customers/%d",
	"/%%76%%31/customers/%d//", "/v1/customers/%d?a=b;customers=/v1/other",
}

func stripe(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "server", "openapi", "testdata", "stripe-spec3.json.gz")
}

// TestA3CurlCannotSpellItsWayPastALimit drives the real process with curl: any
// mixture of ids and spellings from one address is admitted at most
// burst + 5·t times.
func TestA3CurlCannotSpellItsWayPastALimit(t *testing.T) {
	dir := t.TempDir()
	harness.Run(t, dir, "policy", "set", "GET /v1/customers/{customer}", "5", "--burst", "8", "--db",
		"sqlite:headgate.db")
	api := harness.NewUpstream(t)
	// As before a server that reads all of these in one way.
	if err := os.WriteFile(filepath.Join(dir, "headgate.yaml"), []byte("endpoint:\n  refuse: []\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	gate := harness.Serve(t, dir, "--config", "headgate.yaml", "--upstream", api.URL, "--openapi", stripe(t))

	const requests = 300
	var script strings.Builder
	for i := range requests {
		target := fmt.Sprintf(spellings[i%len(spellings)], i)
		if i > 0 {
			script.WriteString("next\n") // else every request has the header fields of all
		}
		script.WriteString("silent\npath-as-is\nwrite-out = \"%{http_code}\\n\"\n")
		fmt.Fprintf(&script, "url = \"%s%s\"\noutput = \"/dev/null\"\nheader = \"X-Forwarded-For: 203.0.113.%d\"\n",
			gate.URL, target, i%250)
	}
	curl := exec.Command("curl", "--config", "-")
	curl.Stdin = strings.NewReader(script.String())
	start := time.Now()
	out, err := curl.Output()
	elapsed := time.Since(start)
	if err != nil {
		t.Fatalf("curl: %v", err)
	}
	codes := strings.Fields(string(out))
	if len(codes) != requests {
		t.Fatalf("curl printed %d codes, want %d", len(codes), requests)
	}
	admitted := 0
	for i, code := range codes {
		switch code {
		case "200":
			admitted++
		case "429":
		default:
			t.Errorf("%s answered %s, want 200 or 429", fmt.Sprintf(spellings[i%len(spellings)], i), code)
		}
	}
	bound := 8 + int(5*elapsed.Seconds())
	if admitted < 8 || admitted > bound {
		t.Errorf("admitted %d requests in %v, want 8 (the burst) to %d", admitted, elapsed, bound)
	}
	if served := api.Served.Load(); served != int64(admitted) {
		t.Errorf("the API served %d requests, want the %d admitted", served, admitted)
	}
}

// TestA6FakeEndpointsCreateNothing sends 200,000 requests to random paths: no
// bucket beyond UNKNOWN's comes to be, and under reject none at all; the API
// never sees one that is rejected.
func TestA6FakeEndpointsCreateNothing(t *testing.T) {
	for _, c := range []struct {
		unknown string
		buckets string
	}{
		{"reject", "0"},
		{"limit", "1"},
	} {
		t.Run(c.unknown, func(t *testing.T) {
			dir := t.TempDir()
			harness.Run(t, dir, "policy", "set", "default", "100", "--db", "sqlite:headgate.db")
			harness.Run(t, dir, "policy", "set", "UNKNOWN", "1", "--per", "1h", "--db", "sqlite:headgate.db")
			api := harness.NewUpstream(t)
			gate := harness.Serve(t, dir, "--upstream", api.URL, "--openapi", stripe(t), "--unknown", c.unknown)

			const requests = 200_000
			got := floodRandomPaths(t, gate.URL, requests)
			t.Logf("answers by status: %v", got)
			passed := int(api.Served.Load())
			if c.unknown == "reject" && (got[http.StatusNotFound] != requests || passed != 0) {
				t.Errorf("%d answers are 404 and %d reached the API, want %d and 0", got[http.StatusNotFound],
					passed, requests)
			}
			if c.unknown == "limit" && (passed != 1 || got[http.StatusTooManyRequests] != requests-1) {
				t.Errorf("%d reached the API and %d were limited, want UNKNOWN's one an hour and the rest", passed,
					got[http.StatusTooManyRequests])
			}
			if live := gate.Metric(t, "headgate_buckets "); live != c.buckets {
				t.Errorf("live buckets = %q, want %q", live, c.buckets)
			}
			if created := gate.Metric(t, "headgate_buckets_created_total "); created != c.buckets {
				t.Errorf("buckets created = %q, want %q", created, c.buckets)
			}
		})
	}
}

// floodRandomPaths pipelines requests for paths nobody declared over a few
// connections, and counts the answers by status.
func floodRandomPaths(t *testing.T, url string, requests int) map[int]int {
	t.Helper()
	const connections, batch = 4, 50
	results := make(chan map[int]int, connections)
	for c := range connections {
		go func() { results <- flood(t, url, rand.New(rand.NewPCG(uint64(c), 6)), requests/connections, batch) }()
	}
	total := map[int]int{}
	for range connections {
		for status, n := range <-results {
			total[status] += n
		}
	}
	return total
}

func flood(t *testing.T, url string, random *rand.Rand, requests, batch int) map[int]int {
	got := map[int]int{}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Error(err)
		return got
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for sent := 0; sent < requests; sent += batch {
		var out bytes.Buffer
		for range batch {
			fmt.Fprintf(&out, "GET /v9/%x/%x?r=%d HTTP/1.1\r\nHost: api\r\nX-Forwarded-For: %d.1.2.3\r\n\r\n",
				random.Uint64(), random.Uint32(), random.Uint32(), random.IntN(256))
		}
		if _, err := conn.Write(out.Bytes()); err != nil {
			t.Error(err)
			return got
		}
		for range batch {
			status, err := readStatus(answers)
			if err != nil {
				t.Error(err)
				return got
			}
			got[status]++
		}
	}
	return got
}

// readStatus reads an answer, and reports its status. http.ReadResponse takes
// several times as long as the gateway under the race detector.
func readStatus(r *bufio.Reader) (status int, err error) {
	length := -1
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		switch {
		case status == 0:
			if len(value) < 3 || string(name) != "HTTP/1.1" {
				return 0, fmt.Errorf("an answer begins with %q, want HTTP/1.1 and a status", line)
			}
			if status, err = strconv.Atoi(string(value[:3])); err != nil {
				return 0, err
			}
		case strings.EqualFold(string(name), "Content-Length:"):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		case len(name) == 0:
			if length < 0 {
				return 0, fmt.Errorf("an answer of status %d does not say how long it is", status)
			}
			_, err = r.Discard(length)
			return status, err
		}
	}
}
