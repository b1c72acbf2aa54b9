package page_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/page"
)

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	page.Handler().ServeHTTP(w, r)
	return w.Result()
}

// Everything that index.html asks for is there, within 150 KB, and may run under the policy that comes with it.
func TestThePageIsWhole(t *testing.T) {
	index := get(t, page.Path)
	text, err := io.ReadAll(index.Body)
	if err != nil || index.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %d, %v", page.Path, index.StatusCode, err)
	}
	size := len(text)
	for _, name := range regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(name[1], ":") {
			t.Errorf("index.html loads %s, want nothing from elsewhere", name[1])
		}
		file := get(t, page.Path+name[1])
		content, _ := io.ReadAll(file.Body)
		size += len(content)
		if file.StatusCode != http.StatusOK || len(content) == 0 {
			t.Errorf("GET %s = %d with %d bytes", name[1], file.StatusCode, len(content))
		}
		if again := get(t, page.Path+name[1], "If-None-Match",
			file.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("GET %s again = %d, want 304", name[1], again.StatusCode)
		}
	}
	if size > 150<<10 {
		t.Errorf("the page is %d bytes, want at most 150 KiB", size)
	}
	strict(t, index, string(text))
	if loads := regexp.MustCompile(`<link rel="stylesheet"|<script src="[^"]*"(?: id="\w+")?>`).
		FindString(string(text)); loads != "" {
		t.Errorf("index.html has %s, for which what is to be seen waits", loads)
	}
	if inline := regexp.MustCompile(`(?i)<script(?:>|[^>]*>[^<])|\son\w+=|style=`).
		FindString(string(text)); inline != "" {
		t.Errorf("index.html has %q inline, which the policy refuses", inline)
	}
}

// strict holds that a page comes with a policy under which its own styles are used, and nothing else that is inline.
func strict(t *testing.T, page *http.Response, text string) {
	t.Helper()
	_, style, _ := strings.Cut(text, "<style>")
	style, _, ok := strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := page.Header.Get("Content-Security-Policy")
	if !ok || len(style) < 1000 || !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") ||
		!strings.Contains(policy, "style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';") {
		t.Errorf("Content-Security-Policy is %q for styles of %d bytes", policy, len(style))
	}
}

// The page of budgets is as strict as that of operators, whatever it is told.
func TestTheBudgetsPageIsWhole(t *testing.T) {
	files := page.Budgets(page.About{Path: "/.headgate", Header: `X"onload="alert(1)`, Requests: true})
	load := func(name string) (*http.Response, string) {
		w := httptest.NewRecorder()
		files[name].ServeHTTP(w, httptest.NewRequest("GET", "/.headgate/"+name, nil))
		return w.Result(), w.Body.String()
	}
	answer, text := load("")
	strict(t, answer, text)
	if answer.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the page comes with %v", answer.Header)
	}
	if !strings.Contains(text, `data-path="/.headgate" data-header="X&#34;onload=&#34;alert(1)" data-requests="true"`) {
		t.Errorf("the page does not say where it is:\n%s", text)
	}
	size := len(text)
	for _, name := range regexp.MustCompile(`(?:href|src)="/.headgate/([^"#]+)"`).FindAllStringSubmatch(text, -1) {
		if files[name[1]] == nil {
			t.Errorf("the page loads %s, which is none of its files", name[1])
			continue
		}
		_, content := load(name[1])
		size += len(content)
	}
	if size > 40<<10 || len(files) != 4 {
		t.Errorf("the page is %d bytes in %d files, want at most 40 KiB in 4", size, len(files))
	}
}

func TestNothingElseIsServed(t *testing.T) {
	for _, path := range []string{"/ui/../page.go", "/ui/static/index.html", "/ui/nothing", "/ui/vendor/",
		"/ui/vendor/..", "/ui/%2e%2e/page.go"} {
		if got := get(t, path); got.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, got.StatusCode)
		}
	}
}

// What is made of texts is made as text: the scripts call nothing that reads HTML or code.
func TestScriptsMakeNoHTML(t *testing.T) {
	for _, name := range []string{"static/elements.js", "static/page.js", "static/views.js", "budgets/budgets.js"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(
			`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|localStorage|\.cookie`).Find(text); found != nil {
			t.Errorf("%s uses %s", name, found)
		}
	}
}

// What is not ours is what its authors published: uPlot 1.6.32, as it is in the npm registry.
func TestVendoredFilesAreAsPublished(t *testing.T) {
	for name, want := range map[string]string{
		"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"uPlot.LICENSE":     "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
	} {
		content, err := os.ReadFile(filepath.Join("static", "vendor", name))
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); err != nil || got != want {
			t.Errorf("%s has the SHA-256 %s, %v; want %s", name, got, err, want)
		}
	}
}
