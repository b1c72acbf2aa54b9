package mortal

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts a process that gets a signal when this one has ended.
func Start(cmd *exec.Cmd, last syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = last
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// starter is a thread that never ends: to the kernel it is the thread that is
// the parent, and Go ends threads now and then.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})
