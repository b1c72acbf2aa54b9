package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/headgate-io/headgate/policy"
)

// besideLoads runs do while another process does what duringLoads does in this one.
func (p plan) besideLoads(do func() error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	loader := exec.Command(self, "-task", "loads", "-kind", p.at.Kind, "-dsn", p.at.DSN, "-rules",
		fmt.Sprint(p.at.Rules))
	loader.Stderr = os.Stderr
	stop, err := loader.StdinPipe()
	if err != nil {
		return err
	}
	says, err := loader.StdoutPipe()
	if err != nil {
		return err
	}
	if err := loader.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(says).ReadString('\n') // it has begun, or ended
	if err == nil {
		err = do()
	}
	return errors.Join(err, stop.Close(), loader.Wait())
}

// loads loads the rules again and again until the input ends. It says so when they are there for the first time.
func (p plan) loads(until io.Reader, stdout io.Writer) (err error) {
	g, err := p.newGateway(policy.CacheOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, until) // however it ends, it ends
		close(stop)
	}()
	fmt.Fprintln(stdout, "loading")
	_, err = g.load(stop)
	return err
}
