//go:build unix

package migrate

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	wire "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/eval/peers"
	"github.com/headgate-io/headgate/internal/redistest"
)

// nginxConf is a whole configuration around what limits.
const nginxConf = `daemon off;
worker_processes 1;
pid pid;
error_log stderr crit;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
%s
}
`

// ingressYAML are two Ingresses of which ingress-nginx writes what ingressConf is, by its template: a geo and a map for
// the allow list, a zone and a limit_req for each annotation.
const ingressYAML = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: shop
  annotations:
    nginx.ingress.kubernetes.io/limit-rpm: "2"
    nginx.ingress.kubernetes.io/limit-burst-multiplier: "20"
    nginx.ingress.kubernetes.io/limit-whitelist: "127.0.0.9"
spec:
  rules:
  - http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: login
  annotations:
    nginx.ingress.kubernetes.io/limit-rpm: "1"
    nginx.ingress.kubernetes.io/limit-whitelist: "127.0.0.9"
spec:
  rules:
  - http:
      paths:
      - {path: /v1/login, pathType: Exact, backend: {service: {name: shop, port: {number: 80}}}}
`

const ingressConf = `	geo $remote_addr $allowlist_shop { default 0; 127.0.0.9 1; }
	map $allowlist_shop $limit_shop { 0 $binary_remote_addr; 1 ""; }
	geo $remote_addr $allowlist_login { default 0; 127.0.0.9 1; }
	map $allowlist_login $limit_login { 0 $binary_remote_addr; 1 ""; }
	limit_req_zone $limit_shop zone=shop_rpm:5m rate=2r/m;
	limit_req_zone $limit_login zone=login_rpm:5m rate=1r/m;
	limit_req_status 503;
	server {
		listen AT;
		location = /v1/login { limit_req zone=login_rpm burst=5 nodelay; proxy_pass API; }
		location / { limit_req zone=shop_rpm burst=40 nodelay; proxy_pass API; }
	}`

const plainConf = `	geo $ours { default 0; 127.0.0.9 1; }
	map $ours $others { 0 $binary_remote_addr; 1 ""; }
	limit_req_zone $others zone=all:1m rate=2r/m;
	limit_req_zone $others zone=login:1m rate=1r/m;
	limit_req_status 503;
	server {
		listen AT;
		limit_req zone=all burst=40 nodelay;
		location = /v1/login { limit_req zone=login burst=5 nodelay; proxy_pass API; }
		location / { proxy_pass API; }
	}`

// request is one of a burst, from an address of this machine.
type request struct{ from, path string }

// burst is sent at once: no limit gives back a token meanwhile.
func burst() (all []request) {
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.9"} {
		for n := range 60 {
			all = append(all, request{from, "/v1/items/7"})
			if n%5 == 0 {
				all = append(all, request{from, "/v1/login"})
			}
		}
	}
	return all
}

// sent are the requests that url answered with 200, of a burst.
func sent(t *testing.T, url string, all []request) (admitted []bool) {
	t.Helper()
	clients := map[string]*http.Client{}
	for _, r := range all {
		if clients[r.from] == nil {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(r.from)}}
			transport := &http.Transport{DialContext: dialer.DialContext}
			t.Cleanup(transport.CloseIdleConnections)
			clients[r.from] = &http.Client{Transport: transport}
		}
		answer, err := clients[r.from].Get(url + r.path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		switch answer.StatusCode {
		case 200:
			admitted = append(admitted, true)
		case 429, 503:
			admitted = append(admitted, false)
		default:
			t.Fatalf("%s answers %d", url, answer.StatusCode)
		}
	}
	return admitted
}

// TestRealNginx sends a burst to a real nginx with limits as they are written for it, and as ingress-nginx writes them,
// and to a gateway with what `headgate convert` makes of the same file.
func TestRealNginx(t *testing.T) {
	for _, c := range []struct{ format, file, text, conf string }{
		{"nginx", "nginx.conf", strings.ReplaceAll(plainConf, "AT", "80"), plainConf},
		{"ingress-nginx", "ingress.yaml", ingressYAML, ingressConf},
	} {
		t.Run(c.format, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "routes.txt"), "GET /v1/items/{id}\nGET /v1/login\n")
			write(t, filepath.Join(dir, c.file), c.text)
			rules, err := harness.Output(dir, "convert", c.format, c.file, "--routes", "routes.txt")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "rules.yaml"), rules)
			db := "sqlite:" + filepath.Join(dir, "headgate.db")
			harness.Run(t, dir, "policy", "import", "rules.yaml", "--db", db)
			api := harness.NewUpstream(t)
			gateway := harness.Serve(t, dir, "--upstream", api.URL, "--routes", "routes.txt", "--db", db)
			nginx, err := peers.NginxBy(t.TempDir(), func(at string) string {
				return fmt.Sprintf(nginxConf, strings.NewReplacer("AT", at, "API", api.URL).Replace(c.conf))
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nginx.Stop)
			all := burst()
			alike(t, all, sent(t, nginx.URL(), all), sent(t, gateway.URL, all), 2*(41+6)+72)
		})
	}
}

const atOnceConf = `	limit_conn_zone $binary_remote_addr zone=each:1m;
	limit_conn_zone $server_name zone=all:1m;
	server {
		listen AT;
		server_name api.example; # nginx counts nothing by a name that is empty
		location /v1/slow { limit_conn each 3; proxy_pass API; }
		location /v1/reports { limit_conn all 4; proxy_pass API; }
	}`

// TestRealNginxAtOnce: by limit_conn a real nginx lets as many requests be under way as a gateway does by what
// `headgate convert` makes of it, and as many again when those have ended.
func TestRealNginxAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/slow\nGET /v1/reports\n")
	write(t, filepath.Join(dir, "nginx.conf"), strings.ReplaceAll(atOnceConf, "AT", "80"))
	rules, err := harness.Output(dir, "convert", "nginx", "nginx.conf", "--routes", "routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "rules.yaml"), rules)
	db := "sqlite:" + filepath.Join(dir, "headgate.db")
	harness.Run(t, dir, "policy", "import", "rules.yaml", "--db", db)
	begun, end := make(chan bool), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		<-end
	}))
	t.Cleanup(api.Close)
	gateway := harness.Serve(t, dir, "--upstream", api.URL, "--routes", "routes.txt", "--db", db)
	nginx, err := peers.NginxBy(t.TempDir(), func(at string) string {
		return fmt.Sprintf(nginxConf, strings.NewReplacer("AT", at, "API", api.URL).Replace(atOnceConf))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nginx.Stop)
	var all []request
	for range 6 {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			all = append(all, request{from, "/v1/slow"}, request{from, "/v1/reports"})
		}
	}
	// A request is under way when the API has it, and refused when it is answered first. It is over when the server
	// closes its connection: before, though it is answered, its place may still be taken.
	together := func(url string) (admitted []bool) {
		var answered sync.WaitGroup
		for _, r := range all {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(r.from)}}
			host := strings.TrimPrefix(url, "http://")
			conn, err := dialer.DialContext(t.Context(), "tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			refused := make(chan error, 1)
			answered.Go(func() {
				defer conn.Close() //nolint:errcheck // of a test
				_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", r.path, host)
				if err == nil {
					_, err = io.Copy(io.Discard, conn)
				}
				refused <- err
			})
			select {
			case <-begun:
				admitted = append(admitted, true)
			case err := <-refused:
				if err != nil {
					t.Fatal(err)
				}
				admitted = append(admitted, false)
			}
		}
		for _, is := range admitted {
			if is {
				end <- struct{}{}
			}
		}
		answered.Wait()
		return admitted
	}
	for range 2 {
		alike(t, all, together(nginx.URL()), together(gateway.URL), 2*3+4)
	}
}

// alike compares decisions, of which some number admitted.
func alike[T any](t *testing.T, all []T, there, here []bool, admitted int) {
	t.Helper()
	n := 0
	for i := range all {
		if there[i] != here[i] {
			t.Errorf("request %d, %v, is admitted there: %v, here: %v", i, all[i], there[i], here[i])
		}
		if there[i] {
			n++
		}
	}
	if n != admitted {
		t.Errorf("%d admitted, want %d", n, admitted)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const descriptors = `- {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: 3}}
- {key: path, value: /free, rate_limit: {unlimited: true}}
- {key: tried, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
- key: database
  value: users
  descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5}}
`

// TestRealRateLimit asks a real envoyproxy/ratelimit on a real Redis, and a gateway with the same file, the same
// questions: codes, limits and what is left are the same. Of a request with two descriptors that one of them denies,
// the other is spent there and not here.
func TestRealRateLimit(t *testing.T) {
	binary, err := peers.BuildRateLimit()
	if err != nil {
		t.Fatal(err)
	}
	dir, store := t.TempDir(), redistest.StartOnPort(t)
	service, err := peers.StartRateLimit(binary, dir, fmt.Sprintf("127.0.0.1:%d", store.Port), descriptors)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Stop)
	own := t.TempDir()
	write(t, filepath.Join(own, "limits.yaml"), "domain: eval\ndescriptors:\n"+descriptors)
	write(t, filepath.Join(own, "headgate.yaml"),
		"decisions: {grpc: '127.0.0.1:0', ratelimit: [limits.yaml]}\n")
	gateway := harness.Serve(t, own, "--config", "headgate.yaml", "--listen", "none")
	for range 12 {
		for _, question := range []string{"user=a", "path=/login", "path=/free", "tried=x", "database=users,user=a",
			"unknown=1"} {
			there, here := ask(t, service.At, question), ask(t, gateway.GRPC, question)
			if there != here {
				t.Errorf("%s: %s there, %s here", question, there, here)
			}
		}
	}
	for range 10 { // the login of everybody has nothing left
		for _, at := range []string{service.At, gateway.GRPC} {
			if said := ask(t, at, "user=b|path=/login"); !strings.HasPrefix(said, "OVER_LIMIT;") {
				t.Errorf("two descriptors, of which one has nothing left, are %s", said)
			}
		}
	}
	there, here := ask(t, service.At, "user=b"), ask(t, gateway.GRPC, "user=b")
	if !strings.HasPrefix(there, "OVER_LIMIT;") || here != "OK; OK, 9 left of 10 a YEAR" {
		t.Errorf("after ten denied requests user b is told %s there, %s here; want nothing left, and all of it", there,
			here)
	}
}

// ask asks about descriptors: "|" stands between those of one request, "," between the entries of one.
func ask(t *testing.T, at, question string) string {
	t.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := &ratelimit.RateLimitRequest{Domain: "eval"}
	for one := range strings.SplitSeq(question, "|") {
		d := &wire.RateLimitDescriptor{}
		for entry := range strings.SplitSeq(one, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &wire.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		q.Descriptors = append(q.Descriptors, d)
	}
	answer, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	said := answer.GetOverallCode().String()
	for _, s := range answer.GetStatuses() {
		said += fmt.Sprintf("; %s, %d left of %d a %s", s.GetCode(), s.GetLimitRemaining(),
			s.GetCurrentLimit().GetRequestsPerUnit(), s.GetCurrentLimit().GetUnit())
	}
	return said
}
