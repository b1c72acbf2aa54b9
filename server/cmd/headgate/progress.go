package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// firstWord is after how long a silent command says what it does.
const firstWord = time.Second

// working does something that may take long, and says so every second on standard
// error if that is a terminal. What is said is erased when it is done.
func working(cmd *cobra.Command, what string, do func() error) error {
	if !isTerminal(cmd.ErrOrStderr()) {
		return do()
	}
	return workingOn(cmd.ErrOrStderr(), what, do)
}

func workingOn(terminal io.Writer, what string, do func() error) error {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(firstWord)
		defer ticker.Stop()
		began, said := time.Now(), false
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(terminal, "\r\033[K%s, for %d s", what, int(time.Since(began).Seconds()))
				said = true
			case <-done:
				if said {
					fmt.Fprint(terminal, "\r\033[K")
				}
				return
			}
		}
	}()
	err := do()
	close(done)
	<-ended // before anything else is written there
	return err
}
