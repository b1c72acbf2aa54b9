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
	"encoding/hex"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
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
}

func newFile(name string, content []byte) file {
	sum := sha256.Sum256(content)
	kind := mime.TypeByExtension(path.Ext(name))
	if path.Ext(name) == ".js" {
		kind = "text/javascript; charset=utf-8" // whatever the system's table says
	}
	return file{content, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// ServeHTTP sends the file.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
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
		content, err := files.ReadFile(name)
		all[Path+name[len("static/"):]] = newFile(name, content)
		return err
	})
	if err != nil {
		panic("an embedded file cannot be read: " + err.Error()) // ours: they are part of the program
	}
	all[Path] = all[Path+"index.html"]
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
	for _, name := range []string{"static/page.css", "static/elements.js", "static/icon.svg", "budgets/budgets.js"} {
		from := files
		if path.Dir(name) == "budgets" {
			from = budgets
		}
		content, err := from.ReadFile(name)
		if err != nil {
			panic("an embedded file cannot be read: " + err.Error()) // ours: they are part of the program
		}
		all[path.Base(name)] = newFile(name, content)
	}
	var page bytes.Buffer
	if err := template.Must(template.ParseFS(budgets, "budgets/index.html")).Execute(&page, about); err != nil {
		panic("the page of budgets cannot be made: " + err.Error()) // ours: it is part of the program
	}
	all[""] = newFile("index.html", page.Bytes())
	return all
}
