package harness

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// The machine's clock is not for tests to set, and a Go program takes no time from a library that
// could be put in its place: it calls a function that the kernel maps into every process, the
// vDSO's, by a pointer in its runtime. So the pointer is bent, in the running process, to a
// function of ours at the unused end of the same pages. It asks the kernel, and adds some seconds
// to what the wall clock says. Whatever else is asked goes to the kernel's function as before: the
// monotonic clock, and with it every timer, goes on evenly, as it does when somebody sets the clock
// of a machine.

// clockAt is where our function is, counted from the end of the pages, and stepAt where the seconds are that it adds.
const (
	clockAt = 64
	stepAt  = 8
)

// clock is our function, at an address, with the kernel's at another.
func clock(at, kernels uint64) []byte {
	const afterJump, afterLoad = 8, 22 // what addresses are relative to
	code := []byte{
		0x85, 0xff, // test edi, edi: 0 is CLOCK_REALTIME
		0x0f, 0x85, 0, 0, 0, 0, // jne kernels
		0xb8, 228, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [the seconds]
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	}
	binary.LittleEndian.PutUint32(code[4:], uint32(kernels-at-afterJump))
	binary.LittleEndian.PutUint32(code[18:], clockAt-stepAt-afterLoad)
	return code
}

// SetClock has the gateway believe that its wall clock is ahead of the machine's by so much, in
// whole seconds, below zero for behind; 0 sets it right. It works for processes on Linux whose
// parent this one is.
func (g *Gateway) SetClock(ahead time.Duration) error {
	if ahead%time.Second != 0 {
		return fmt.Errorf("set the clock: ahead is %v, want whole seconds", ahead)
	}
	if err := g.halted(func() error { return g.bend(int64(ahead / time.Second)) }); err != nil {
		return fmt.Errorf("set the clock of process %d: %w", g.PID(), err)
	}
	return nil
}

// halted does something while no thread of the process runs.
func (g *Gateway) halted(do func() error) error {
	if err := g.Freeze(); err != nil {
		return err
	}
	return errors.Join(do(), g.Thaw())
}

// bend writes the seconds, and the first time our function and the pointer to it.
func (g *Gateway) bend(seconds int64) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", g.PID()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	first, last, err := g.vdso()
	if err != nil {
		return err
	}
	pointer, err := g.symbol("runtime.vdsoClockgettimeSym")
	if err != nil {
		return err
	}
	points, ours := make([]byte, 8), last-clockAt
	if _, err := memory.ReadAt(points, int64(pointer)); err != nil {
		return err
	}
	write := func(at uint64, what []byte) error {
		_, err := memory.WriteAt(what, int64(at))
		return err
	}
	err = write(last-stepAt, binary.LittleEndian.AppendUint64(nil, uint64(seconds)))
	kernels := binary.LittleEndian.Uint64(points)
	if err != nil || kernels == ours {
		return err
	}
	room := make([]byte, clockAt-stepAt)
	if _, err := memory.ReadAt(room, int64(ours)); err != nil {
		return err
	}
	if kernels < first || kernels >= ours || !bytes.Equal(room, make([]byte, len(room))) {
		return fmt.Errorf(
			"its runtime reads the time at %x, and the vDSO from %x to %x ends in %x; want a function in it, and "+
				"room", kernels, first, last, room)
	}
	if err := write(ours, clock(ours, kernels)); err != nil {
		return err
	}
	return write(pointer, binary.LittleEndian.AppendUint64(nil, ours))
}

// vdso is where the kernel's functions are in the process.
func (g *Gateway) vdso() (first, last uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", g.PID()))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x", &first, &last)
			return first, last, err
		}
	}
	return 0, 0, errors.New("it has no vDSO")
}

// symbol is the address of a variable of the process.
func (g *Gateway) symbol(name string) (uint64, error) {
	program, err := elf.Open(fmt.Sprintf("/proc/%d/exe", g.PID()))
	if err != nil {
		return 0, err
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == name && program.Type == elf.ET_EXEC {
			return s.Value, nil
		}
	}
	return 0, fmt.Errorf("it has no %s at a fixed address", name)
}

// Clock is what the gateway says that the time is, to the second, in an answer of its admin listener.
func (g *Gateway) Clock() (time.Time, error) {
	response, err := http.Get(g.Admin + "/healthz")
	if err != nil {
		return time.Time{}, err
	}
	_ = response.Body.Close()
	return http.ParseTime(response.Header.Get("Date"))
}
