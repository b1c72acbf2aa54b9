package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

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
	serving   string // process ID of the last gateway; "" before
	today     func() string
	day       string // on which it began
	anew      bool   // it has to begin on another day
}

func newSession(t *testing.T, program, page string) *session {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	s := &session{t: t, dir: dir, logs: home, ports: map[string]string{
		gateway: freeAddress(t), adminAPI: freeAddress(t), asked: freeAddress(t), called: freeAddress(t),
		redis: freeAddress(t), nobody: freeAddress(t), api: exampleAPI(t),
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
		"kube) [ $1 = admission ] && { shift; set -- admission --admin %s \"$@\"; } ;;\n"+
		"explain | reload | ready | activity | anomalies | usage) set -- --server http://%s \"$@\" ;;\n"+
		"bucket) inner=$1; shift; set -- \"$inner\" --server http://%s \"$@\" ;;\nesac\nexec %s \"$command\" \"$@\"\n",
		s.ports[gateway], s.ports[adminAPI], s.ports[adminAPI], s.ports[adminAPI], s.ports[adminAPI], program)
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
	tools := filepath.Join(repository(s.t), "bin") // where `make deps` puts what Debian does not have
	path := home + ":" + tools + ":" + os.Getenv("PATH")
	shell.Env = []string{"PATH=" + path, "HOME=" + home, "LC_ALL=C.UTF-8", "TZ=UTC"}
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
	for at := 0; at < len(b.content) && !s.anew; {
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
		s.complain("%s: %s\nprints\n%s\nthe page says\n%s", where, command, got, strings.Join(want, "\n"))
	}
	for line := range strings.Lines(got) { // which "..." would stand for too
		if strings.HasPrefix(line, "headgate: unknown ") && !slices.Contains(want, strings.TrimSuffix(line, "\n")) {
			s.complain("%s: %s\nprints %s", where, command, line)
		}
	}
}

// complain says that a page is wrong, unless another day has begun since the page did: no page tells of two.
func (s *session) complain(format string, args ...any) {
	s.t.Helper()
	if s.anew = s.anew || s.today() != s.day; !s.anew {
		s.t.Errorf(format, args...)
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
	serves := strings.Contains(command, "headgate serve") || strings.Contains(command, "headgate kube admission")
	// It writes its files when nobody can reach it any more.
	ended := func() bool { return s.serving == "" || s.run("kill -0 "+s.serving) != "" }
	if serves && !eventually(patience, func() bool { return s.isFree(gateway) && s.isFree(adminAPI) && ended() }) {
		s.t.Fatalf("%s: the gateway before it does not end", command)
	}
	s.started++
	log := filepath.Join(s.logs, fmt.Sprintf("%d.log", s.started))
	// Disowned, so that the shell does not say when it ends.
	id := s.run(fmt.Sprintf("%s >%s 2>&1 & disown; echo $!", command, log))
	if serves {
		s.serving = strings.TrimSpace(id)
	}
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

// TestMidnightOnAPage: what a page shows of a day it shows on the next one, if midnight comes between its commands.
func TestMidnightOnAPage(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "calendar.md")
	text := "```console\n$ echo a command >> " + dir + "/seen; wc -l < " + dir + "/seen\n2\n```\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 26, 22, 59, 59, 0, time.UTC) // a second before midnight in Zurich
	runPage(t, page, "", func() time.Time {
		at = at.Add(500 * time.Millisecond)
		return at
	})
}
