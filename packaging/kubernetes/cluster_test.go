package kubernetes

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
	"github.com/headgate-io/headgate/internal/redistest"
)

// patience is how long something may take that another process does in its own time.
const patience = time.Minute

// eventually waits until ok says nothing more, and fails with what it said last.
func eventually(t testing.TB, what string, ok func() string) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if last = ok(); last == "" {
			return
		}
	}
	t.Fatalf("%s: %s, after %v", what, last, patience)
}

// process is one that a test has started, and can kill.
type process struct {
	t      testing.TB
	name   string
	args   []string
	dir    string
	cmd    *exec.Cmd
	ended  chan struct{}
	output *bytes.Buffer
}

func launch(t testing.TB, dir, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, args: args, dir: dir}
	t.Cleanup(p.kill)
	p.start()
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.output, p.ended = &bytes.Buffer{}, make(chan struct{})
	p.cmd = exec.Command(p.name, p.args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.output, p.output
	if err := mortal.Start(p.cmd, syscall.SIGKILL); err != nil {
		p.t.Fatalf("%s (scripts/install-kubernetes builds it): %v", p.name, err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(p.cmd, p.ended)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// cluster is an API server and its etcd.
type cluster struct {
	t    testing.TB
	dir  string
	port int
	api  *process
	ca   string // file
	http *http.Client
}

// users are those of the cluster, by their tokens.
const users = `admin,admin,1,"system:masters"
ann,ann,2,tenants
bob,bob,3,others
cy,cy,4,others
node,system:node:n,5,"system:nodes"
headgate,system:serviceaccount:headgate:headgate-admission,6,"system:serviceaccounts,system:serviceaccounts:headgate"
`

func program(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func port(t testing.TB) int {
	t.Helper()
	p, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func start(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), port: port(t)}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write("users.csv", users)
	by := redistest.NewAuthority(t)
	cert, tlsKey := by.Issue("127.0.0.1")
	c.ca = by.CA
	store, peers := fmt.Sprintf("http://127.0.0.1:%d", port(t)), fmt.Sprintf("http://127.0.0.1:%d", port(t))
	launch(t, c.dir, program(t, "etcd"), "--data-dir", "etcd", "--listen-client-urls", store,
		"--advertise-client-urls", store, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers, "--log-level", "error", "--unsafe-no-fsync")
	c.api = launch(t, c.dir, program(t, "kube-apiserver"), "--etcd-servers", store, "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(c.port), "--tls-cert-file", cert, "--tls-private-key-file", tlsKey,
		"--service-account-issuer", "https://headgate.test", "--service-account-key-file", "sa.key",
		"--service-account-signing-key-file", "sa.key", "--service-cluster-ip-range", "10.0.0.0/24",
		"--token-auth-file", "users.csv", "--authorization-mode", "RBAC",
		"--disable-admission-plugins", "ServiceAccount")
	text, err := os.ReadFile(c.ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	c.http = &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 100,
	}}
	c.ready()
	for _, namespace := range []string{"headgate", "shop", "other"} {
		c.apply("admin", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, namespace))
	}
	c.apply("admin", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: users},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
		subjects: [{kind: User, name: ann, apiGroup: rbac.authorization.k8s.io},
		{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io},
		{kind: User, name: cy, apiGroup: rbac.authorization.k8s.io},
		{kind: User, name: "system:node:n", apiGroup: rbac.authorization.k8s.io}]}`)
	return c
}

func (c *cluster) ready() {
	c.t.Helper()
	eventually(c.t, "the API server", func() string {
		select {
		case <-c.api.ended:
			c.t.Fatalf("it ended:\n%s", c.api.output)
		default:
		}
		if a, err := c.try("admin", "GET", "/readyz", "", ""); err != nil || a.code != 200 {
			return fmt.Sprint(a.code, " ", err)
		}
		return ""
	})
}

func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// answer is what the API server says.
type answer struct {
	code   int
	header http.Header
	body   string
}

// field is what stands at a path such as status.rules, in JSON; "" if nothing does.
func (a answer) field(path ...string) string {
	var at any
	if json.Unmarshal([]byte(a.body), &at) != nil {
		return ""
	}
	for _, name := range path {
		object, _ := at.(map[string]any)
		if at = object[name]; at == nil {
			return ""
		}
	}
	text, _ := json.Marshal(at)
	return strings.Trim(string(text), `"`)
}

func (c *cluster) try(user, method, path, kind, body string) (answer, error) {
	r, err := http.NewRequest(method, fmt.Sprintf("https://127.0.0.1:%d%s", c.port, path), strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+user)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	got, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, string(text)}, err
}

func (c *cluster) do(user, method, path, kind, body string) answer {
	c.t.Helper()
	a, err := c.try(user, method, path, kind, body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// at is the path of an object's kind.
func at(object map[string]any) string {
	group, version, ok := strings.Cut(fmt.Sprint(object["apiVersion"]), "/")
	base := "/apis/" + group + "/" + version
	if !ok {
		base = "/api/" + group
	}
	kind := strings.ToLower(fmt.Sprint(object["kind"]))
	meta, _ := object["metadata"].(map[string]any)
	namespace, named := meta["namespace"]
	if named {
		base += fmt.Sprint("/namespaces/", namespace)
	}
	switch {
	case strings.HasSuffix(kind, "cy") || strings.HasSuffix(kind, "ry"):
		kind = strings.TrimSuffix(kind, "y") + "ies"
	default:
		kind += "s"
	}
	return base + "/" + kind
}

// apply creates each object of a text in YAML, and holds it to its schema. What is there already is put in its place.
func (c *cluster) apply(user, text string) {
	c.t.Helper()
	for _, one := range documents(c.t, text) {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(one), &object); err != nil {
			c.t.Fatalf("%v in\n%s", err, one)
		}
		where := at(object)
		body, _ := json.Marshal(object)
		a := c.do(user, "POST", where+"?fieldValidation=Strict", "application/json", string(body))
		if a.code == 409 {
			meta := object["metadata"].(map[string]any)
			a = c.do(user, "PATCH", fmt.Sprintf("%s/%v?fieldManager=test&force=true&fieldValidation=Strict", where,
				meta["name"]), "application/apply-patch+yaml", string(body))
		}
		if a.code/100 != 2 {
			c.t.Fatalf("%s: %d %s\n%.300s", where, a.code, a.field("message"), one)
		}
		if warned := a.header["Warning"]; len(warned) > 0 {
			c.t.Errorf("%s: %q", where, warned)
		}
	}
}

func documents(t testing.TB, text string) (all []string) {
	t.Helper()
	for one := range strings.SplitSeq("\n"+text, "\n---") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(one), &object); err != nil {
			t.Fatalf("%v in\n%s", err, one)
		}
		if object != nil {
			all = append(all, one)
		}
	}
	return all
}

// build makes the command, once.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "headgate-kubernetes-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, "./cmd/headgate")
	cmd.Dir, cmd.Env = "../../server", append(os.Environ(), "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, said)
	}
	return filepath.Join(dir, "headgate"), nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func headgate(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// prints runs the command to its end.
func prints(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command(headgate(t), args...)
	cmd.Dir = t.TempDir() // where it keeps what is not in the cluster
	out, err := cmd.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		t.Fatalf("headgate %q: %v\n%s", args, err, ended.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// webhook is a headgate whose rules are in the cluster, and which API servers may ask.
type webhook struct {
	*process
	admin, listen int
	cert, key     string
	ca            string
}

const routes = `CREATE /core/namespaces/{namespace}/configmaps
UPDATE /core/namespaces/{namespace}/configmaps
DELETE /core/namespaces/{namespace}/configmaps
CREATE /core/namespaces/{namespace}/secrets
OPEN /core/namespaces/{namespace}/pods/exec
OPEN /core/namespaces/{namespace}/pods/attach
OPEN /core/namespaces/{namespace}/pods/portforward
OPEN /core/namespaces/{namespace}/pods/proxy
`

func (c *cluster) webhook(more string) *webhook {
	c.t.Helper()
	c.apply("admin", prints(c.t, "kube", "crd"))
	c.established("ratelimitpolicies.headgate.io")
	w := &webhook{admin: port(c.t), listen: port(c.t)}
	by := redistest.NewAuthority(c.t)
	w.ca = by.CA
	w.cert, w.key = by.Issue("127.0.0.1")
	c.write("tls.crt", read(c.t, w.cert))
	c.write("tls.key", read(c.t, w.key))
	w.cert, w.key = by.Issue("127.0.0.1") // the next one
	c.write("token", "headgate\n")
	c.write("routes.txt", routes)
	c.write("headgate.yaml", fmt.Sprintf(`listen: none
admin: 127.0.0.1:%d
db: kubernetes:headgate?server=https://127.0.0.1:%d&token_file=token&ca_file=%s
db_keys: sqlite:keys.db
last_good: last-good.json
routes: [routes.txt]
decisions:
  listen: 127.0.0.1:%d
  tls: {cert_file: tls.crt, key_file: tls.key}
  admission: {groups: [tenants]}
%s`, w.admin, c.port, c.ca, w.listen, more))
	manifest := prints(c.t, "kube", "manifest", "--ca-file", by.CA)
	var rest []string
	for _, one := range documents(c.t, manifest) {
		if strings.Contains(one, "\nkind: ValidatingWebhookConfiguration") {
			continue
		}
		rest = append(rest, one)
	}
	c.apply("admin", strings.Join(rest, "\n---\n"))
	w.process = launch(c.t, c.dir, headgate(c.t), "kube", "admission", "--config", "headgate.yaml")
	w.ready()
	return w
}

func (w *webhook) ready() {
	w.t.Helper()
	eventually(w.t, "headgate", func() string {
		select {
		case <-w.ended:
			w.t.Fatalf("it ended:\n%s", w.output)
		default:
		}
		got, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", w.admin))
		if err != nil {
			return err.Error()
		}
		got.Body.Close()
		if got.StatusCode != 200 {
			return got.Status
		}
		return ""
	})
}

// metric is the sum of all series of one.
func (w *webhook) metric(name string) (sum float64) {
	w.t.Helper()
	got, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", w.admin))
	if err != nil {
		w.t.Fatal(err)
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(got.Body)
	for line := range strings.Lines(string(text)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(series, name+"{") {
			line = name + " " + value
		}
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				w.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// asked has the API server ask w, as the manifest says but for where it is. It returns once it does.
func (c *cluster) asked(w *webhook, flags ...string) {
	c.t.Helper()
	manifest := prints(c.t, append([]string{"kube", "manifest", "--ca-file", w.ca}, flags...)...)
	for _, one := range documents(c.t, manifest) {
		if strings.Contains(one, "\nkind: ValidatingWebhookConfiguration") {
			lines := strings.Split(one, "\n")
			for i, line := range lines {
				if strings.HasPrefix(line, "      service:") {
					lines[i] = fmt.Sprintf("      url: https://127.0.0.1:%d/admission", w.listen)
				}
			}
			c.do("admin", "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/headgate-admission",
				"", "")
			c.apply("admin", strings.Join(lines, "\n"))
		}
	}
	before := w.metric("headgate_allowed_total")
	eventually(c.t, "the API server asks", func() string {
		a := c.do("cy", "POST", "/api/v1/namespaces/other/secrets", "application/json",
			`{"metadata":{"generateName":"probe-"}}`)
		if a.code == 201 && w.metric("headgate_allowed_total") == before {
			return "it does not"
		}
		return ""
	})
}

func (c *cluster) established(crd string) {
	c.t.Helper()
	eventually(c.t, crd, func() string {
		a := c.do("admin", "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+crd, "", "")
		if strings.Contains(a.body, `"type":"Established"`) && strings.Contains(a.body, `"status":"True"`) {
			return ""
		}
		return a.body
	})
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
