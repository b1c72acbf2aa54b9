// Package demo shows the gateway at work: an example API, rules in an embedded
// database, the gateway between them, and three kinds of clients.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// Options configures a demonstration. Every zero value is a default.
type Options struct {
	// Listen and Admin are tried first; an address in use is replaced by a
	// free port. Default 127.0.0.1:8080 and 127.0.0.1:8081.
	Listen, Admin string

	// For ends the demonstration after a while. 0 goes on until ctx ends.
	For time.Duration

	// Out receives the drawing: the whole screen of a terminal, where Size reports how large it is, else lines. The
	// demonstration ends when nobody takes it.
	Out  io.Writer
	Size func() (columns, rows int)

	// Program is how the reader calls the command, for the lines to try.
	Program string

	Version string
}

// rules are few enough to read at a glance and enough to show each kind.
var rules = []policy.Rule{
	{Endpoint: "GET /v1/books/{book}", Limit: 5, Burst: 10},
	{Endpoint: "POST /v1/orders", Limit: 30, Per: time.Minute, Burst: 5},
	{Endpoint: policy.Default, Limit: 20},
	{Endpoint: policy.UnknownEndpoint, Limit: 10},
	{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectIP, Name: "guard per address"},
}

// routes is the API's list of endpoints.
const routes = `# The demonstration's API.
GET  /v1/books
GET  /v1/books/{book}
GET  /v1/books/search
POST /v1/orders
GET  /v1/orders/{order}
`

// Run shows the demonstration until ctx ends or the time is over.
func Run(ctx context.Context, o Options) error {
	dir, err := os.MkdirTemp("", "headgate-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	api, err := startAPI()
	if err != nil {
		return err
	}
	defer api.Close()

	conf, keys, err := prepare(ctx, dir, api.URL, o)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(o.Out, &slog.HandlerOptions{Level: slog.LevelError}))
	gate, err := daemon.Start(ctx, conf, daemon.Options{Log: log, Version: o.Version})
	if err != nil {
		return err
	}
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	return show(ctx, gate, o, conf, keys, dir)
}

// show drives the clients and draws until ctx ends, then shuts down.
func show(ctx context.Context, gate *daemon.Daemon, o Options, conf config.Config, keys map[string]string,
	dir string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	clients := newClients("http://"+gate.Gateway().String(), keys)
	stopped := make(chan error, 1)
	go func() { stopped <- gate.Run(ctx) }()
	for _, c := range clients {
		go c.run(ctx)
	}
	about, err := writeAbout(dir, o.Program, gate.Gateway().String(), gate.Admin().String(), keys["you"])
	if err != nil {
		end()
		return errors.Join(err, <-stopped)
	}
	screen := newScreen(o, gate, conf, about, clients)
	ticker := time.NewTicker(screen.interval())
	defer ticker.Stop()
	screen.intro()
	for {
		select {
		case <-ctx.Done():
			screen.outro()
			return <-stopped
		case err := <-stopped:
			screen.outro()
			return err
		case <-ticker.C:
			if screen.draw() != nil { // the other end of a pipe has gone
				end()
				return <-stopped
			}
		}
	}
}

// prepare writes the rules and keys into a fresh database and returns the
// configuration that a user would have written.
func prepare(ctx context.Context, dir, upstream string, o Options) (config.Config, map[string]string, error) {
	conf := config.Default()
	conf.Listen, conf.Admin = free(o.Listen, conf.Listen), free(o.Admin, conf.Admin)
	conf.Upstream, conf.Routes = upstream, []string{filepath.Join(dir, "routes.txt")}
	conf.DB = "sqlite:" + filepath.Join(dir, "headgate.db")
	if err := os.WriteFile(conf.Routes[0], []byte(routes), 0o600); err != nil {
		return conf, nil, err
	}
	if err := conf.Complete(); err != nil {
		return conf, nil, err
	}
	db, err := database.Open(ctx, conf.DB)
	if err != nil {
		return conf, nil, err
	}
	defer db.Close()
	if err := db.Import(ctx, record.Author{Actor: "headgate demo"}, policy.Document{Rules: rules}, true); err != nil {
		return conf, nil, err
	}
	keys, err := createKeys(ctx, db, conf.SecretFile)
	return conf, keys, err
}

func createKeys(ctx context.Context, db *database.Store, secretFile string) (map[string]string, error) {
	digester, err := daemon.Digester(secretFile, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	keys := map[string]string{}
	for _, name := range []string{"polite", "greedy", "you"} {
		_, text, err := db.CreateKey(ctx, digester, record.NewAPIKey{Project: name, Name: "demo"})
		if err != nil {
			return nil, err
		}
		keys[name] = text
	}
	return keys, nil
}

// free returns the address wanted if nobody listens there, else a free port
// on the same host: a demonstration should not fail over a port.
func free(wanted, fallback string) string {
	if wanted == "" {
		wanted = fallback
	}
	l, err := net.Listen("tcp", wanted)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(wanted)
		return net.JoinHostPort(host, "0")
	}
	if err == nil {
		l.Close()
	}
	return wanted
}

// exampleAPI is a bookshop that answers everything.
type exampleAPI struct {
	URL    string
	server *http.Server
}

func startAPI() (*exampleAPI, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// Not a ServeMux: it would answer an unclean path with a redirect, and the
	// demonstration is about what the gateway lets through.
	bookshop := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			fmt.Fprintln(w, `{"order":"o-1","state":"accepted"}`)
			return
		}
		fmt.Fprintln(w, `{"title":"On the Keeping of Gates","price":12}`)
	})
	api := &exampleAPI{
		URL:    "http://" + l.Addr().String(),
		server: &http.Server{Handler: bookshop, ReadHeaderTimeout: 5 * time.Second},
	}
	go func() { _ = api.server.Serve(l) }()
	return api, nil
}

// Close stops the API.
func (a *exampleAPI) Close() error { return a.server.Close() }
