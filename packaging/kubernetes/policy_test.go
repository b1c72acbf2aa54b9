package kubernetes

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const policies = "/apis/headgate.io/v1alpha1/namespaces/headgate/ratelimitpolicies"

// object is a RateLimitPolicy with rules in YAML.
func object(name, rules string) string {
	return fmt.Sprintf(`{apiVersion: headgate.io/v1alpha1, kind: RateLimitPolicy,
metadata: {name: %s, namespace: headgate}, spec: {rules: [%s]}}`, name, rules)
}

// says is what an object says of a condition: its status and reason.
func (c *cluster) says(name, condition string) string {
	c.t.Helper()
	a := c.do("admin", "GET", policies+"/"+name, "", "")
	var o struct {
		Metadata struct{ Generation int64 }
		Status   struct{ Conditions []map[string]any }
	}
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		c.t.Fatal(err)
	}
	for _, one := range o.Status.Conditions {
		if one["type"] == condition && one["observedGeneration"] == float64(o.Metadata.Generation) {
			return fmt.Sprint(one["status"], " ", one["reason"])
		}
	}
	return "nothing"
}

func (c *cluster) becomes(name, condition, want string) {
	c.t.Helper()
	eventually(c.t, name+": "+condition, func() string {
		if got := c.says(name, condition); got != want {
			return got + ", want " + want
		}
		return ""
	})
}

// TestPolicies: objects are the rules, the API server refuses most of what cannot be one, and each object says what
// became of it.
func TestPolicies(t *testing.T) {
	c := start(t)
	w := c.webhook("")
	rules := func(want float64) {
		t.Helper()
		eventually(t, "rules", func() string {
			if n := w.metric("headgate_policy_rules"); n != want {
				return fmt.Sprint(n, ", want ", want)
			}
			return ""
		})
	}
	for _, bad := range []struct{ rule, want string }{
		{`{endpoint: default}`, "want a limit, or mode allow or block"},
		{`{endpoint: default, limit: 1, mode: block}`, "want a limit, or mode allow or block"},
		{`{endpoint: default, limit: 0}`, "should be greater than or equal to 1"},
		{`{endpoint: default, limit: 1, project: a, tier: b}`, "project and tier are both set"},
		{`{endpoint: default, limit: 1, per: 0}`, "per is below 1"},
		{`{endpoint: default, limit: 1, per: 1500ms}`, "should match"},
		{`{endpoint: default, limit: 1, scope: galaxy}`, "Unsupported value"},
		{`{endpoint: default, limit: 1, algorithm: dice}`, "should match"},
		{`{endpoint: default, limit: 1, subject: "path:"}`, "should match"},
		{`{endpoint: default, limit: 1, enforce_percent: 101}`, "should be less than or equal to 100"},
		{`{endpoint: default, limit: 1, limits: 2}`, "unknown field"},
		{`{limit: 1}`, "Required value"},
	} {
		body, err := yaml.YAMLToJSON([]byte(object("bad", bad.rule)))
		if err != nil {
			t.Fatal(err)
		}
		a := c.do("admin", "POST", policies+"?fieldValidation=Strict", "application/json", string(body))
		if a.code != 422 && a.code != 400 || !strings.Contains(a.body, bad.want) {
			t.Errorf("%s: %d %s, want it refused: %s", bad.rule, a.code, a.body, bad.want)
		}
	}

	c.apply("admin", object("first", `{endpoint: "CREATE /core/namespaces/{namespace}/configmaps", limit: 2, per: 1h},
		{endpoint: default, limit: 100, per: 60}`))
	c.becomes("first", "Programmed", "True Programmed")
	c.becomes("first", "Accepted", "True Accepted")
	rules(2)

	c.apply("admin", object("second", `{endpoint: "CREATE /core/namespaces/{ns}/configmaps", limit: 9},
		{endpoint: UNKNOWN, limit: 9}`))
	c.becomes("second", "Conflicted", "True OlderObjectWins")
	c.becomes("second", "Programmed", "True Programmed")
	rules(3)
	if list := prints(t, "policy", "list", "--db", w.db(c)); strings.Contains(list, "{ns}") ||
		!strings.Contains(list, "configmaps") {
		t.Errorf("policy list:\n%s\nwant the rule of the older object", list)
	}

	// A rule of lint's is a finding; an object that only compiling finds wrong leaves all as it was.
	c.apply("admin", object("third", `{endpoint: "GET /nowhere", limit: 1, per: 1h}`))
	eventually(t, "findings", func() string {
		a := c.do("admin", "GET", policies+"/third", "", "")
		if a.field("status", "findingCount") == "0" || a.field("status", "findingCount") == "" {
			return a.body
		}
		return ""
	})
	c.do("admin", "DELETE", policies+"/third", "", "")
	c.apply("admin", object("wrong", `{endpoint: "no template", limit: 1}`))
	c.becomes("wrong", "Accepted", "False Invalid")
	c.becomes("first", "Programmed", "False OtherInvalid")
	if n := w.metric("headgate_policy_reload_ok"); n != 0 {
		t.Errorf("headgate_policy_reload_ok is %v, want 0", n)
	}
	rules(3)
	c.do("admin", "DELETE", policies+"/wrong", "", "")
	c.becomes("first", "Programmed", "True Programmed")
	events := c.do("admin", "GET", "/apis/events.k8s.io/v1/namespaces/headgate/events", "", "")
	for _, want := range []string{`"note":"in force"`, `"reason":"OtherInvalid"`, `"name":"wrong"`} {
		if !strings.Contains(events.body, want) {
			t.Errorf("no %s in events:\n%s", want, events.body)
		}
	}

	// While the API server is away the rules stay; when it is back, changes act again, also of a token
	// that was renewed.
	c.api.kill()
	eventually(t, "the loss is noticed", func() string {
		n := w.metric("headgate_policy_reload_failures_total")
		if n < 2 && w.metric("headgate_policy_staleness_seconds") < 5 {
			return fmt.Sprint(n)
		}
		return ""
	})
	rules(3)
	c.write("token", "admin\n")
	c.api.start()
	c.ready()
	c.apply("admin", object("fourth", `{endpoint: "DELETE /core/namespaces/{namespace}/configmaps", limit: 5}`))
	c.becomes("fourth", "Programmed", "True Programmed")
	rules(4)

	// Nothing at all is not believed, and no rules on purpose are.
	for _, name := range []string{"second", "fourth"} { // whose rules go one after the other
		c.do("admin", "DELETE", policies+"/"+name, "", "")
	}
	rules(2)
	c.do("admin", "DELETE", policies+"/first", "", "")
	eventually(t, "emptied", func() string {
		if w.metric("headgate_policy_emptied") != 1 {
			return "it is believed, or not seen"
		}
		return ""
	})
	rules(2)
	c.apply("admin", object("none", ""))
	rules(0)
	for _, command := range [][]string{
		{"policy", "set", "default", "3", "--db", w.db(c)}, {"policy", "delete", "default", "--db", w.db(c)},
	} {
		cmd := exec.Command(headgate(t), command...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is read-only for headgate (db)") {
			t.Errorf("headgate %q: %s, want it refused", command, out)
		}
	}
}

// db is the name of the rules for commands.
func (w *webhook) db(c *cluster) string {
	return fmt.Sprintf("kubernetes:headgate?server=https://127.0.0.1:%d&token_file=%s&ca_file=%s", c.port,
		filepath.Join(c.dir, "token"), c.ca)
}

// projects are modules with definitions of objects, at versions and with the contents that examples are held to.
var projects = []struct{ module, sum, files string }{
	{"sigs.k8s.io/gateway-api@v1.7.0", "h1:duVnm7nO6oXfMMUWfcDoBph47CYR/ME3NGxccOVglaY=",
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
	{"github.com/envoyproxy/gateway@v1.9.1", "h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=",
		"charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_*policies.yaml"},
	{"istio.io/api@v1.32.0", "h1:37mJvg9I0biYZAEQF+MATs4FNeCpXEIVO3LFpVb6iNM=",
		"kubernetes/customresourcedefinitions.gen.yaml"},
}

// TestExamples: the API server takes the examples, strictly, by the definitions of the projects that they are for; the
// filter in those for quotas is that of the example which a test runs with Envoy.
func TestExamples(t *testing.T) {
	c := start(t)
	for _, p := range projects {
		cmd := exec.Command("go", "mod", "download", "-json", p.module)
		cmd.Dir = t.TempDir() // no module: nothing of it is a dependency
		out, err := cmd.Output()
		var got struct{ Dir, Sum, Error string }
		if json.Unmarshal(out, &got) != nil || got.Error != "" || got.Sum != p.sum {
			t.Fatalf("go mod download %s: %v, sum %q, %s; want %s", p.module, err, got.Sum, got.Error, p.sum)
		}
		files, _ := filepath.Glob(filepath.Join(got.Dir, p.files))
		if len(files) == 0 {
			t.Fatalf("%s has no %s", p.module, p.files)
		}
		for _, file := range files {
			for _, one := range documents(t, read(t, file)) {
				a := c.do("admin", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", one)
				if a.code != 201 {
					t.Fatalf("%s: %d %s", file, a.code, a.field("message"))
				}
				c.established(a.field("metadata", "name"))
			}
		}
	}
	for _, name := range []string{"envoy-gateway-system", "istio-system"} {
		c.apply("admin", fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, name))
	}
	examples, err := filepath.Glob("../../examples/kubernetes/*.yaml")
	if err != nil || len(examples) < 4 {
		t.Fatalf("examples: %v, %v", examples, err)
	}
	filter := find(t, read(t, "../../examples/envoy/rate_limit_quota.yaml"), "envoy.filters.http.rate_limit_quota")
	for _, file := range examples {
		text := read(t, file)
		c.apply("admin", text)
		if strings.Contains(file, "rlqs") {
			for _, one := range documents(t, text) {
				if got := find(t, one, "envoy.filters.http.rate_limit_quota"); got != filter {
					t.Errorf("%s: the filter is\n%s\nwant that of examples/envoy:\n%s", file, got, filter)
				}
			}
		}
	}
}

// find returns, in JSON, what has a name somewhere in a text in YAML.
func find(t *testing.T, text, name string) string {
	t.Helper()
	var all any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	found := ""
	var visit func(any)
	visit = func(at any) {
		switch at := at.(type) {
		case map[string]any:
			if at["name"] == name && at["typed_config"] != nil {
				b, _ := json.Marshal(at)
				found = string(b)
			}
			for _, inner := range at {
				visit(inner)
			}
		case []any:
			for _, inner := range at {
				visit(inner)
			}
		}
	}
	if visit(all); found == "" {
		t.Errorf("no %s in\n%s", name, text)
	}
	return found
}
