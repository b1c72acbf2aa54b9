package doctor_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/doctor"
)

// all is a registry in which everything matters.
var all = doctor.Routes{Tails: true, Queries: true}

// columns are the measurements of the kinds that were measured.
var columns = map[string]string{
	"nginx": "nginx_merge_on", "nginx-unmerged": "nginx_merge_off", "haproxy": "haproxy_raw",
	"haproxy-normalized": "haproxy_normalized",
	"apache":             "apache_encslash_off", "apache-nodecode": "apache_encslash_nodecode",
}

// oracle returns the path that a server made of each target it served.
func oracle(t *testing.T, column string) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../../endpoint/testdata/path-oracles.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []map[string]json.RawMessage }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	paths := make(map[string]string)
	for _, c := range file.Cases {
		var target string
		var view struct{ Path *string }
		if json.Unmarshal(c["raw"], &target) != nil || json.Unmarshal(c[column], &view) != nil || view.Path == nil {
			continue
		}
		if strings.HasPrefix(*view.Path, "/") {
			paths[target] = *view.Path
		}
	}
	if len(paths) < 70 {
		t.Fatalf("%s served %d targets, want 70 or more", column, len(paths))
	}
	return paths
}

// everyProfile are all that a configuration can say, but for UTF-8.
func everyProfile() (all []endpoint.Profile) {
	for i := range 3 * 3 * 4 * 64 {
		p := endpoint.Profile{EncodedSlash: endpoint.EncodedSlash(i % 3), Params: endpoint.Params(i / 3 % 3),
			CaseInsensitive: i/9&1 != 0, AllowDoubleEncoding: i/18&1 != 0, Refuse: endpoint.Refusal(i / 36)}
		if p.Refuse&endpoint.RefuseBadUTF8 == 0 {
			all = append(all, p)
		}
	}
	return all
}

// TestHealthyProfilesNeitherSplitNorBorrow holds the advice against the measurements: under every profile that has no
// mismatch with a measured server, two targets have one canonical form exactly if that server takes them for one path.
func TestHealthyProfilesNeitherSplitNorBorrow(t *testing.T) {
	for kind, column := range columns {
		paths := oracle(t, column)
		healthy, sick := 0, 0
		for _, p := range everyProfile() {
			r, err := doctor.Upstream(kind, config.EndpointOf(p), all)
			if err != nil {
				t.Fatal(err)
			}
			wrong := disagreement(p, paths, kind)
			if r.Healthy() && wrong != "" {
				t.Errorf("%s: %+v is called healthy, but %s", kind, p, wrong)
			}
			if r.Healthy() {
				healthy++
			} else if wrong != "" {
				sick++
			}
		}
		// Both happen, so the test can fail; and what is called a mismatch mostly shows in so small a sample.
		if healthy < 4 || sick < 100 {
			t.Errorf("%s: %d healthy profiles and %d mismatches that the measurements show, want 4 and 100 or more",
				kind, healthy, sick)
		}
	}
}

// disagreement returns two targets that a profile and a server do not agree about. HAProxy compares
// escapes that it does not decode as text, which the report notes and these targets show: they are
// left out.
func disagreement(p endpoint.Profile, paths map[string]string, kind string) string {
	undecoded := regexp.MustCompile(map[string]string{"haproxy": `%`,
		"haproxy-normalized": `(?i)%(5[bd]|2[1467-9abc]|3[abd]|40)`}[kind])
	skips := undecoded.String() != ""

	byForm, byPath := make(map[string]string), make(map[string]string)
	for _, target := range slices.Sorted(mapKeys(paths)) {
		form, fault := p.Canonical(target)
		if fault != endpoint.NoFault || skips && undecoded.MatchString(target) {
			continue
		}
		path := paths[target]
		if other, ok := byForm[form]; ok && paths[other] != path {
			return target + " and " + other + " are one here and two there"
		}
		if other, ok := byPath[path]; ok && other != form {
			return target + " is one with another of form " + other + " there, and " + form + " here"
		}
		byForm[form], byPath[path] = target, form
	}
	return ""
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestProfilesOfRoutersAreHealthy ties the facts to those that the routers are compared under.
func TestProfilesOfRoutersAreHealthy(t *testing.T) {
	for kind, dialect := range map[string]pattern.Dialect{
		"go":   pattern.ServeMux,
		"chi":  pattern.Chi,
		"gin":  pattern.Gin,
		"echo": pattern.Echo,
	} {
		p := dialect.Profile()
		if r, err := doctor.Upstream(kind, config.EndpointOf(p), doctor.Routes{}); err != nil || !r.Healthy() {
			t.Errorf("Upstream(%q) of its own profile = %+v, %v, want it healthy", kind, r, err)
		}
		p.Refuse |= endpoint.RefuseTrailingSlash
		if r, err := doctor.Upstream(kind, config.EndpointOf(p), all); err != nil || !r.Healthy() {
			t.Errorf("Upstream(%q) with tails = %+v, %v, want it healthy", kind, r, err)
		}
		for _, one := range []endpoint.Refusal{endpoint.RefuseDotSegments, endpoint.RefuseTrailingSlash} {
			less := p
			less.Refuse &^= one
			if r, _ := doctor.Upstream(kind, config.EndpointOf(less), all); r.Healthy() {
				t.Errorf("Upstream(%q) of %+v is healthy, want a mismatch", kind, less)
			}
		}
	}
}

// TestEveryMismatchSaysWhatToDo checks each kind with every profile.
func TestEveryMismatchSaysWhatToDo(t *testing.T) {
	for _, kind := range doctor.Kinds() {
		healthy := 0
		for _, p := range everyProfile() {
			r, err := doctor.Upstream(kind, config.EndpointOf(p), all)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Findings {
				if f.Setting == "" || f.Server == "" || f.Level != doctor.OK && (f.Target == "" || f.Wrong == "" ||
					f.Set == "") {
					t.Fatalf("%s: %+v, want a target, what is wrong and what to set", kind, f)
				}
			}
			if r.Healthy() {
				healthy++
			}
		}
		if healthy == 0 {
			t.Errorf("%s: no profile is healthy", kind)
		}
	}
	if _, err := doctor.Upstream("inetd", config.Default().Endpoint, doctor.Routes{}); err == nil ||
		!strings.Contains(err.Error(), `upstream is "inetd", want one of nginx, `) {
		t.Errorf("Upstream(inetd) = %v, want an error with the kinds", err)
	}
}

func find(r doctor.Report, setting string) (all []doctor.Finding) {
	for _, f := range r.Findings {
		if f.Setting == setting {
			all = append(all, f)
		}
	}
	return all
}

func TestConfiguration(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return file
	}
	c := config.Default()
	c.Upstream, c.Listen = "http://127.0.0.1:9000", "0.0.0.0:8080"
	c.DB = "sqlite:" + filepath.Join(dir, "headgate.db")
	c.Routes = []string{write("routes.txt", "GET /items/{id}\n", 0o600)}

	r := doctor.Configuration(t.Context(), c, doctor.Options{})
	if got := find(r, "db"); r.Healthy() || len(got) != 1 || got[0].Level != doctor.Failure {
		t.Errorf("without a database: %+v, want a failure", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "headgate.db")); err == nil {
		t.Error("doctor made a database")
	}

	db, err := database.Open(t.Context(), c.DB)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	c.SecretFile = write("secret", strings.Repeat("0f", 32), 0o600)
	c.TrustedProxies = []string{"10.0.0.0/8"}
	r = doctor.Configuration(t.Context(), c, doctor.Options{})
	if got := find(r, "secret_file"); len(got) != 1 || got[0].Level != doctor.OK {
		t.Errorf("with mode 0600: %+v, want it in order", got)
	}
	if got := find(r, "endpoints"); len(got) != 1 || got[0].Value != "1 template" {
		t.Errorf("endpoints: %+v, want 1 template", got)
	}

	write("secret", strings.Repeat("0f", 32), 0o644)
	c.TrustedProxies = []string{"8.0.0.0/5"}
	c.IPv6Prefix = 0
	c.Routes = []string{write("routes.txt", "GET /items/:id\n", 0o600)}
	c.Listen, c.AdminTokenFile = "127.0.0.1:8080", write("token", "short", 0o600)
	r = doctor.Configuration(t.Context(), c, doctor.Options{})
	for setting, want := range map[string]string{
		"secret_file":      "has mode 0644: others may read it",
		"trusted_proxies":  "more than any network of proxies",
		"configuration":    `ipv6_prefix is "0", want 1 to 128`,
		"endpoints":        `segment is ":id", want "{id}"`,
		"admin_token_file": "",
	} {
		got := find(r, setting)
		if !slices.ContainsFunc(got, func(f doctor.Finding) bool {
			return f.Level == doctor.Failure && strings.Contains(f.Wrong, want)
		}) {
			t.Errorf("%s: %+v, want a failure with %q", setting, got, want)
		}
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Wrong+f.Value+f.Set, "0f0f") || strings.Contains(f.Wrong, "short\"") {
			t.Errorf("%+v shows a secret", f)
		}
	}
}
