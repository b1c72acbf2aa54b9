package keys

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/eval/harness"
)

const routes = "GET /v1/items/{id}\nPOST /v1/items\nPOST /v1/login\nGET /v1/broken\n"

const settings = `routes: [routes.txt]
upstream_timeout: 500ms
api_keys:
  query: api_key
  prefixes: [hg_]
  imported: [{prefix: old-, min_length: 20, max_length: 60}]
log: {level: debug}
`

// workshop is a folder with a configuration, and an API that fails on demand.
func workshop(t *testing.T, extra string) (dir string, api *httptest.Server) {
	t.Helper()
	dir = t.TempDir()
	api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/broken" { // breaks off in the middle of its answer
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	}))
	t.Cleanup(api.Close)
	for name, text := range map[string]string{"routes.txt": routes, "headgate.yaml": settings + extra} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, api
}

// output runs the command with text on its standard input, and returns what it
// prints on its standard output alone.
func output(t *testing.T, dir, text string, args ...string) string {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(text)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("headgate %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// seen is everything that a process and its commands have shown or written, by
// where.
type seen map[string][]byte

func (s seen) add(where string, text []byte) { s[where] = append(append(s[where], text...), '\n') }

// marks are secrets by what they are. A secret must not be seen in any form in
// which programs commonly write one.
func (s seen) mustNotHave(t *testing.T, marks map[string]string) {
	t.Helper()
	for what, mark := range marks {
		for how, form := range map[string]string{
			"": mark, " in hexadecimal digits": hex.EncodeToString([]byte(mark)),
			" in base 64": base64.RawStdEncoding.EncodeToString([]byte(mark))[:len(mark)],
			" as numbers": strings.Trim(fmt.Sprint([]byte(mark)), "[]"), " escaped": url.QueryEscape(mark),
		} {
			for where, text := range s {
				if at := bytes.Index(bytes.ToLower(text), []byte(strings.ToLower(form))); at >= 0 {
					t.Errorf("%s%s stands in %s: …%q…", what, how, where,
						text[max(0, at-80):min(len(text), at+len(form)+20)])
				}
			}
		}
	}
}

// folder adds every file of dir but the secret and what the test itself put
// there.
func (s seen) folder(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".secret") || strings.HasSuffix(path, "admin.token") {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was to be another file, and became that meanwhile
		}
		s.add("the file "+filepath.Base(path), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingSecretIsWrittenDown sends marked credentials of every kind by
// every way through a gateway at its most talkative, and looks for the marks in
// everything that it, its commands and its files show.
func TestNothingSecretIsWrittenDown(t *testing.T) {
	dir, api := workshop(t, "admin_token_file: admin.token\nidentifiers: [{endpoint: POST /v1/login, field: user}]\n")
	const adminToken = "MARKadminMARKadmin1"
	if err := os.WriteFile(filepath.Join(dir, "admin.token"), []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := seen{}
	command := func(args ...string) {
		t.Helper()
		all.add("headgate "+args[0]+" "+args[1], []byte(harness.Run(t, dir, args...)))
	}
	command("policy", "set", "default", "1000", "--name", "visible-rule")
	command("policy", "set", "POST /v1/items", "1", "--per", "1h")
	command("policy", "set", "POST /v1/login", "1", "--per", "1h", "--subject", "identifier")
	active := output(t, dir, "", "key", "create", "--project", "acme", "--name", "visible-name")
	scoped := output(t, dir, "", "key", "create", "--project", "acme", "--name", "scoped", "--scope", "POST /v1/login")
	revoked := output(t, dir, "", "key", "create", "--project", "acme", "--name", "revoked")
	const imported = "old-MARKimportedMARKimported"
	all.add("headgate key import", []byte(output(t, dir, imported+"\n", "key", "import", "--config", "headgate.yaml",
		"--project", "acme", "--name", "legacy")))
	var keys []struct{ ID, Name string }
	if err := json.Unmarshal([]byte(output(t, dir, "", "key", "list", "--json")), &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Name == "revoked" {
			command("key", "revoke", k.ID)
		}
	}
	firstSecret, err := os.ReadFile(filepath.Join(dir, "headgate.db.secret"))
	if err != nil {
		t.Fatal(err)
	}
	g := harness.Serve(t, dir, "--config", "headgate.yaml", "--upstream", api.URL)

	forged := active[:20] + "MARKforged" + active[30:] // a wrong checksum
	marks := map[string]string{
		"an active key": active[3:], "a key with scopes": scoped[3:], "a revoked key": revoked[3:],
		"an imported key": imported,
		"a malformed key": "MARKforged", "a token": "MARKtokenMARK", "a password": "MARKbasicMARK",
		"a login name": "MARKloginMARK", "a login's password": "MARKpassMARK",
		"the admin token": adminToken, "a cookie": "MARKcookieMARK", "a secret": strings.TrimSpace(string(firstSecret)),
	}
	send := func(method, base, target, body string, header ...string) {
		t.Helper()
		request, err := http.NewRequest(method, base+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Cookie", "s=MARKcookieMARK")
		for i := 0; i < len(header); i += 2 {
			request.Header.Add(header[i], header[i+1])
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%s %s: %v", method, target, err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		all.add("the answer to "+method+" "+strings.Split(target, "?")[0],
			fmt.Appendf(text, "%v %v", response.Status, response.Header))
	}
	flood := func() {
		for _, target := range []string{"/v1/items/7", "/v1/broken", "/v1/nothing", "/v1/items/%2f",
			"/v1/items/7?x=%zz;y"} {
			separator := "?"
			if strings.Contains(target, "?") {
				separator = "&"
			}
			for _, key := range []string{active, scoped, revoked, imported, forged, "MARKforged",
				"old-MARKforgedMARKforged"} {
				send("GET", g.URL, target, "", "X-Api-Key", key)
				send("GET", g.URL, target, "", "Authorization", "Bearer "+key)
				send("GET", g.URL, target+separator+"api_key="+key, "")
				send("GET", g.URL, target+separator+"api_key="+key+"&api_key="+key, "", "X-Api-Key", key)
			}
			send("GET", g.URL, target, "", "Authorization", "Bearer eyJMARKtokenMARK.MARKtokenMARK.x")
			send("GET", g.URL, target, "", "Authorization", "Basic MARKbasicMARK")
			send("GET", g.URL, target, "", "X-Api-Key", active, "X-Api-Key", revoked, "Authorization",
				"Bearer MARKtokenMARK")
		}
		for range 3 { // allowed, then denied
			send("POST", g.URL, "/v1/items?api_key="+active, "")
		}
		for _, body := range []string{`{"user":"MARKloginMARK","password":"MARKpassMARK"}`,
			`{"user":"MARKloginMARK","user":"MARKpassMARK"}`, `{"user":"MARKloginMARK`} {
			for range 2 { // allowed, then denied
				send("POST", g.URL, "/v1/login", body, "Content-Type", "application/json", "X-Api-Key", scoped)
			}
		}
	}
	flood()

	// What operators see.
	admin := []string{"Authorization", "Bearer " + adminToken}
	wrong := []string{"Authorization", "Bearer MARKtokenMARK"}
	asJSON := func(v any) string { text, _ := json.Marshal(v); return string(text) }
	evidence := map[string]any{
		"method":     "GET",
		"target":     "/v1/items/7?api_key=" + active,
		"header":     []string{"X-Api-Key: " + active, "Cookie: MARKcookieMARK"},
		"identifier": "MARKloginMARK",
	}
	send("POST", g.Admin, "/v1/explain", asJSON(evidence), append(admin, "Content-Type", "application/json")...)
	evidence["target"], evidence["header"] = "/v1/items/7", []string{"X-Api-Key: " + forged}
	send("POST", g.Admin, "/v1/explain", asJSON(evidence), append(admin, "Content-Type", "application/json")...)
	send("GET", g.Admin, "/v1/explain?method=GET&target="+url.QueryEscape("/v1/items/7?api_key="+active)+
		"&header=MARKtokenMARK", "", admin...)
	send("GET", g.Admin, "/v1/explain?method=GET&target=x&header="+url.QueryEscape("X-Api-Key: "+active), "", admin...)
	for _, action := range []string{"inspect", "reset"} {
		for _, key := range []string{active, forged, "MARKforged"} {
			send("POST", g.Admin, "/v1/buckets/"+action, asJSON(map[string]any{
				"endpoint": "POST /v1/items",
				"peer":     "127.0.0.1",
				"header":   []string{"X-Api-Key: " + key},
			}), append(admin, "Content-Type", "application/json")...)
		}
	}
	for _, action := range []string{"inspect", "reset"} {
		send("POST", g.Admin, "/v1/buckets/"+action,
			asJSON(map[string]any{"endpoint": "POST /v1/login", "identifier": "MARKloginMARK"}),
			append(admin, "Content-Type", "application/json")...)
	}
	for _, target := range []string{"/metrics", "/v1/policies", "/readyz", "/nothing", "/v1/explain"} {
		send("GET", g.Admin, target, "", admin...)
		send("GET", g.Admin, target, "", wrong...)
	}
	command("explain", "GET", "/v1/items/7?api_key="+active, "--offline", "--config", "headgate.yaml", "--header",
		"X-Api-Key: "+active)
	command("key", "list")
	command("key", "list", "--json")
	command("audit", "--json")
	command("policy", "export")

	// A rotation, and keys that move.
	command("secret", "rotate")
	if !g.Says("the secret file changed and is in force") {
		t.Error("the new secret is not in force")
	}
	flood()
	if !g.Says("moved API keys to the current secret") {
		t.Error("no key was moved to the new secret")
	}
	bothSecrets, err := os.ReadFile(filepath.Join(dir, "headgate.db.secret"))
	if err != nil {
		t.Fatal(err)
	}
	marks["a new secret"] = strings.Fields(string(bothSecrets))[0]
	command("secret", "show")

	// The API is gone.
	api.Close()
	flood()
	all.folder(t, dir)
	if err := g.Stop(); err != nil {
		t.Errorf("the gateway ends with %v", err)
	}
	all.add("the log", []byte(g.Log()))
	all.folder(t, dir)

	for _, control := range []struct{ where, text string }{
		{"the file headgate.db", "visible-name"}, {"headgate key list", "visible-name"},
		{"headgate policy export", "visible-rule"},
		{"the answer to GET /metrics", "visible-rule"}, {"the answer to POST /v1/explain", "[redacted]"},
		{"the answer to POST /v1/explain", "malformed"},
		{"the log", "upstream failed"}, {"headgate audit --json", "api key k_"},
		{"the file headgate.db.last-good.keys.json", "visible-name"},
	} {
		if !bytes.Contains(all[control.where], []byte(control.text)) {
			t.Errorf("%s does not hold %q, so this test looks in the wrong place", control.where, control.text)
		}
	}
	all.mustNotHave(t, marks)
}

// TestFaultsOfSettingsTellNoSecret starts a gateway with passwords where none
// belong.
func TestFaultsOfSettingsTellNoSecret(t *testing.T) {
	dir, _ := workshop(t, "")
	if err := os.WriteFile(filepath.Join(dir, "bad.secret"), []byte("MARKsecretMARK"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := seen{}
	for _, args := range [][]string{
		{"--db", "postgres://user:MARKpassMARK@db/headgate", "--upstream", "http://127.0.0.1:1"},
		{"--db", "mysql:user:MARKpassMARK@tcp(db)/headgate", "--upstream", "http://127.0.0.1:1"},
		{"--upstream", "http://user:MARKpassMARK@127.0.0.1:1"},
		{"--upstream", "http://127.0.0.1:1", "--secret-file", "bad.secret"},
	} {
		cmd := exec.Command(harness.Binary(t), append([]string{"serve", "--listen", "127.0.0.1:0", "--admin",
			"127.0.0.1:0", "--config", "headgate.yaml"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("serve %v started", args)
		}
		all.add("the output of serve", out)
	}
	all.mustNotHave(t, map[string]string{"a password": "MARKpassMARK", "a secret": "MARKsecretMARK"})
}
