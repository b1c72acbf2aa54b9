// Package page is what operators see in a browser: who is denied now, by which rule, what another limit would have
// denied, whether the gateway is well, what one caller has left, and what changed.
//
// It is a handful of files, embedded in the program. They ask the admin API as every other client does, with the same
// token and the same roles, so that the page can do nothing that a command cannot. The token stays in the browser's
// tab: a cookie would be sent to every port of the host, and so to the API behind the gateway.
//
// Budgets is the page of those who call the API: what is left to them, their last hour, and
// requests for a higher limit. It asks the developers' door, and is under its path.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// Path is where the page is.
const Path = "/ui/"

//go:embed static
var files embed.FS

//go:embed budgets
var budgets embed.FS

// policy lets nothing run or load that is not one of the files, and nobody frame the page: endpoint names, which
// clients choose, are shown on it. It is the Content-Security-Policy (W3C, level 3).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// file is one of the files, as it is sent.
type file struct {
	content []byte
	kind    string
	tag     string
	policy  string // under which it is shown
}

func newFile(name string, content []byte) file {
	sum := sha256.Sum256(content)
	kind := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".js" {
		kind = "text/javascript; charset=utf-8" // whatever the system's table says
	}
	return file{content, kind, `"` + hex.EncodeToString(sum[:8]) + `"`, policy}
}

// newPage is a page with its styles, which are named. They are part of it, and its policy has their hash: nothing has
// to be asked for before something is seen.
func newPage(from embed.FS, name string, about About, styles ...string) file {
	var style, out bytes.Buffer
	for _, name := range styles {
		style.Write(read(files, name))
	}
	page := struct {
		About
		Style template.CSS
	}{about, template.CSS(style.String())} //nolint:gosec // it is the program's own
	if err := template.Must(template.ParseFS(from, name)).Execute(&out, page); err != nil {
		panic("a page cannot be made: " + err.Error()) // ours: it is part of the program
	}
	sum := sha256.Sum256(style.Bytes())
	f := newFile(name, out.Bytes())
	f.policy = strings.Replace(policy, "style-src 'self'",
		"style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", 1)
	return f
}

// read returns an embedded file.
func read(from embed.FS, name string) []byte {
	content, err := from.ReadFile(name)
	if err != nil {
		panic("an embedded file cannot be read: " + err.Error()) // ours: it is part of the program
	}
	return content
}

// ServeHTTP sends the file.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", f.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // asked for each time, and answered with 304
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}

// Handler serves the page under Path. It asks for no token: the files hold nothing but the program's own text.
func Handler() http.Handler {
	all := map[string]file{}
	err := fs.WalkDir(files, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		all[Path+name[len("static/"):]] = newFile(name, read(files, name))
		return nil
	})
	if err != nil {
		panic("the embedded files cannot be listed: " + err.Error()) // ours: they are part of the program
	}
	all[Path] = newPage(files, "static/index.html", About{}, "static/vendor/uPlot.min.css", "static/page.css")
	all[Path+"index.html"] = all[Path]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := all[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		f.ServeHTTP(w, r)
	})
}

// About is what the page of budgets has to know of the door that it is under.
type About struct {
	Path     string // of the door
	Header   string // in which API keys stand; empty if that is Authorization
	Requests bool   // whether a higher limit can be asked for
}

// Budgets returns the files of the page of budgets by name. The page itself has none: it is at the door's path.
func Budgets(about About) map[string]http.Handler {
	all := map[string]http.Handler{}
	for _, name := range []string{"static/elements.js", "static/icon.svg"} {
		all[path.Base(name)] = newFile(name, read(files, name))
	}
	all["budgets.js"] = newFile("budgets.js", read(budgets, "budgets/budgets.js"))
	all[""] = newPage(budgets, "budgets/index.html", about, "static/page.css")
	return all
}
