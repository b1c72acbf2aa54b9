//go:build unix && long

package approutes

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
	"github.com/headgate-io/headgate/internal/mortal"
)

// TestRailsAgrees is TestFrameworksAgree for Rails, in both ways to print its routes.
func TestRailsAgrees(t *testing.T) {
	for name, how := range map[string]string{"rails": "routes", "rails-expanded": "expanded"} {
		t.Run(name, func(t *testing.T) {
			application{
				name: name, framework: "rails",
				report: func(t *testing.T) string { return program(t, "", "apps", "ruby", "rails_app.rb", how) },
				ask: func(t *testing.T, lines string) string {
					return program(t, lines, "apps", "ruby", "rails_app.rb")
				},
				shared: [][]string{{"items#show", "items#slug"}},
				left:   []string{"deep#show"},
				idle:   []string{"/sub"},
			}.agrees(t)
		})
	}
}

// TestSpringAgrees is TestFrameworksAgree for Spring Boot, whose actuator tells its routes.
func TestSpringAgrees(t *testing.T) {
	dir, err := filepath.Abs("../../bin/garden/spring")
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Pick()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", "-cp", dir+"/target/classes:"+dir+"/target/lib/*", "app.App",
		fmt.Sprintf("--server.port=%d", port), "--server.address=127.0.0.1",
		"--management.endpoints.web.exposure.include=mappings")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := mortal.Start(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
	get := func(method, target string) (string, error) {
		r, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", port, target), nil)
		if err != nil {
			return "", err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if answer.StatusCode != 200 {
			return "-", err
		}
		return string(text), err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		if text, err := get("GET", "/actuator/mappings"); err == nil && text != "-" {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("Spring does not answer: %v; scripts/install-garden-deps builds it", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	application{
		name: "spring", framework: "spring",
		report: func(t *testing.T) string {
			text, err := get("GET", "/actuator/mappings")
			if err != nil {
				t.Fatal(err)
			}
			return text
		},
		ask: func(t *testing.T, lines string) string {
			var b strings.Builder
			for line := range strings.Lines(lines) {
				method, target, _ := strings.Cut(strings.TrimSpace(line), " ")
				text, err := get(method, target)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(text, "{") { // an actuator's own answer
					text = target
				}
				b.WriteString(text + "\n")
			}
			return b.String()
		},
		// A slash at the end tells the latter two apart, which is what `doctor --upstream spring` warns of.
		shared: [][]string{{"/v1/items/{id:[0-9]+}", "/v1/items/{slug}"}, {"/files/new", "/files/{*path}"}},
		idle:   []string{"/error"},
	}.agrees(t)
}
