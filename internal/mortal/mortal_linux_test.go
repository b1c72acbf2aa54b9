package mortal_test

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/mortal"
)

// task makes another process of this test binary, which inherits a pipe.
const (
	task = "HEADGATE_MORTAL_TEST"
	pipe = 3 // its descriptor
)

func TestMain(m *testing.M) {
	switch os.Getenv(task) {
	case "start":
		if err := mortal.Start(process("wait", os.NewFile(pipe, "pipe")), syscall.SIGTERM); err != nil {
			panic(err)
		}
		kill()
	case "wait":
		_, _ = os.NewFile(pipe, "pipe").WriteString("started")
		for {
			time.Sleep(time.Hour)
		}
	}
	os.Exit(m.Run())
}

// kill ends this process as nothing can prevent, once there is something to
// read in the pipe: the process that it started runs.
func kill() {
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func process(name string, inherits *os.File) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), task+"="+name)
	cmd.ExtraFiles = []*os.File{inherits}
	cmd.Stderr = os.Stderr
	return cmd
}

// A process is killed, and what it started ends too: then nobody holds the pipe
// any more.
func TestEndsWithItsParent(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	parent := process("start", in)
	now, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("started"))); err != nil {
		t.Fatalf("the process did not start: %v", err)
	}
	if _, err := now.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the parent ended with %v, want it killed", err)
	}
	if _, err := io.ReadAll(out); err != nil {
		t.Errorf("the process did not end with its parent: %v", err)
	}
}
