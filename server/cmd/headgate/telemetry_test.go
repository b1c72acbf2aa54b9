package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/livelog"
	wire "github.com/headgate-io/headgate/pace/telemetry"
)

const telemetrySecret = "0123456789abcdef0123456789abcdef"

// aggregatorProcess is a real "headgate telemetry".
type aggregatorProcess struct {
	*exec.Cmd
	udp, admin string
	log        *livelog.Text
}

func startAggregator(t *testing.T, program string, args ...string) *aggregatorProcess {
	t.Helper()
	p := &aggregatorProcess{
		Cmd: exec.Command(program, append([]string{"telemetry"}, args...)...),
		log: new(livelog.Text),
	}
	p.Stderr = p.log
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch value = strings.TrimSpace(value); name {
		case "udp":
			p.udp = value
		case "admin":
			p.admin = value
		}
		if p.udp != "" && (p.admin != "" || strings.Contains(strings.Join(args, " "), "--reference")) {
			return p
		}
	}
	t.Fatalf("headgate telemetry %q did not start: %s", args, p.log)
	return nil
}

func writeSecret(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "telemetry.secret")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The real process, its client, a flood from other sockets, a kill and a start: the client has answers before, amid
// and after, and learns that the newcomer knows nothing yet.
func TestTelemetryProcess(t *testing.T) {
	program := buildProgram(t, repository(t))
	t.Run("reference", func(t *testing.T) { testTelemetryReference(t, program) })
	t.Run("file", func(t *testing.T) { testTelemetryFile(t, program) })
	secret := writeSecret(t, telemetrySecret)
	args := []string{"--quota", "api=80/60s,burst=100", "--secret-file", secret, "--admin", "127.0.0.1:0",
		"--window", "1s"}
	p := startAggregator(t, program, append(args, "--udp", "127.0.0.1:0")...)
	client, err := wire.New(wire.Options{Addr: p.udp, Quota: "api", Secret: []byte(telemetrySecret)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(wire.State{})
	sent := uint64(0)
	answered := func(what string, ok func(wire.Aggregate) bool) {
		t.Helper()
		before, _ := client.Latest()
		if !eventually(time.Minute, func() bool {
			sent++
			client.Report(wire.State{Sent: sent, Queue: 7})
			a, heard := client.Latest()
			return heard && a.Number > before.Number && ok(a)
		}) {
			a, _ := client.Latest()
			t.Fatalf("%s: no such answer in a minute; the latest is %+v; %s", what, a, p.log)
		}
	}
	answered("before", func(a wire.Aggregate) bool { return a.Warm && a.Configured && a.Queue == 7 && a.Active == 1 })

	// The loopback has many addresses: the flood is from another one than the client.
	flooder, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, udpAddress(t, p.udp))
	if err != nil {
		t.Fatal(err)
	}
	defer flooder.Close()
	forged := wire.Report{
		Quota:     "api",
		Client:    1,
		Number:    1,
		Congested: true,
		Queue:     9999,
		Time:      time.Now(),
	}.Append(nil, []byte("guessed"))
	// Of what is sent much is lost where the aggregator gets no processor: more, until enough came.
	text := ""
	if !eventually(time.Minute, func() bool {
		for i := range 20_000 {
			switch i % 3 {
			case 0:
				_, _ = flooder.Write(forged)
			case 1:
				_, _ = flooder.Write([]byte(`{"type":"cong","id":`))
			default:
				_, _ = flooder.Write(bytes.Repeat([]byte{byte(i)}, i%1400))
			}
		}
		text = scrape(t, p.admin)
		return strings.Contains(text, `headgate_telemetry_refused_total{reason="flood"} `) &&
			!strings.Contains(text, `reason="flood"} 0`)
	}) {
		t.Errorf("the flood is not counted:\n%s", text)
	}
	_ = flooder.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := flooder.Read(make([]byte, 100)); err == nil {
		t.Errorf("the flood is answered with %d bytes", n)
	}
	answered("amid the flood", func(a wire.Aggregate) bool { return a.Refusing == 0 && a.Queue == 7 })
	if p.log.String() != "" {
		t.Errorf("the flood is written to the log: %.300s", p.log)
	}

	// The previous secret goes on while clients are told the new one; a broken file changes nothing.
	if err := os.WriteFile(secret, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = p.Process.Signal(syscall.SIGHUP)
	answered("after a bad reload", func(wire.Aggregate) bool { return true })
	if err := os.WriteFile(secret, []byte(strings.Repeat("n", 40)+"\n"+telemetrySecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = p.Process.Signal(syscall.SIGHUP)
	answered("after a new secret", func(wire.Aggregate) bool { return true })
	if !eventually(time.Minute, func() bool { return asks(t, p.udp, secret) == nil }) {
		t.Errorf("the new secret is not taken: %v", asks(t, p.udp, secret))
	}

	_ = p.Process.Kill()
	_ = p.Wait()
	p = startAggregator(t, program, append(args, "--udp", p.udp, "--window", "1h")...)
	answered("after a kill", func(a wire.Aggregate) bool { return !a.Warm })
}

func udpAddress(t *testing.T, text string) *net.UDPAddr {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func scrape(t *testing.T, admin string) string {
	t.Helper()
	response, err := http.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asks runs "headgate telemetry ask" in this process.
func asks(t *testing.T, udp, secret string) error {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"telemetry", "ask", "--addr", udp, "--quota", "api", "--secret-file",
		secret}, &out, &errs); code != exitOK {
		return fmt.Errorf("%d: %s", code, &errs)
	}
	if !strings.Contains(out.String(), "capacity   1.33 a second") {
		return fmt.Errorf("it prints %s", &out)
	}
	return nil
}

// The published code's JSON is spoken with this machine alone.
func testTelemetryReference(t *testing.T, program string) {
	t.Helper()
	p := startAggregator(t, program, "--reference", "80", "--udp", "127.0.0.1:0")
	conn, err := net.Dial("udp", p.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, message := range []string{"not JSON, which ended the published one", `{"type":"stat","id":7,"sent":12}`} {
		if _, err := io.WriteString(conn, message); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 1000)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := conn.Read(b)
	if want := `{"total_requests":0,"active_clients":1,"reported_429":0,"token_rate":80}`; err != nil ||
		string(b[:n]) != want {
		t.Errorf("answer %s, %v; want %s", b[:n], err, want)
	}
}

// writeCertificate makes one for the loopback that vouches for itself, and returns who trusts it.
func writeCertificate(t *testing.T, dir string) (cert, key string, trusting *http.Client) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	pkcs8, err2 := x509.MarshalPKCS8PrivateKey(private)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(err1, err2, os.WriteFile(cert, certPEM, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600)); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return cert, key, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
		DisableKeepAlives: true}}
}

// Reports come over TLS too. A reload that finds a broken certificate keeps the one in force, and the secret with it;
// the next one takes over both.
func TestTelemetryOverTLS(t *testing.T) {
	dir, secret := t.TempDir(), writeSecret(t, telemetrySecret)
	cert, key, first := writeCertificate(t, dir)
	f := telemetryFlags{
		udp:        "none",
		http:       "127.0.0.1:0",
		admin:      "none",
		quotas:     []string{"api"},
		secretFile: secret,
		cert:       cert,
		key:        key,
		perSource:  1000,
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, w := io.Pipe()
	var log bytes.Buffer
	hangup, ended := make(chan os.Signal), make(chan error, 1)
	settings := func() (telemetryFlags, error) { return f, nil }
	go func() { ended <- serveTelemetry(ctx, w, slog.New(slog.NewTextHandler(&log, nil)), hangup, settings) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Fields(line)[1]
	number := uint64(time.Now().UnixMilli())
	post := func(by *http.Client, secret string) error {
		number++
		key := wire.ClientKey([]byte(secret), "api", 7)
		report := wire.Report{Quota: "api", Client: 7, Number: number, Time: time.Now()}.Append(nil, key)
		response, err := by.Post(url, "application/octet-stream", bytes.NewReader(report))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		_, err = wire.ReadAggregate(body, key)
		return err
	}
	if err := post(first, telemetrySecret); err != nil {
		t.Errorf("a report over TLS: %v", err)
	}
	other := strings.Repeat("n", 40)
	if err := errors.Join(os.WriteFile(cert, []byte("broken"), 0o600),
		os.WriteFile(secret, []byte(other+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	hangup <- syscall.SIGHUP
	hangup <- syscall.SIGHUP // taken when the first was dealt with
	if err := post(first, telemetrySecret); err != nil {
		t.Errorf("after a reload that found a broken certificate: %v", err)
	}
	_, _, second := writeCertificate(t, dir)
	hangup <- syscall.SIGHUP
	hangup <- syscall.SIGHUP
	if err := post(second, other); err != nil {
		t.Errorf("after a reload of both: %v", err)
	}
	if post(first, other) == nil || post(second, telemetrySecret) == nil {
		t.Error("the old certificate or the old secret is in force beside the new one")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	for _, want := range []string{"reload failed: what was in force before stays", `changed="secret, certificate"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is %s, want %q in it", &log, want)
		}
	}
}

func TestTelemetryFlags(t *testing.T) {
	short, three := writeSecret(t, "short"), writeSecret(t, telemetrySecret, telemetrySecret, telemetrySecret)
	for name, c := range map[string]struct {
		args string
		code int
		want []string
	}{
		"nothing": {"", exitUsage, []string{"want --secret-file; to make one: openssl rand -hex 32",
			"want --quota, such as --quota api=80/60s,burst=100"}},
		"no address": {"--udp none --http nowhere", exitUsage,
			[]string{`--http is "nowhere", want an address and a port`}},
		"no way in":      {"--udp none", exitUsage, []string{"want one of them at least"}},
		"metrics to all": {"--admin 0.0.0.0:8127", exitUsage, []string{"want an address of this machine"}},
		"half a pair": {"--http 127.0.0.1:0 --tls-cert x", exitUsage,
			[]string{"want --tls-cert and --tls-key, or neither"}},
		"TLS for nothing": {"--tls-cert x --tls-key y", exitUsage, []string{"--http, which is none"}},
		"origin":          {"--origin https://a.example/b", exitUsage, []string{`--origin is "https://a.example/b"`}},
		"quota":           {"--quota A=1", exitUsage, []string{`quota is "A"`}},
		"limit": {"--quota api=80", exitUsage,
			[]string{`the limit is "80", want REQUESTS/TIME, such as 80/60s`}},
		"burst": {"--quota api=80/60s,100", exitUsage,
			[]string{`"100" stands after the limit, want burst=REQUESTS`}},
		"not a number": {"--quota api=NaN/60s", exitUsage, []string{"want REQUESTS/TIME"}},
		"no such file": {"--quota api --secret-file /nowhere/s", exitFailure,
			[]string{"/nowhere/s is not there; to make it: openssl rand -hex 32"}},
		"short secret": {"--quota api --secret-file " + short, exitFailure,
			[]string{"line 1 has 5 bytes, want 32 or more"}},
		"three secrets": {"--quota api --secret-file " + three, exitFailure, []string{"has 3 lines"}},
		"window": {"--quota api --window 1ms --secret-file " + writeSecret(t, telemetrySecret), exitUsage,
			[]string{"window is 1ms, want 1s to 1h"}},
		"twice": {"--quota api --quota api --secret-file " + writeSecret(t, telemetrySecret), exitUsage,
			[]string{`quota "api" is given twice`}},
		"reference for all": {"--reference 80 --udp 0.0.0.0:0", exitUsage, []string{"is not signed"}},
		"reference and":     {"--reference 80 --quota api", exitUsage, []string{"goes with --udp alone"}},
		"client":            {"key --quota api --client x", exitUsage, []string{`--client is "x", want a number`}},
	} {
		var out, errs bytes.Buffer
		ctx, stop := context.WithCancel(context.Background())
		stop() // what starts after all ends at once
		code := run(ctx, append([]string{"telemetry"}, strings.Fields(c.args)...), &out, &errs)
		if code != c.code {
			t.Errorf("%s: exit status %d, want %d", name, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: says\n%swant %s", name, errs.String(), want)
			}
		}
	}
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"telemetry", "key", "--quota", "api", "--client", "42",
		"--secret-file", writeSecret(t, telemetrySecret)}, &out, &errs); code != exitOK {
		t.Fatal(errs.String())
	}
	if got, err := base64.StdEncoding.DecodeString(strings.TrimSpace(out.String())); err != nil ||
		!bytes.Equal(got, wire.ClientKey([]byte(telemetrySecret), "api", 42)) {
		t.Errorf("key %q, %v", out.String(), err)
	}
}

// SIGHUP has a running aggregator take over its file: all of what can change, or nothing.
func testTelemetryReload(t *testing.T, p *aggregatorProcess, write func(name, text string)) {
	t.Helper()
	reloaded := func(file, line string, metrics ...string) {
		t.Helper()
		write("telemetry.yaml", file)
		_ = p.Process.Signal(syscall.SIGHUP)
		if !eventually(time.Minute, func() bool { return strings.Contains(p.log.String(), line) }) {
			t.Fatalf("the log is\n%swant %q in it", p.log, line)
		}
		text := scrape(t, p.admin)
		for _, want := range metrics {
			if !strings.Contains(text, "\nheadgate_telemetry_"+want+"\n") {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	}
	reloaded("quotas: [\"api=160/60s\", third]\nsecret_file: telemetry.secret\nudp: 127.0.0.1:1\nwindow: 25s\n"+
		"max_clients: 60\n",
		`reloaded, but some settings wait for a restart" changed="quotas, max_clients" restart="udp, window"`,
		`capacity{quota="api"} 2.6666666666666665`, `clients{quota="api"} 1`, `clients{quota="third"} 0`,
		`config_reloads_total{outcome="ok"} 1`, `config_reload_ok 1`)
	reloaded(
		"quotas: [\"api=1/60s\", fourth]\nsecret_file: telemetry.secret\nwindow: 1ms\nmax_clients: 0x\nudp_: none\n",
		"reload failed: what was in force before stays",
		`capacity{quota="api"} 2.6666666666666665`, `clients{quota="third"} 0`,
		`config_reloads_total{outcome="failed"} 1`, `config_reload_ok 0`)
	if text := scrape(t, p.admin); strings.Contains(text, "fourth") || strings.Contains(text, `"other"`) {
		t.Errorf("a quota of a file with faults, or one that was taken out, is there:\n%s", text)
	}
	reloaded("quotas: [\"api=80/60s\"]\nsecret_file: telemetry.secret\nudp: 127.0.0.1:0\nwindow: 20s\n",
		`msg=reloaded changed="quotas, max_clients"`, `capacity{quota="api"} 1.3333333333333333`, `config_reload_ok 1`)
}

// A file has the same settings as the command line, which wins over it; what is wrong with it is
// said with its line, all at once.
func testTelemetryFile(t *testing.T, program string) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("telemetry.secret", telemetrySecret+"\n")
	write("telemetry.yaml", "# of the team\nquotas: [\"api=80/60s,burst=100\", other]\nsecret_file: "+
		"telemetry.secret\nudp: 127.0.0.1:0\nadmin: 127.0.0.1:1\nwindow: 20s\nmax_clients: 50\n")
	p := startAggregator(t, program, "--config", "telemetry.yaml", "--admin", "127.0.0.1:0")
	out, err := exec.Command(program, "telemetry", "ask", "--addr", p.udp, "--quota", "api", "--secret-file",
		"telemetry.secret", "--timeout", "1m").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "in the last 20s") ||
		!strings.Contains(string(out), "1.33 a second") {
		t.Errorf("%v, %s, want a window of 20s and the capacity of the file", err, out)
	}
	testTelemetryReload(t, p, write)
	write("wrong.yaml",
		"quotas: api\nsecret_flie: telemetry.secret\nwindow: soon\n\nmax_clients: [1]\nudp: none\nudp: none\n")
	write("empty.yaml", "")
	write("list.yaml", "- quotas\n")
	for file, wants := range map[string][]string{
		"wrong.yaml": {"wrong.yaml:1: quotas is api, want a list",
			"wrong.yaml:2: secret_flie is no setting, want one of admin,",
			"wrong.yaml:3: window is soon, want a time such as 30s",
			"wrong.yaml:5: max_clients is [1], want one value"},
		"empty.yaml": {"want --secret-file", "want --quota"},
		"list.yaml":  {"want settings"},
		"none.yaml":  {"no such file"},
	} {
		out, err := exec.Command(program, "telemetry", "--config", file).CombinedOutput()
		for _, want := range wants {
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v, %s, want %q", file, err, out, want)
			}
		}
	}
}
