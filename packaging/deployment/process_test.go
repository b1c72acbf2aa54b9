package deployment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/livelog"
	"github.com/headgate-io/headgate/internal/mortal"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/database/dbtest"
)

// build makes the command by the steps of the Dockerfile, in a folder in the place of /src, and of /out another one.
var build = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		return "", err
	}
	out, err := os.MkdirTemp("", "headgate-image-")
	if err != nil {
		return "", err
	}
	src, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	stage, _, _ := strings.Cut(string(text), "FROM scratch")
	for line := range strings.Lines(stage) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "RUN ")
		if !ok {
			continue
		}
		cmd := exec.Command("sh", "-ec", strings.ReplaceAll(command, "/out", out))
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath")
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", command, err, said)
		}
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if out, err := build(); err == nil {
		_ = os.RemoveAll(out)
	}
	os.Exit(code)
}

func program(t *testing.T) string {
	t.Helper()
	root, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "usr", "bin", "headgate")
}

// TestDockerfile: what its steps make is an image's root: small, of a program that needs no library, and nothing else.
func TestDockerfile(t *testing.T) {
	binary := program(t)
	info, err := os.Stat(binary)
	if err != nil || info.Size() > 80<<20 {
		t.Errorf("the command: %v, %v", info, err)
	}
	if said, _ := exec.Command("ldd", binary).CombinedOutput(); !strings.Contains(string(said),
		"not a dynamic executable") {
		t.Errorf("ldd: %s, want a static program", said)
	}
	var files []string
	root := strings.TrimSuffix(binary, "/usr/bin/headgate")
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil || strings.Join(files, " ") != "/etc/group /etc/passwd /usr/bin/headgate" {
		t.Errorf("the image holds %q, %v", files, err)
	}
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`^(#|ARG |FROM |WORKDIR |COPY |ENV |RUN |USER 65532:65532$|VOLUME |EXPOSE |STOPSIGNAL |ENTRYPOINT \[|CMD \[|$)`)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\n"); !known.MatchString(line) {
			t.Errorf("Dockerfile: %q is no instruction that this test knows", line)
		}
	}
}

// running is a process of a test.
type running struct {
	log  *livelog.Text
	done chan error
	cmd  *exec.Cmd
}

func start(t *testing.T, dir, name string, args ...string) *running {
	t.Helper()
	r := &running{log: &livelog.Text{}, done: make(chan error, 1), cmd: exec.Command(name, args...)}
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = dir, r.log, r.log
	if err := mortal.Start(r.cmd, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		<-r.done
	})
	return r
}

// eventually waits for what other processes do in their own time.
func (r *running) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-r.done:
			r.done <- err
			t.Fatalf("%s: the process ended: %v\n%s", what, err, r.log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s\n%s", what, r.log)
		}
	}
}

func get(url, token string) (status int, body string) {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func addresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		port, err := freeport.Pick()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return all
}

func place(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
		os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func exampleAPI(t *testing.T) string {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// TestChartServes runs the gateway with the settings and secrets that the chart makes, and probes it as a kubelet does.
func TestChartServes(t *testing.T) {
	files, secrets := settings(t, "{upstream: 'http://api:9000', replicas: 1, routes: \"GET /v1/items/{id}\\n\"}")
	dir, at := t.TempDir(), addresses(t, 2)
	for name, value := range secrets {
		place(t, dir, "run/"+name, string(value))
	}
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("/run/secrets/headgate/", dir+"/run/", "/etc/headgate/", dir+"/", "/var/lib/headgate/",
		dir+"/state/",
		"0.0.0.0:8080", at[0], "0.0.0.0:8081", at[1], "http://api:9000", exampleAPI(t))
	for name, text := range files {
		place(t, dir, name, here.Replace(text))
	}
	r := start(t, dir, program(t), "serve", "--config", dir+"/headgate.yaml")
	r.eventually(t, "ready", func() bool { code, _ := get("http://"+at[1]+"/readyz", ""); return code == 200 })
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 401, "/v1/policies": 401} {
		if code, body := get("http://"+at[1]+path, ""); code != want {
			t.Errorf("%s without a token = %d %s, want %d", path, code, body, want)
		}
	}
	if code, body := get("http://"+at[1]+"/metrics", string(secrets["admin-token"])); code != 200 ||
		!strings.Contains(body, "headgate_build_info") {
		t.Errorf("/metrics with the token = %d %s", code, body)
	}
	if code, _ := get("http://"+at[0]+"/v1/items/7", ""); code != 200 {
		t.Errorf("an item = %d, want 200", code)
	}
	if code, _ := get("http://"+at[0]+"/elsewhere", ""); code != 404 {
		t.Errorf("what is no endpoint = %d, want 404", code)
	}
}

func compose(t *testing.T, dir string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithWorkingDirectory(dir),
		cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestComposeServes loads compose.yaml as Docker does, and runs its services with the commands, the
// files and the secrets that it gives them: PostgreSQL, a store, the gateway with its rules, and
// Prometheus, which has all alerts and reads the gateway.
func TestComposeServes(t *testing.T) {
	example, err := filepath.Abs("../../examples/compose")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "compose"), os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "prometheus"), os.DirFS("../../examples/prometheus")); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "compose")
	for range 2 { // the second time changes nothing
		if out, err := exec.Command("sh", filepath.Join(dir, "prepare")).CombinedOutput(); err != nil {
			t.Fatalf("prepare: %v\n%s", err, out)
		}
	}
	p := compose(t, dir)
	for name, s := range p.Services {
		if name != "database" && !s.ReadOnly && name != "prometheus" {
			t.Errorf("%s can write to its image", name)
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	secret := func(name string) string {
		text, err := os.ReadFile(p.Secrets[name].File)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	server, err := dbtest.Postgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	_, dsn, err := server.Database(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.RequirePassword(secret("db-password")); err != nil {
		t.Fatal(err)
	}
	store := redistest.StartOnPort(t)
	at := addresses(t, 3)
	here := strings.NewReplacer("postgres://headgate@database:5432/headgate?sslmode=disable", dsn, "store:6379",
		store.Address(), "http://api:80", exampleAPI(t),
		"0.0.0.0:8080", at[0], "0.0.0.0:8081", at[1], "gateway:8081", at[1], "/run/secrets/", dir+"/secrets/",
		"/etc/headgate/", dir+"/", "/var/lib/headgate/", dir+"/",
		"/etc/prometheus/", dir+"/", "/prometheus", dir+"/metrics")
	for _, name := range []string{"headgate.yaml", "prometheus.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		place(t, dir, name, here.Replace(string(text)))
	}
	command := func(service string) (args []string) {
		for _, arg := range p.Services[service].Command {
			args = append(args, here.Replace(arg))
		}
		return args
	}
	for range 2 { // as each `up` does
		apply := exec.Command(program(t), command("rules")...)
		if out, err := apply.CombinedOutput(); err != nil {
			t.Fatalf("rules: %v\n%s", err, out)
		}
	}
	gateway := start(t, dir, program(t), command("gateway")...)
	gateway.eventually(t, "ready", func() bool {
		return exec.Command(program(t), "ready", "--server", "http://"+at[1]).Run() == nil
	})
	if code, body := get("http://"+at[0]+"/v1/items/7", ""); code != 200 {
		t.Errorf("an item = %d %s, want 200", code, body)
	}
	gateway.eventually(t, "the store", func() bool {
		_, body := get("http://"+at[1]+"/metrics", secret("admin-token"))
		return strings.Contains(body, "headgate_store_up 1\n")
	})

	rules, err := os.ReadFile("../../examples/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	place(t, dir, "alerts.yaml", string(rules)) // as the volume has it
	prometheus := start(t, dir, "prometheus", append(command("prometheus"), "--web.listen-address="+at[2])...)
	prometheus.eventually(t, "the gateway is read", func() bool {
		_, body := get("http://"+at[2]+"/api/v1/query?query=up", "")
		var up struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		return json.Unmarshal([]byte(body), &up) == nil && len(up.Data.Result) == 1 && up.Data.Result[0].Value[1] == "1"
	})
	_, body := get("http://"+at[2]+"/api/v1/rules", "")
	if got, want := strings.Count(body, `"type":"alerting"`),
		bytes.Count(rules, []byte("- alert: ")); got != want || want == 0 {
		t.Errorf("Prometheus has %d alerts, want %d", got, want)
	}
}

// TestAlerts: each alert fires in the case that it is for, and stays silent in another.
func TestAlerts(t *testing.T) {
	const dir = "../../examples/prometheus"
	for _, args := range [][]string{{"check", "config", "prometheus.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	rules, err1 := os.ReadFile(filepath.Join(dir, "alerts.yaml"))
	cases, err2 := os.ReadFile(filepath.Join(dir, "alerts_test.yaml"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		for _, name := range []string{match[1] + " fires", match[1] + " does not"} {
			if !strings.Contains(string(cases), "- name: "+name+"\n") {
				t.Errorf("alerts_test.yaml has no case %q", name)
			}
		}
	}
}
