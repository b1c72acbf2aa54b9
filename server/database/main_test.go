package database_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// childTask makes a child process of this test binary: what it does, with the
// path in childPath.
const (
	childTask = "HEADGATE_STORE_TEST_TASK"
	childPath = "HEADGATE_STORE_TEST_PATH"
	childSeed = "HEADGATE_STORE_TEST_SEED"

	// childQuiet is not empty where connections are shared out.
	childQuiet = "HEADGATE_STORE_TEST_QUIET"
)

func TestMain(m *testing.M) {
	path := os.Getenv(childPath)
	switch os.Getenv(childTask) {
	case "":
		code := m.Run()
		if err := stopServers(); err != nil {
			exit(err)
		}
		os.Exit(code)
	case "write":
		exit(writeForever(path))
	case "edit":
		exit(editForever(path))
	case "open":
		exit(openAndClose(path, database.Open))
	case "open read-only":
		exit(openAndClose(path, database.OpenReadOnly))
	case "secret":
		_, err := database.LoadSecrets(path, nil)
		exit(err)
	}
}

// tester is who changes rules in the tests.
var tester = record.Author{Actor: "test"}

func exit(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// writeForever writes one rule after the other and says the number of each when
// it is acknowledged.
func writeForever(path string) error {
	ctx := context.Background()
	s, err := database.Open(ctx, "sqlite:"+path)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := s.Set(ctx, tester, policy.Rule{Endpoint: fmt.Sprintf("GET /%d", i), Limit: 1}); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

func openAndClose(path string, open func(context.Context, string) (*database.Store, error)) error {
	s, err := open(context.Background(), "sqlite:"+path)
	if err != nil {
		return err
	}
	if _, err := s.List(context.Background()); err != nil {
		return err
	}
	return s.Close()
}

// nobody is a user who owns nothing.
const nobody = 65534

// child is this test binary as another process. Root may do everything with
// every file, so with unprivileged the process of a root is nobody's.
func child(t *testing.T, task, path string, unprivileged bool) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	must(t, err)
	attributes := &syscall.SysProcAttr{}
	if unprivileged && os.Geteuid() == 0 {
		binary = publicCopy(t, binary)
		attributes.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), childTask+"="+task, childPath+"="+path)
	cmd.Dir = "/"
	cmd.SysProcAttr = attributes
	return cmd
}

// publicDir is a folder that every user may search. t.TempDir's are the
// tester's alone.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "headgate-store-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func publicCopy(t *testing.T, file string) string {
	t.Helper()
	copied := filepath.Join(publicDir(t), "test")
	in, err := os.Open(file)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(copied, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
	must(t, os.Chmod(copied, 0o755))
	return copied
}
