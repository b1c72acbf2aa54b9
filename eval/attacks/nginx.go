package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/freeport"
)

func nginxProgram() (string, error) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} { // Debian's is not on everybody's PATH
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("nginx is not installed: run scripts/install-test-deps")
}

func nginxVersion() (string, error) {
	program, err := nginxProgram()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(program, "-v").CombinedOutput()
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "nginx/")
	return version, err
}

// nginxValidKey is the API key of the article that nginxKeyCheck follows.
const nginxValidKey = "7B5zIqmRGXmrJTFmKa99vcit"

// nginxConf is the documentation's example, and around it what any configuration has. The address
// of the client comes from the module realip, for the one proxy that is trusted.
const nginxConf = `%[6]s
daemon off;
worker_processes 1;
pid %[1]s/pid;
error_log %[1]s/error.log crit;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;

	%[3]s
	limit_req_status 429;

	set_real_ip_from %[7]s;
	real_ip_header X-Forwarded-For;
	real_ip_recursive on;

	upstream api { server %[8]s; keepalive 16; }
	server {
		listen %[2]s;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		location / { proxy_pass http://api; }
		location = /_validate_apikey {
			internal;
			if ($http_apikey != "` + nginxValidKey + `") { return 403; }
			return 204;
		}
		location %[4]s {
			%[5]s
			proxy_pass http://api;
		}
	}
}
`

// startNginx starts a real nginx on a free port. Between finding the port and listening somebody
// else may take it: then another is tried.
func startNginx(l *lab, zone, location, limit string) (string, error) {
	program, err := nginxProgram()
	if err != nil {
		return "", err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // the worker needs the temporary folders
	}
	conf := nginxConf
	if location == "/" {
		conf = strings.Replace(conf, "\t\tlocation / { proxy_pass http://api; }\n", "", 1)
	}
	for attempt := 0; ; attempt++ {
		dir, err := l.folder()
		if err != nil {
			return "", err
		}
		port, err := freeport.Pick()
		if err != nil {
			return "", err
		}
		listen := fmt.Sprintf("127.0.0.1:%d", port)
		file := filepath.Join(dir, "nginx.conf")
		text := fmt.Sprintf(conf, dir, listen, zone, location, limit, user, proxy,
			strings.TrimPrefix(l.api.URL, "http://"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		if err = l.runNginx(program, dir, file, listen); err == nil {
			return "http://" + listen, nil
		}
		if attempt == 4 {
			return "", err
		}
	}
}

func (l *lab) runNginx(program, dir, file, listen string) error {
	var log bytes.Buffer
	cmd := exec.Command(program, "-p", dir, "-c", file, "-e", filepath.Join(dir, "start.log"))
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the master ends its worker
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	gone := false
	err := await(l.ctx, 10*time.Second, "nginx listens", func() bool {
		select {
		case <-ended:
			gone = true
			return true
		default:
		}
		answer, err := http.Get("http://" + listen + "/is-it-nginx")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return strings.HasPrefix(answer.Header.Get("Server"), "nginx")
	})
	if gone {
		return fmt.Errorf("nginx ended: %s", log.Bytes())
	}
	if err != nil {
		stop()
		return err
	}
	l.atEnd(stop)
	return nil
}
