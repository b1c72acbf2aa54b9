package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/serve/resp"
)

// server is one whose clock stands.
type server struct {
	at  string
	now atomic.Int64

	mu     sync.Mutex
	faults []string // guarded by mu
}

func (s *server) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

func start(t testing.TB, change ...func(*resp.Options)) *server {
	t.Helper()
	s := &server{}
	s.now.Store(trial.Epoch.UnixNano())
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a", "POST /login"},
		[]policy.Rule{{Endpoint: "default", Name: "each", Limit: 2, Per: time.Minute}})
	answers, err := decisions.NewAnswers(decisions.Options{Limiter: b.Limiter, Trusted: netip.Addr.IsLoopback})
	if err != nil {
		t.Fatal(err)
	}
	hasher := key.NewHasher()
	o := resp.Options{
		Buckets: buckets, Name: func(k []byte) (key.Key, uint16) { return hasher.Key(0, 0, k), 0 }, Now: s.now.Load,
		Check:   answers.Ask,
		Trusted: netip.Addr.IsLoopback, MaxConnections: 100,
		Failed: func(f decisions.Fault, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.faults = append(s.faults, f.String()+": "+err.Error())
		},
	}
	for _, c := range change {
		c(&o)
	}
	served, err := resp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = l.Close()
		if err := errors.Join(served.Shutdown(ctx), <-ended); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	s.at = l.Addr().String()
	return s
}

// say sends bytes and returns what comes until the server closes, or all of them are answered: the client says QUIT.
func (s *server) say(t testing.TB, bytes string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, bytes) }()
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		t.Logf("%.60q: %v", bytes, err)
	}
	return string(got)
}

// ask sends a command as words, and returns the reply in one line.
func (s *server) ask(t testing.TB, command string) string {
	t.Helper()
	text := s.say(t, command+"\r\nQUIT\r\n")
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(text, "+OK\r\n"), "\r\n"), "\r\n", " ")
}

// The session of redis-cell's README, and what follows from its words.
func TestThrottle(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		after   time.Duration
		command string
		want    string // limited, limit, remaining, retry after, reset after
	}{
		{0, "CL.THROTTLE user123 15 30 60", "*5 :0 :16 :15 :-1 :2"},
		{0, "cl.throttle user123 15 30 60 1", "*5 :0 :16 :14 :-1 :4"},
		{0, "CL.THROTTLE user123 15 30 60 14", "*5 :0 :16 :0 :-1 :32"},
		{0, "CL.THROTTLE user123 15 30 60", "*5 :1 :16 :0 :2 :32"},
		{0, "CL.THROTTLE user123 15 30 60 5", "*5 :1 :16 :0 :10 :32"},
		{1500 * time.Millisecond, "CL.THROTTLE user123 15 30 60", "*5 :1 :16 :0 :1 :31"}, // half a second is one
		{500 * time.Millisecond, "CL.THROTTLE user123 15 30 60", "*5 :0 :16 :0 :-1 :32"},
		{0, "CL.THROTTLE user123 15 30 60 0", "*5 :0 :16 :0 :-1 :32"},  // only looks
		{0, "CL.THROTTLE user123 15 30 60 17", "*5 :1 :16 :0 :-1 :32"}, // never
		{0, "CL.THROTTLE other 0 1 60", "*5 :0 :1 :0 :-1 :60"},         // no burst
		{0, "CL.THROTTLE other 0 1 60", "*5 :1 :1 :0 :60 :60"},         //
		{0, "CL.THROTTLE ages 1 1 9000000000", "*5 :0 :2 :1 :-1 :9000000000"},
		{0, "CL.THROTTLE ages 1 1 9000000000", "*5 :0 :2 :0 :-1 :9223372037"}, // as long as can be told
		{time.Hour, "CL.THROTTLE user123 15 30 60 0", "*5 :0 :16 :16 :-1 :0"}, // full again
	} {
		s.now.Add(int64(c.after))
		if got := s.ask(t, c.command); got != c.want {
			t.Errorf("%s: %s, want %s", c.command, got, c.want)
		}
	}
}

// A key whose limit changes keeps what it owes: no change gives a full bucket.
func TestThrottleUnderAnotherLimit(t *testing.T) {
	s := start(t)
	for _, c := range []struct{ command, want string }{
		{"CL.THROTTLE k 9 10 60 10", "*5 :0 :10 :0 :-1 :60"},
		{"CL.THROTTLE k 1 1 60 1", "*5 :1 :2 :0 :60 :120"},
		{"CL.THROTTLE k 99 100 60 1", "*5 :0 :100 :89 :-1 :7"},
		{"CL.THROTTLE k 9 10 60 1", "*5 :1 :10 :0 :6 :60"},
	} {
		if got := s.ask(t, c.command); got != c.want {
			t.Errorf("%s: %s, want %s", c.command, got, c.want)
		}
	}
}

func TestCommands(t *testing.T) {
	s := start(t)
	for command, want := range map[string]string{
		"PING": "+PONG", "PING hello": "$5 hello", "ECHO x": "$1 x", "SELECT 0": "+OK",
		"SELECT 1": "-ERR DB index is out of range", "CLIENT SETNAME x": "+OK", "CLIENT ID": ":1",
		"CLIENT":             "-ERR wrong number of arguments for 'client' command",
		"CLIENT TRACKING ON": "-ERR unknown subcommand of CLIENT", "RESET": "+RESET", "COMMAND DOCS": "*0",
		"GET x": "-ERR unknown command 'GET'", strings.Repeat("x", 100): "-ERR unknown command '" +
			strings.Repeat("x", 64) + "'",
		"CL.THROTTLE":             "-ERR wrong number of arguments for 'cl.throttle' command",
		"CL.THROTTLE a 1 1":       "-ERR wrong number of arguments for 'cl.throttle' command",
		"CL.THROTTLE a 1 1 1 1 1": "-ERR wrong number of arguments for 'cl.throttle' command",
		"CL.THROTTLE a -1 1 1":    "-ERR max_burst is not a whole number of 0 or more",
		"CL.THROTTLE a 1 0 1":     "-ERR count per period is not a whole number of 1 or more",
		"CL.THROTTLE a 1 1 0":     "-ERR period is not a whole number of 1 or more",
		"CL.THROTTLE a 1 1 1 -1":  "-ERR quantity is not a whole number of 0 or more",
		"CL.THROTTLE a x 1 1":     "-ERR max_burst is not a whole number of 0 or more",
		"CL.THROTTLE a 1.5 1 1":   "-ERR max_burst is not a whole number of 0 or more",
		"CL.THROTTLE a 1 1 1e3":   "-ERR period is not a whole number of 1 or more",
		"AUTH x": "-ERR AUTH <password> called without any password configured for " +
			"the default user. Are you sure your configuration is correct?",
		"HELLO 4": "-NOPROTO unsupported protocol version",
		"HELLO": "*10 $6 server $8 headgate $7 version $5 7.0.0 $5 proto :2 $4 " +
			"mode $10 standalone $4 role $6 master",
		"HELLO 3 SETNAME me": "%5 $6 server $8 headgate $7 version $5 7.0.0 $5 proto :3 $4 mode " +
			"$10 standalone $4 role $6 master",
		"CL.THROTTLE a 9223372036854775807 1 1": "-ERR the limit is larger than can be counted",
		"CL.THROTTLE a 1 1 9223372036854775807": "-ERR the limit is larger than can be counted",
	} {
		if got := s.ask(t, command); got != want {
			t.Errorf("%.60s: %s, want %s", command, got, want)
		}
	}
	if got := s.ask(t, "CL.THROTTLE a 9223372036854775806 1 1000000000"); !strings.HasPrefix(got,
		"-ERR the limit cannot be counted: ") {
		t.Errorf("a limit that cannot be counted: %s", got)
	}
}

// HG.CHECK goes through the whole pipeline.
func TestCheck(t *testing.T) {
	s := start(t)
	for _, c := range []struct{ command, want string }{
		{"HG.CHECK GET /a 192.0.2.1", "*7 :0 :1 :1 :-1 :30 :200 $4 each"},
		{"HG.CHECK GET //a/?x 192.0.2.1 HEADER Accept */* HEADER accept text/html", "*7 :0 :1 :0 :-1 :60 :200 $4 each"},
		{"HG.CHECK GET /a 192.0.2.1", "*7 :1 :1 :0 :30 :60 :429 $4 each"},
		{"HG.CHECK GET /a 192.0.2.2 COST 2", "*7 :0 :2 :0 :-1 :60 :200 $4 each"},
		{"HG.CHECK GET /b 192.0.2.1", "*7 :1 :0 :-1 :-1 :-1 :404 $0 "},
		{"HG.CHECK GET /%00 192.0.2.1", "*7 :1 :0 :-1 :-1 :-1 :400 $0 "},
		{"HG.CHECK GET /a 192.0.2.3 HEADER X-HTTP-Method-Override PUT", "*7 :1 :0 :-1 :-1 :-1 :400 $0 "},
		{"HG.CHECK POST /login 192.0.2.1 IDENTIFIER me", "*7 :0 :1 :1 :-1 :30 :200 $4 each"},
		{"HG.CHECK GET /a", "-ERR wrong number of arguments for 'hg.check' command"},
		{"HG.CHECK GET /a me", "-ERR client is no address, want one such as 192.0.2.7"},
		{"HG.CHECK GET /a 192.0.2.1 COST x", "-ERR COST is not a whole number of 0 or more"},
		{"HG.CHECK GET /a 192.0.2.1 HEADER x", "-ERR syntax error, want COST n, IDENTIFIER text or HEADER name value"},
	} {
		if got := s.ask(t, c.command); strings.TrimSpace(got) != strings.TrimSpace(c.want) {
			t.Errorf("%s: %s, want %s", c.command, got, c.want)
		}
	}
}

// What is no command ends the connection with a word, takes no memory for what it announces, and leaves others alone.
func TestProtocolErrors(t *testing.T) {
	s := start(t)
	for sent, want := range map[string]string{
		"*1000000000\r\n":                      "-ERR Protocol error: invalid multibulk length\r\n",
		"*-1\r\n":                              "-ERR Protocol error: invalid multibulk length\r\n",
		"*x\r\n":                               "-ERR Protocol error: invalid multibulk length\r\n",
		"*\r\n":                                "-ERR Protocol error: invalid multibulk length\r\n",
		"*1\r\n$-1\r\n":                        "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$1000000000\r\n":                "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n$99999999999999999999\r\n":      "-ERR Protocol error: invalid bulk length\r\n",
		"*1\r\n:1\r\n":                         "-ERR Protocol error: expected '$'\r\n",
		"*1\r\n\r\n":                           "-ERR Protocol error: expected '$'\r\n",
		"*1\r\n$4\r\nPINGxx":                   "-ERR Protocol error: a bulk string does not end where it says\r\n",
		strings.Repeat("x", 20<<10) + "\r\n":   "-ERR Protocol error: too big inline request\r\n",
		"*1\r\n$4\r\nPING\r\n*9999999\r\nPING": "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n",
	} {
		if got := s.say(t, sent); got != want {
			t.Errorf("%.40q: %q, want %q", sent, got, want)
		}
	}
	if got := s.ask(t, "PING"); got != "+PONG" || len(s.told()) != 12 {
		t.Errorf("after them: %s, told of %d faults, want 12", got, len(s.told()))
	}
	big := "$65536\r\n" + strings.Repeat("x", 65536) + "\r\n"
	if got := s.say(t, "*6\r\n"+strings.Repeat(big, 6)); got != "-ERR Protocol error: invalid bulk length\r\n" {
		t.Errorf("a command of 384 KiB: %q", got)
	}
}

// Many commands at once are answered in order, and in few writes.
func TestPipeline(t *testing.T) {
	s := start(t)
	const n = 5000
	var sent, want strings.Builder
	for i := range n {
		fmt.Fprintf(&sent, "*2\r\n$4\r\nECHO\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
		fmt.Fprintf(&want, "$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
	}
	if got := s.say(t, "\r\n*0\r\n"+sent.String()+"QUIT\r\n"); got != want.String()+"+OK\r\n" {
		t.Errorf("%d bytes of replies, want %d", len(got), want.Len())
	}
}

// A client that is never silent is not taken for one that is slow, and one that stops within a command is.
func TestPatience(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *resp.Options) { o.Patience = time.Second })
	c, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	const at = "*1\r\n$4\r\nPING\r\n"
	begun := time.Now()
	replies := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, c)
		replies <- n
	}()
	var sent int64
	for burst := strings.Repeat(at, 1000); time.Since(begun) < 2500*time.Millisecond; sent += 1000 {
		if _, err := io.WriteString(c, burst+at[:5]); err != nil { // so that a command is always under way
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		if _, err := io.WriteString(c, at[5:]); err != nil {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		sent++
	}
	if _, err := io.WriteString(c, at[:5]); err != nil {
		t.Fatal(err)
	}
	if got := <-replies; got != sent*int64(len("+PONG\r\n")) {
		t.Errorf("%d bytes of replies to %d commands", got, sent)
	}
	if told := s.told(); len(told) != 1 || !strings.HasPrefix(told[0], "incomplete: ") {
		t.Errorf("told of %v, want of the command that broke off", told)
	}
}

// A client that takes no replies is read from no more, and is closed; others are answered meanwhile.
func TestClientsThatNeverRead(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *resp.Options) { o.Patience = 200 * time.Millisecond })
	mute, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	if err := mute.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	command := "*2\r\n$4\r\nECHO\r\n$60000\r\n" + strings.Repeat("x", 60000) + "\r\n"
	sent := 0
	for err == nil {
		var n int
		n, err = io.WriteString(mute, command)
		sent += n
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || sent > 64<<20 {
		t.Errorf("%d bytes are taken, then %v, want the connection closed", sent, err)
	}
	if got := s.ask(t, "PING"); got != "+PONG" {
		t.Errorf("another client: %s", got)
	}
}

func TestPassword(t *testing.T) {
	s := start(t, func(o *resp.Options) { o.Password = "s3cret" })
	for sent, want := range map[string]string{
		"PING":                         "-NOAUTH Authentication required.",
		"CL.THROTTLE a 1 1 1":          "-NOAUTH Authentication required.",
		"AUTH wrong":                   "-WRONGPASS invalid username-password pair or user is disabled.",
		"AUTH s3cret\r\nPING":          "+OK +PONG",
		"AUTH default s3cret\r\nPING":  "+OK +PONG",
		"AUTH s3cret\r\nRESET\r\nPING": "+OK +RESET -NOAUTH Authentication required.",
		"HELLO 3 AUTH default wrong\r\nPING": "-WRONGPASS invalid username-password pair or user is disabled. " +
			"-NOAUTH Authentication required.",
	} {
		if got := s.ask(t, sent); got != want {
			t.Errorf("%q: %s, want %s", sent, got, want)
		}
	}
	if got := s.ask(t, "HELLO 3 AUTH default s3cret\r\nPING"); !strings.HasPrefix(got, "%5") ||
		!strings.HasSuffix(got, "+PONG") {
		t.Errorf("HELLO with the password: %s", got)
	}
	if got := s.ask(t, "HELLO 2"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("HELLO without it: %s", got)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := start(t, func(o *resp.Options) { o.MaxConnections = 3 })
	var open []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "PING\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); line != "+PONG\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
		open = append(open, c)
	}
	if got := s.say(t, ""); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the fourth connection: %q", got)
	}
	_ = open[0].Close()
	for deadline := time.Now().Add(time.Minute); s.ask(t, "PING") != "+PONG"; {
		if time.Now().After(deadline) {
			t.Fatal("a connection that ended makes no room")
		}
	}
}

func TestOnlyTrustedPeersMayConnect(t *testing.T) {
	s := start(t, func(o *resp.Options) { o.Trusted = func(netip.Addr) bool { return false } })
	if got := s.say(t, ""); got != "-ERR this address may not connect\r\n" || len(s.told()) != 1 {
		t.Errorf("%q, told of %v", got, s.told())
	}
}

// away is a store that cannot be asked.
type away struct{ bucket.Store }

func (away) TryConsume(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return false, errors.Join(bucket.ErrLost, errors.New("redis: secret"))
}

func TestStoreAway(t *testing.T) {
	s := start(t, func(o *resp.Options) { o.Buckets = away{o.Buckets} })
	if got := s.ask(t, "CL.THROTTLE a 1 1 1"); got != "-UNAVAILABLE the limits cannot be checked at the moment" {
		t.Errorf("%s", got)
	}
}

// A limit that the store cannot count is an error in words, and the store is not asked.
func TestLimitsThatCannotBeKept(t *testing.T) {
	s := start(t, func(o *resp.Options) {
		o.Keeps = func(shape rate.Shape) error {
			if shape.Burst() > 1000 {
				return errors.New("the burst is above 1000")
			}
			return nil
		}
		o.Buckets = only{o.Buckets, t}
	})
	if got := s.ask(t, "CL.THROTTLE a 1000 1 1"); got != "-ERR the limit cannot be counted: the burst is above 1000" {
		t.Error(got)
	}
	if got := s.ask(t, "CL.THROTTLE a 999 1 1"); got != "*5 :0 :1000 :999 :-1 :1" {
		t.Error(got)
	}
}

// only is a store that is to see no burst above 1000.
type only struct {
	bucket.Store
	t *testing.T
}

func (o only) TryConsume(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	if takes[0].Shape.Burst() > 1000 {
		o.t.Error("the store is asked for a limit that it cannot keep")
	}
	return o.Store.TryConsume(ctx, now, takes, outs)
}

// The real clients: what they say when they connect is understood, and what is answered too.
func TestRedisClients(t *testing.T) {
	s := start(t, func(o *resp.Options) { o.Password = "s3cret" })
	_, port, _ := net.SplitHostPort(s.at)
	for _, version := range []string{"-2", "-3"} {
		out, err := exec.Command("redis-cli", "-p", port, "--no-auth-warning", "-a", "s3cret", version, "CL.THROTTLE",
			"user"+version, "15", "30", "60").CombinedOutput()
		if err != nil || string(out) != "0\n16\n15\n-1\n2\n" {
			t.Errorf("redis-cli %s: %q, %v", version, out, err)
		}
	}
	out, err := exec.Command("redis-benchmark", "-p", port, "-a", "s3cret", "-n", "2000", "-P", "16", "-q",
		"CL.THROTTLE", "key", "1000", "10", "1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "requests per second") {
		t.Errorf("redis-benchmark: %s, %v", out, err)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := resp.New(resp.Options{})
	want := "resp options: Buckets is nil, want a store\nName is nil, want a function that names buckets\nNow is " +
		"nil, want a clock\nTrusted is nil, want a function that says who may connect\nMaxConnections is 0, want 1 " +
		"or more"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v, want %s", err, want)
	}
}

// FuzzCommands: whatever is sent, the connection ends, and the server answers the next one.
func FuzzCommands(f *testing.F) {
	for _, sent := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n",
		"*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n", "*1000000000\r\n", "*1\r\n$-1\r\n",
		"HELLO 3\r\n", "HG.CHECK GET /a 192.0.2.1\r\n", "\x00\xff\r\n"} {
		f.Add(sent)
	}
	s := start(f)
	f.Fuzz(func(t *testing.T, sent string) {
		c, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		go func() { _, _ = io.WriteString(c, sent); _ = c.(*net.TCPConn).CloseWrite() }()
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if got := s.ask(t, "PING"); got != "+PONG" {
			t.Fatalf("after %q a PING is answered %q", sent, got)
		}
	})
}
