package keys

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
)

// The client of the benchmark is this test binary, run again, so that what it
// spends is not counted: it writes what it reads on standard input, a kind and
// a number of requests a line, to the server, and answers when all is answered.
const (
	childAddress = "HEADGATE_FLOOD_ADDRESS"
	childKey     = "HEADGATE_FLOOD_KEY"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childAddress); address != "" {
		if err := flood(address, os.Getenv(childKey)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Kinds of requests. The keys of all but valid are different in every request
// of a few ten thousand.
var kinds = []string{"address", "malformed", "well-formed", "mixed", "valid"}

const (
	variety  = 20_000 // different requests of a kind
	pipeline = 16     // requests that are under way at once
)

func flood(address, valid string) error {
	requests := map[string][][]byte{}
	random := rand.New(rand.NewPCG(1, 2))
	for _, kind := range kinds {
		for i := range variety {
			header := ""
			switch {
			case kind == "valid":
				header = "X-Api-Key: " + valid + "\r\n"
			case kind != "address":
				header = "X-Api-Key: " + forge(random, kind == "well-formed" || kind == "mixed" && i%2 == 0) + "\r\n"
			}
			requests[kind] = append(requests[kind],
				[]byte("GET /v1/items/7 HTTP/1.1\r\nHost: api\r\nUser-Agent: flood\r\n"+header+"\r\n"))
		}
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	next := 0
	fmt.Println("ready")
	for {
		var kind string
		var n int
		if _, err := fmt.Scanln(&kind, &n); err != nil {
			return nil // the end
		}
		for sent := 0; sent < n; sent += pipeline {
			for range pipeline {
				_, _ = out.Write(requests[kind][next%variety])
				next++
			}
			if err := out.Flush(); err != nil {
				return err
			}
			for range pipeline {
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					return err
				}
				if answer.StatusCode != http.StatusNoContent {
					return fmt.Errorf("%s is answered with %s", kind, answer.Status)
				}
			}
		}
		fmt.Println("done")
	}
}

func forge(random *rand.Rand, wellFormed bool) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := []byte("hg_")
	for len(text) < 46 {
		text = append(text, digits[random.IntN(62)])
	}
	sum := crc32.ChecksumIEEE(text)
	if !wellFormed {
		sum++
	}
	tail := make([]byte, 6)
	for i := range tail {
		tail[5-i], sum = digits[sum%62], sum/62
	}
	return string(append(text, tail...))
}

// BenchmarkInvalidKeys measures what requests cost the server's processor, all
// in: sockets, net/http, the limiter, an API that answers at once. The kinds
// take turns within each iteration; what is reported is the median of the
// iterations, and of their ratios to requests without a key. Nothing is denied
// and no field is sent, which makes the requests as cheap, and the ratios as
// large, as they get.
//
//	go test -run '^$' -bench InvalidKeys -benchtime 20x ./keys
func BenchmarkInvalidKeys(b *testing.B) {
	address, valid := serve(b)
	ask := startClient(b, address, valid)
	const n = 10_000
	cost := map[string][]float64{}
	for _, kind := range kinds {
		ask(kind, n) // warm
	}
	for b.Loop() {
		for _, i := range rand.Perm(len(kinds)) {
			before := cpu(b)
			ask(kinds[i], n)
			cost[kinds[i]] = append(cost[kinds[i]], float64((cpu(b)-before).Nanoseconds())/n)
		}
	}
	for _, kind := range kinds {
		ratios := make([]float64, len(cost[kind]))
		for i := range ratios {
			ratios[i] = cost[kind][i] / cost["address"][i]
		}
		b.ReportMetric(median(cost[kind])/1000, "µs/"+kind)
		if kind != "address" {
			b.ReportMetric(median(ratios), "×/"+kind)
		}
	}
	b.ReportMetric(0, "ns/op") // of an iteration, which says nothing
}

// serve starts the handlers as a program has them, with 100,000 keys.
func serve(b *testing.B) (address, valid string) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	template, err := endpoint.ParseTemplate("GET /v1/items/{id}")
	must(err)
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	must(err)
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 40}}},
		policy.CompileOptions{Endpoints: table})
	must(problems.Err())
	buckets, err := memory.New(memory.Options{})
	must(err)
	digester, err := identity.NewDigester([]byte(strings.Repeat("secret! ", 4)))
	must(err)
	records := make([]identity.KeyRecord, 100_000)
	for i := range records {
		text, err := identity.NewKey()
		must(err)
		records[i] = identity.KeyRecord{
			Digest: digester.Digest(text),
			Key:    identity.Key{ID: fmt.Sprint("k_", i), Project: "acme"},
		}
		valid = text
	}
	ring := &identity.Keyring{}
	must(ring.Replace(records))
	who, err := identity.New(identity.Options{Keys: ring, Digester: digester})
	must(err)
	lim, err := headgate.New(headgate.Options{Endpoints: table, Policies: headgate.Fixed(set), Buckets: buckets,
		Identities: who})
	must(err)
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := &http.Server{
		Handler:           httplimit.Handler(lim, api, httplimit.Options{OmitFields: true}),
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String(), valid
}

// startClient returns a function that has so many requests of a kind sent and
// answered.
func startClient(b *testing.B, address, valid string) (ask func(kind string, n int)) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childAddress+"="+address, childKey+"="+valid)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		b.Fatal("the client does not start")
	}
	lines := bufio.NewScanner(out)
	expect := func(word string) {
		if !lines.Scan() || lines.Text() != word {
			b.Fatalf("the client says %q, want %q", lines.Text(), word)
		}
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	expect("ready")
	return func(kind string, n int) {
		_, _ = io.WriteString(in, fmt.Sprintln(kind, n))
		expect("done")
	}
}

// cpu is what this process has spent so far, in user and in system time.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func median(values []float64) float64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
}
