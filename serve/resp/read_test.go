package resp

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// all reads commands to their end, and returns them and how it ended.
func all(in io.Reader) (text string) {
	c := commands{in: bufio.NewReaderSize(in, 16<<10)}
	for {
		args, err := c.next()
		if err != nil {
			return text + err.Error()
		}
		text += fmt.Sprintf("%q\n", args)
	}
}

// FuzzWhole: commands that come as a whole, and are read where they lie, are those that come byte by byte.
func FuzzWhole(f *testing.F) {
	for _, sent := range []string{
		"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n*1\r\n$4\r\nPING\r\n", "PING\r\n*1\r\n$4\r\nPING\r\n", "*0\r\n*1\r\n$0\r\n\r\n",
		"*1\r\n$4\r\nPING", "*1\r\n$4\r\nPINGxx", "*1\r\n$-1\r\n", "*1000000000\r\n", "*01\r\n$004\r\nPING\r\n",
		"*1\r\n$65537\r\n",
		"*1\n$4\nPING\r\n", "*1\r\n$0000004\r\nPING\r\n", "*1025\r\n", "*1\r\n:4\r\n", "*\r\n",
		"\r\n\r\n*1\r\n$1\r\na\r\n",
		"*1\r\n$3\r\na\r\n\r\n", strings.Repeat("*1\r\n$4\r\nPING\r\n", 1500),
		"*1\r\n$20000\r\n" + strings.Repeat("x", 20000) + "\r\n",
	} {
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		if got, want := all(strings.NewReader(sent)), all(iotest.OneByteReader(strings.NewReader(sent))); got != want {
			t.Errorf("%.200q is read as\n%.500s\nand byte by byte as\n%.500s", sent, got, want)
		}
	})
}

// A command that lies in the buffer costs no memory.
func TestWholeCommandsAllocateNothing(t *testing.T) {
	const command = "*6\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n"
	in := strings.NewReader("")
	c := commands{in: bufio.NewReaderSize(in, 16<<10)}
	if n := testing.AllocsPerRun(100, func() {
		in.Reset(command)
		c.in.Reset(in)
		_, _ = c.in.Peek(1)
		if args, err := c.next(); err != nil || len(args) != 6 {
			t.Fatal(args, err)
		}
	}); n != 0 {
		t.Errorf("a command allocates %v times, want 0", n)
	}
}
