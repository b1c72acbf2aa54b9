package kubernetes

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/internal/redistest"
)

const limits = `apiVersion: headgate.io/v1alpha1
kind: RateLimitPolicy
metadata: {name: limits, namespace: headgate}
spec:
  rules:
    - {endpoint: "CREATE /core/namespaces/{namespace}/configmaps", limit: 2, per: 1h}
    - {endpoint: "CREATE /core/namespaces/{namespace}/configmaps", project: tenants, limit: 3, per: 1h}
    - {endpoint: "UPDATE /core/namespaces/{namespace}/configmaps", limit: 1, per: 1h}
    - {endpoint: "DELETE /core/namespaces/{namespace}/configmaps", subject: "path:namespace", limit: 1, per: 1h}
    - {endpoint: default, limit: 100000, per: 1h}
`

// create asks for a config map.
func (c *cluster) create(user, namespace, name string) answer {
	c.t.Helper()
	return c.do(user, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", "application/json",
		fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
}

// TestAdmission: what users change is limited by user, group, namespace, resource and operation; what the manifest
// leaves out is not; and a refusal is what clients of Kubernetes expect.
func TestAdmission(t *testing.T) {
	c := start(t)
	w := c.webhook("")
	c.apply("admin", limits)
	eventually(t, "the rules", func() string {
		if n := w.metric("headgate_policy_rules"); n != 5 {
			return fmt.Sprint(n, " rules")
		}
		return ""
	})
	c.asked(w)
	const maps = "/api/v1/namespaces/shop/configmaps"
	for _, step := range []struct {
		what, user, method, path, kind, body string
		want                                 int
	}{
		{"bob's first", "bob", "POST", maps, "application/json", `{"metadata":{"name":"b1"}}`, 201},
		{"a dry run", "bob", "POST", maps + "?dryRun=All", "application/json", `{"metadata":{"name":"b2"}}`, 201},
		{"bob's second, elsewhere", "bob", "POST", "/api/v1/namespaces/other/configmaps", "application/json",
			`{"metadata":{"name":"b2"}}`, 201},
		{"bob's third", "bob", "POST", maps, "application/json", `{"metadata":{"name":"b3"}}`, 429},
		{"a dry run over the limit", "bob", "POST", maps + "?dryRun=All", "application/json",
			`{"metadata":{"name":"b3"}}`, 429},
		{"another resource", "bob", "POST", "/api/v1/namespaces/shop/secrets", "application/json",
			`{"metadata":{"name":"s"}}`, 201},
		{"a tenant's 1", "ann", "POST", maps, "application/json", `{"metadata":{"name":"a1"}}`, 201},
		{"a tenant's 2", "ann", "POST", maps, "application/json", `{"metadata":{"name":"a2"}}`, 201},
		{"a tenant's 3", "ann", "POST", maps, "application/json", `{"metadata":{"name":"a3"}}`, 201},
		{"a tenant's 4", "ann", "POST", maps, "application/json", `{"metadata":{"name":"a4"}}`, 429},
		{"a patch is an update", "ann", "PATCH", maps + "/a1", "application/merge-patch+json",
			`{"data":{"x":"y"}}`, 200},
		// Of others: about an object that changed a moment ago the API server may ask twice.
		{"the second update", "ann", "PATCH", maps + "/a2", "application/merge-patch+json", `{"data":{"x":"z"}}`, 429},
		{"a namespace's deletion", "ann", "DELETE", maps + "/a3", "", "", 200},
		{"a namespace's second, by another", "bob", "DELETE", maps + "/a2", "", "", 429},
		{"reads never come", "bob", "GET", maps, "", "", 200},
		{"system:masters", "admin", "DELETE", maps + "/a2", "", "", 200},
		{"system:masters again", "admin", "DELETE", maps + "/a1", "", "", 200},
		{"a node", "node", "POST", maps, "application/json", `{"metadata":{"name":"n1"}}`, 201},
		{"a node", "node", "POST", maps, "application/json", `{"metadata":{"name":"n2"}}`, 201},
		{"a node", "node", "POST", maps, "application/json", `{"metadata":{"name":"n3"}}`, 201},
		{"kube-system", "bob", "POST", "/api/v1/namespaces/kube-system/configmaps", "application/json",
			`{"metadata":{"name":"b"}}`, 201},
		{"the webhook's namespace", "bob", "POST", "/api/v1/namespaces/headgate/configmaps", "application/json",
			`{"metadata":{"name":"b"}}`, 201},
		{"a lease", "bob", "POST", "/apis/coordination.k8s.io/v1/namespaces/shop/leases", "application/json",
			`{"metadata":{"name":"l"}}`, 201},
		{"a review of access", "bob", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			"application/json", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, 201},
	} {
		a := c.do(step.user, step.method, step.path, step.kind, step.body)
		if a.code != step.want {
			t.Errorf("%s: %d %s, want %d", step.what, a.code, a.field("message"), step.want)
		}
		if step.want != 429 {
			continue
		}
		if after := a.header.Get("Retry-After"); after == "" || after != a.field("details", "retryAfterSeconds") ||
			a.field("reason") != "TooManyRequests" || !strings.Contains(a.field("message"), "Quota exceeded") {
			t.Errorf("%s: Retry-After %q in\n%s", step.what, after, a.body)
		}
	}
	if n := w.metric("headgate_denied_total"); n != 4 { // dry runs are looked at, and not counted
		t.Errorf("headgate_denied_total is %v, want 4", n)
	}
	if n := w.metric("headgate_questions_refused_total"); n != 0 {
		t.Errorf("%v questions were not understood, want none", n)
	}
}

// TestAdmissionAtOnce: many requests at once take what there is, and no more.
func TestAdmissionAtOnce(t *testing.T) {
	c := start(t)
	w := c.webhook("")
	c.apply("admin", strings.ReplaceAll(limits, "limit: 2, per", "limit: 20, per"))
	eventually(t, "the rules", func() string {
		if n := w.metric("headgate_policy_rules"); n != 5 {
			return fmt.Sprint(n, " rules")
		}
		return ""
	})
	c.asked(w)
	var all sync.WaitGroup
	codes := make(chan int, 80)
	for i := range 80 {
		all.Go(func() {
			a, err := c.try("bob", "POST", "/api/v1/namespaces/shop/configmaps", "application/json",
				fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
			if err != nil {
				t.Error(err)
			}
			codes <- a.code
		})
	}
	all.Wait()
	close(codes)
	count := map[int]int{}
	for code := range codes {
		count[code]++
	}
	if count[201] != 20 || count[429] != 60 {
		t.Errorf("answers %v, want 20 of 201 and 60 of 429", count)
	}
}

// TestFailurePolicy: what becomes of requests while the webhook is away, or hangs, is what
// failurePolicy says; and while its store is away, what the rule says. A certificate that is renewed
// is used without a restart.
func TestFailurePolicy(t *testing.T) {
	c := start(t)
	store := redistest.StartOnPort(t)
	c.write("store.secret", strings.Repeat("0123456789abcdef", 4)+"\n")
	w := c.webhook(fmt.Sprintf("store: {redis: [%q], secret_file: store.secret}\n", store.Address()))
	c.apply("admin", `apiVersion: headgate.io/v1alpha1
kind: RateLimitPolicy
metadata: {name: limits, namespace: headgate}
spec:
  rules:
    - {endpoint: "CREATE /core/namespaces/{namespace}/configmaps", limit: 100, per: 1h, scope: strict}
    - {endpoint: "CREATE /core/namespaces/{namespace}/secrets", limit: 100, per: 1h, scope: strict, on_store_loss: open}
    - {endpoint: default, limit: 100000, per: 1h}
`)
	eventually(t, "the rules", func() string {
		if n := w.metric("headgate_policy_rules"); n != 3 {
			return fmt.Sprint(n, " rules")
		}
		return ""
	})
	n := 0
	create := func(resource string) answer {
		n++
		return c.do("bob", "POST", "/api/v1/namespaces/shop/"+resource, "application/json",
			fmt.Sprintf(`{"metadata":{"name":"o%d"}}`, n))
	}
	for _, policy := range []struct {
		name string
		want int
	}{{"Fail", 500}, {"Ignore", 201}} {
		c.asked(w, "--failure-policy", policy.name)
		eventually(t, policy.name, func() string { // the store has 5 ms to answer, on whatever machine
			if a := create("configmaps"); a.code != 201 {
				return a.body
			}
			return ""
		})
		w.signal(syscall.SIGSTOP)
		if a := create("configmaps"); a.code != policy.want {
			t.Errorf("%s, while the webhook hangs: %d %s, want %d", policy.name, a.code, a.field("message"),
				policy.want)
		}
		w.signal(syscall.SIGCONT)
		w.kill()
		if a := create("configmaps"); a.code != policy.want {
			t.Errorf("%s, while the webhook is away: %d %s, want %d", policy.name, a.code, a.field("message"),
				policy.want)
		}
		w.start()
		w.ready()
		eventually(t, "the webhook is back", func() string {
			if a := create("configmaps"); a.code != 201 {
				return a.body
			}
			return ""
		})
		store.Kill()
		eventually(t, "the store is gone", func() string {
			if a := create("configmaps"); a.code != 503 || a.field("reason") != "ServiceUnavailable" {
				return a.body
			}
			return ""
		})
		eventually(t, "on_store_loss open, once the store is taken for lost", func() string {
			if a := create("secrets"); a.code != 201 {
				return a.body
			}
			return ""
		})
		store.Start()
		eventually(t, "the store is back", func() string {
			if a := create("configmaps"); a.code != 201 {
				return a.body
			}
			return ""
		})
	}
	serial := func() string {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.listen), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	c.asked(w, "--failure-policy", "Fail")
	before, pid := serial(), w.cmd.Process.Pid
	for file, from := range map[string]string{"tls.crt": w.cert, "tls.key": w.key} {
		next := c.write(file+".next", read(t, from))
		if err := os.Rename(next, filepath.Join(c.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the new certificate", func() string {
		if serial() == before {
			return "the old one is shown"
		}
		return ""
	})
	eventually(t, "after the renewal", func() string {
		if a := create("configmaps"); a.code != 201 || w.cmd.Process.Pid != pid {
			return a.body
		}
		return ""
	})
}
