package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/server/config"
)

// What a page shows is what the command prints. The pages under docs/, and
// README.md where it says <!-- run -->, are executed:
//
//	```console      "$ " begins a command for bash, the lines after it are what it prints. A line "..." stands for
//	                any lines, "…" in a line for any text. A command that ends in & runs until the page ends.
//	```yaml, json,  is written to a file: <!-- file: NAME --> stands before the block.
//	```text         with such a comment too; without, it is a picture.
//	```go           is what stands in a tested Go file: <!-- code: FILE NAME --> stands before the block, and the
//	                file has it between "// begin: NAME" and "// end: NAME".
//
// <!-- soon --> before a console block lets its commands be repeated until they print what the page says, for as
// long as patience: that is how "within a second" reads to a machine. Use it for commands that only look.
//
// <!-- begin: COMMAND --> and <!-- end --> enclose what COMMAND writes; its own test compares it.
//
// Databases of a server at db.internal are made on real servers for the pages that name them.
//
// All blocks of a page share one shell and one folder, which prints as folder. The addresses below are replaced by
// free ones and back. 9000 is the example API, 9001 is nobody.
const (
	folder   = "/srv/headgate"
	gateway  = "127.0.0.1:8080"
	adminAPI = "127.0.0.1:8081"
	api      = "127.0.0.1:9000"
	nobody   = "127.0.0.1:9001"

	patience = time.Minute
)

// repository returns the root folder.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// pages returns the paths of docs/*.md and README.md.
func pages(t *testing.T, root string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(found) == 0 {
		t.Fatalf("docs/*.md: %d pages, %v", len(found), err)
	}
	return append(found, filepath.Join(root, "README.md"))
}

func TestPagesRun(t *testing.T) {
	root := repository(t)
	program := buildProgram(t, root)
	for _, path := range pages(t, root) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			runPage(t, path, program)
		})
	}
}

// buildProgram makes the command that the pages run.
func buildProgram(t *testing.T, root string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "headgate")
	build := exec.Command("go", "build", "-o", program, "./cmd/headgate")
	build.Dir = filepath.Join(root, "server")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

func runPage(t *testing.T, path, program string) {
	blocks := readBlocks(t, path)
	readme := filepath.Base(path) == "README.md"
	s := newSession(t, program, path)
	examples := 0
	for _, b := range blocks {
		switch {
		case b.file != "":
			s.write(b)
		case b.language == "console" && (b.run || !readme):
			examples++
			s.console(filepath.Base(path), b)
		case b.language == "go":
			examples++ // TestBlocksAreOfAKind finds it in a tested file
		}
	}
	if examples == 0 {
		t.Errorf("%s has no block of console or go, want a worked example", filepath.Base(path))
	}
}

// block is a fenced block and the comments before it.
type block struct {
	line     int // of its first line of content
	language string
	content  []string

	file string // <!-- file: NAME -->
	code string // <!-- code: FILE NAME -->
	soon bool   // <!-- soon -->
	run  bool   // <!-- run -->
}

var directive = regexp.MustCompile(`^<!-- (file|code|soon|run|begin|end)(?:: (.*))? -->$`)

func readBlocks(t *testing.T, path string) []block {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	var next block
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !inside:
			next.language, next.line, inside = fence, i+2, true
		case isFence:
			blocks = append(blocks, next)
			next, inside = block{}, false
		case inside:
			next.content = append(next.content, line)
		case directive.MatchString(line):
			match := directive.FindStringSubmatch(line)
			switch match[1] {
			case "file":
				next.file = match[2]
			case "code":
				next.code = match[2]
			case "soon":
				next.soon = true
			case "run":
				next.run = true
			}
		case strings.HasPrefix(line, "<!--"):
			t.Errorf("%s:%d: comment %q is not a directive", path, i+1, line)
		}
	}
	if inside {
		t.Errorf("%s:%d: the block is not closed", path, next.line)
	}
	return blocks
}

// session is one page's shell and folder.
type session struct {
	t         *testing.T
	dir       string // the page's folder
	logs      string // where background commands write
	stdin     io.Writer
	stdout    *bufio.Reader
	kill      func()
	ports     map[string]string // by the address that pages write
	translate *strings.Replacer
	restore   *strings.Replacer
	started   int
}

func newSession(t *testing.T, program, page string) *session {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	s := &session{t: t, dir: dir, logs: home, ports: map[string]string{
		gateway: freeAddress(t), adminAPI: freeAddress(t), nobody: freeAddress(t), api: exampleAPI(t),
	}}
	there, back := exampleDatabases(t, page)
	thereToo, backToo := exampleStore(t, page)
	there, back = append(there, thereToo...), append(back, backToo...)
	for page, real := range s.ports {
		there, back = append(there, page, real), append(back, real, page)
	}
	s.translate = strings.NewReplacer(there...)
	s.restore = strings.NewReplacer(append(back, dir, folder, "\r", "")...)
	s.equip(home, program)
	s.start(home)
	return s
}

// equip puts the command on the shell's PATH. Its default addresses are
// replaced like those that a page writes: later flags win over these.
func (s *session) equip(home, program string) {
	s.t.Helper()
	shim := fmt.Sprintf("#!/bin/bash\ncommand=$1; shift\ncase $command in\n"+
		"serve) set -- --listen %s --admin %s \"$@\" ;;\n"+
		"explain) set -- --server http://%s \"$@\" ;;\n"+
		"bucket) inner=$1; shift; set -- \"$inner\" --server http://%s \"$@\" ;;\nesac\nexec %s \"$command\" \"$@\"\n",
		s.ports[gateway], s.ports[adminAPI], s.ports[adminAPI], s.ports[adminAPI], program)
	// At a terminal curl draws no progress, and here it would.
	err := errors.Join(
		os.WriteFile(filepath.Join(home, "headgate"), []byte(shim), 0o700),
		os.WriteFile(filepath.Join(home, ".curlrc"), []byte("silent\nshow-error\n"), 0o600))
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) start(home string) {
	s.t.Helper()
	shell := exec.Command("bash", "--noprofile", "--norc")
	shell.Dir = s.dir
	shell.Env = []string{"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C.UTF-8", "TZ=UTC"}
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err1 := shell.StdinPipe()
	stdout, err2 := shell.StdoutPipe()
	// Whatever the shell starts holds the alive pipe: at its end all of it has ended.
	alive, held, err3 := os.Pipe()
	shell.ExtraFiles = []*os.File{held}
	if err := errors.Join(err1, err2, err3, shell.Start()); err != nil {
		s.t.Fatal(err)
	}
	held.Close()
	s.stdin, s.stdout = stdin, bufio.NewReader(stdout)
	s.kill = sync.OnceFunc(func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) })
	s.t.Cleanup(func() {
		s.kill()
		_ = shell.Wait()
		_, _ = io.Copy(io.Discard, alive)
		alive.Close()
	})
}

// write makes the file that a page shows.
func (s *session) write(b block) {
	s.t.Helper()
	if !filepath.IsLocal(b.file) {
		s.t.Fatalf("line %d: file is %q, want one in the page's folder", b.line, b.file)
	}
	content := s.translate.Replace(strings.Join(b.content, "\n") + "\n")
	if err := os.WriteFile(filepath.Join(s.dir, b.file), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// console runs the commands of a block and compares what they print.
func (s *session) console(page string, b block) {
	s.t.Helper()
	for at := 0; at < len(b.content); {
		first := at
		command, ok := strings.CutPrefix(b.content[at], "$ ")
		if !ok {
			s.t.Fatalf("%s:%d: %q stands where a command should begin", page, b.line+at, b.content[at])
		}
		for at++; strings.HasSuffix(command, `\`) && at < len(b.content); at++ {
			command += "\n" + b.content[at]
		}
		var want []string
		for ; at < len(b.content) && !strings.HasPrefix(b.content[at], "$ "); at++ {
			want = append(want, b.content[at])
		}
		if started, ok := strings.CutSuffix(command, "&"); ok && !strings.HasSuffix(command, "&&") {
			s.background(started)
			continue
		}
		s.expect(fmt.Sprintf("%s:%d", page, b.line+first), command, want, b.soon)
	}
}

func (s *session) expect(where, command string, want []string, soon bool) {
	s.t.Helper()
	pattern := printed(want)
	got := s.restore.Replace(s.run(s.translate.Replace(command)))
	if soon {
		eventually(patience, func() bool {
			if pattern.MatchString(got) {
				return true
			}
			got = s.restore.Replace(s.run(s.translate.Replace(command)))
			return false
		})
	}
	if !pattern.MatchString(got) {
		s.t.Errorf("%s: %s\nprints\n%s\nthe page says\n%s", where, command, got, strings.Join(want, "\n"))
	}
}

// printed is what a page says of an output.
func printed(want []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range want {
		if line == "..." {
			b.WriteString(`(?:[^\n]*\n)*`)
			continue
		}
		for i, part := range strings.Split(line, "…") {
			if i > 0 {
				b.WriteString(`[^\n]*`)
			}
			b.WriteString(regexp.QuoteMeta(part))
		}
		b.WriteString(`\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

// run has the shell execute a command, and returns what it prints, with a
// line end at its end if it prints anything.
func (s *session) run(command string) string {
	s.t.Helper()
	end := fmt.Sprintf("end of command %x", rand.Uint64())
	// In braces, so that what it sets stays set.
	fmt.Fprintf(s.stdin, "{ %s\n} </dev/null 2>&1\nprintf '\\n%s\\n'\n", command, end)
	limit := time.AfterFunc(patience, s.kill)
	defer limit.Stop()
	var out strings.Builder
	for {
		line, err := s.stdout.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s: no end within %v, or the shell ended: %v\n%s", command, patience, err, out.String())
		}
		if line == end+"\n" {
			break
		}
		out.WriteString(line)
	}
	text := strings.TrimSuffix(out.String(), "\n") // the one before end
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// background starts a command that runs on, and waits until it serves.
func (s *session) background(command string) {
	s.t.Helper()
	command = s.translate.Replace(command)
	serves := strings.Contains(command, "headgate serve")
	if serves && !eventually(patience, func() bool { return s.isFree(gateway) && s.isFree(adminAPI) }) {
		s.t.Fatalf("%s: the gateway before it does not end", command)
	}
	s.started++
	log := filepath.Join(s.logs, fmt.Sprintf("%d.log", s.started))
	// Disowned, so that the shell does not say when it ends.
	s.run(fmt.Sprintf("%s >%s 2>&1 & disown", command, log))
	if serves && !eventually(patience, s.isReady) {
		text, _ := os.ReadFile(log)
		s.t.Fatalf("%s: is not ready within %v\n%s", command, patience, text)
	}
}

func (s *session) isFree(page string) bool {
	c, err := net.DialTimeout("tcp", s.ports[page], patience)
	if err == nil {
		c.Close()
	}
	return err != nil
}

func (s *session) isReady() bool {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + s.ports[adminAPI] + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// eventually asks until ok or the time is over, and reports whether it came
// to be. It is for what another process does in its own time.
func eventually(within time.Duration, ok func() bool) bool {
	over := time.NewTimer(within)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-over.C:
			return false
		case <-tick.C:
		}
	}
	return true
}

var (
	portsMu    sync.Mutex
	portsGiven = map[int]bool{}
)

// listen takes a port that no other page was given. It is below the range
// from which systems choose ports by themselves, so that no connection takes
// it later, and all have five digits, so that none begins another.
func listen(t *testing.T) net.Listener {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := 10240 + rand.IntN(32768-10240)
		if portsGiven[port] {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			portsGiven[port] = true
			return l
		}
	}
	t.Fatal("no free port")
	return nil
}

// freeAddress returns an address where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// exampleAPI is the API that the pages stand the gateway before. It answers
// with the request line that reached it; /v1/forwarded with the forwarding
// fields that did; /v1/slow does not answer; /v1/login knows one password.
func exampleAPI(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/slow":
			<-r.Context().Done()
		case "/v1/login":
			if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte(`"password":`)) && !bytes.Contains(text, []byte(`:"right"`)) {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintln(w, "wrong password")
				return
			}
			fmt.Fprintln(w, "welcome")
		case "/v1/forwarded":
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if values := r.Header.Values(name); len(values) > 0 {
					fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, ", "))
				}
			}
		default:
			fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
		}
	}))
	server.Listener.Close()
	server.Listener = listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestBlocksAreOfAKind holds that nothing stands on a page unchecked: every
// block runs, is a file, is tested code, or is a picture.
func TestBlocksAreOfAKind(t *testing.T) {
	root := repository(t)
	for _, path := range pages(t, root) {
		page := filepath.Base(path)
		for _, b := range readBlocks(t, path) {
			switch b.language {
			case "console", "text":
			case "yaml", "json":
				if b.file == "" {
					t.Errorf("%s:%d: a block of %s, want <!-- file: NAME --> before it", page, b.line, b.language)
				}
			case "go":
				checkCode(t, root, page, b)
			case "sh":
				if page != "README.md" {
					t.Errorf("%s:%d: a block of sh, want console", page, b.line)
				}
			default:
				t.Errorf("%s:%d: a block of %q, want console, text, yaml, json or go", page, b.line, b.language)
			}
		}
	}
}

// checkCode compares a Go block with the tested code of its name.
func checkCode(t *testing.T, root, page string, b block) {
	t.Helper()
	file, name, _ := strings.Cut(b.code, " ")
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil || name == "" {
		t.Errorf("%s:%d: want <!-- code: FILE NAME --> before the block: %v", page, b.line, err)
		return
	}
	var code []string
	inside, found := false, false
	for _, line := range strings.Split(string(text), "\n") {
		switch strings.TrimSpace(line) {
		case "// begin: " + name:
			inside, found = true, true
		case "// end: " + name:
			inside = false
		default:
			if inside {
				code = append(code, line)
			}
		}
	}
	if !found {
		t.Errorf("%s:%d: %s has no line %q", page, b.line, file, "// begin: "+name)
		return
	}
	if got, want := strings.Join(b.content, "\n"), strings.Join(dedent(code), "\n"); got != want {
		t.Errorf("%s:%d: the code is\n%s\n%s has\n%s", page, b.line, got, file, want)
	}
}

// dedent removes the tabs that all lines begin with, and empty lines at the
// end.
func dedent(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	least := -1
	for _, line := range lines {
		if line != "" {
			if tabs := len(line) - len(strings.TrimLeft(line, "\t")); least < 0 || tabs < least {
				least = tabs
			}
		}
	}
	out := slices.Clone(lines)
	for i := range out {
		out[i] = out[i][min(max(least, 0), len(out[i])):]
	}
	return out
}

var (
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading    = regexp.MustCompile(`^#{1,6} (.*)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksLeadSomewhere follows every relative link of every page of the
// repository, its fragment included.
func TestLinksLeadSomewhere(t *testing.T) {
	root := repository(t)
	followed := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata" || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(prose(text), ""), -1) {
			target, err := url.Parse(match[1])
			if err != nil || target.IsAbs() {
				continue
			}
			followed++
			to := path
			if target.Path != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(target.Path))
			}
			if fault := follow(root, to, target.Fragment); fault != "" {
				rel, _ := filepath.Rel(root, path)
				t.Errorf("%s: the link %s %s", rel, match[1], fault)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed == 0 {
		t.Error("no link was found")
	}
}

// follow says what is wrong with a link, or nothing.
func follow(root, to, fragment string) string {
	if rel, err := filepath.Rel(root, to); err != nil || !filepath.IsLocal(rel) {
		return "leads out of the repository"
	}
	info, err := os.Stat(to)
	if err != nil {
		return "leads nowhere"
	}
	if fragment == "" {
		return ""
	}
	if info.IsDir() || filepath.Ext(to) != ".md" {
		return "has a fragment, and its target no headings"
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(prose(text)) {
		if match := heading.FindStringSubmatch(strings.TrimSpace(line)); match != nil && slug(match[1]) == fragment {
			return ""
		}
	}
	return "names a heading that is not there"
}

// slug is the name under which forges link a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// prose is a page without its fenced blocks.
func prose(text []byte) string {
	var b strings.Builder
	inside := false
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("```")) {
			inside = !inside
		} else if !inside {
			b.Write(line)
		}
	}
	return b.String()
}

// TestEverySettingIsOnItsPage compares the configuration with docs/gateway.md.
func TestEverySettingIsOnItsPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "gateway.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := prose(text)
	want := func(setting string) {
		if !strings.Contains(page, "`"+setting+"`") {
			t.Errorf("docs/gateway.md does not explain `%s`", setting)
		}
	}
	settings(reflect.TypeFor[config.Config](), "", want)
	newServe().Flags().VisitAll(func(f *pflag.Flag) { want("--" + f.Name) })
}

// settings names every field as the file writes it, those of a part after the
// part's name and a dot.
func settings(of reflect.Type, part string, each func(string)) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Tag.Get("yaml") == ",inline" {
			settings(f.Type, part, each)
			continue
		}
		if name := part + f.Tag.Get("yaml"); f.Type.Kind() == reflect.Struct {
			settings(f.Type, name+".", each)
		} else {
			each(name)
		}
	}
}
