// Command soak keeps a gateway busy for a long time while its settings, its rules and the servers behind it change
// under it, and clients leave in the middle of everything. It fails if an answer is wrong or lost, or if the process
// holds more at the end than it did at the beginning.
//
//	go run ./soak                      half an hour
//	go run ./soak -for 20s -engine net/http
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	span := flags.Duration("for", 30*time.Minute, "how long")
	engine := flags.String("engine", "fast", "what reads requests: fast or net/http")
	each := flags.Int("clients", 8, "how many clients of each kind")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *span < 5*time.Second || *each < 1 {
		return errors.New("want -for of 5s or more and -clients of 1 or more")
	}
	s, err := start(*engine, out)
	if err != nil {
		return err
	}
	defer s.close()
	before, err := s.rest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%v of %s; at rest %v\n", *span, *engine, before)
	ctx, cancel := context.WithTimeout(ctx, *span)
	defer cancel()
	var all sync.WaitGroup
	for _, k := range kinds {
		for range *each {
			all.Go(func() { s.repeat(ctx, k) })
		}
	}
	all.Go(func() { s.trouble(ctx) })
	every := min(*span/3, 30*time.Second)
	begin, ticker := time.Now(), time.NewTicker(every)
	defer ticker.Stop()
	for more := true; more; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			more = false
		}
		now, err := s.look()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%6v  %v  %v\n", time.Since(begin).Round(time.Second), s.counts(), now)
	}
	all.Wait()
	after, err := s.rest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "at rest again %v\n", after)
	return errors.Join(s.verdict(), before.leaks(after))
}
