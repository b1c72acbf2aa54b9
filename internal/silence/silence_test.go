package silence_test

import (
	"net"
	"testing"

	"github.com/headgate-io/headgate/internal/silence"
)

// What is looked at is there to be read afterwards.
func TestSilence(t *testing.T) {
	if !silence.Known {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	silent := func() (silent bool) {
		if err := raw.Control(func(fd uintptr) { silent = silence.Of(fd) }); err != nil {
			t.Fatal(err)
		}
		return silent
	}
	wait := func() { // until there is something
		looked := false
		if err := raw.Read(func(fd uintptr) bool { looked = !looked; return !looked || !silence.Of(fd) }); err != nil {
			t.Fatal(err)
		}
	}
	if !silent() {
		t.Error("a new connection is not silent")
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if wait(); silent() {
		t.Error("a connection with a byte to be read is silent")
	}
	var b [2]byte
	if n, err := accepted.Read(b[:]); n != 1 || err != nil || !silent() {
		t.Errorf("read %d bytes, %v; then silent: %v", n, err, silent())
	}
	_ = c.Close()
	if wait(); silent() {
		t.Error("a connection that was closed is silent")
	}
}
