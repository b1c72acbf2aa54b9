package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/database/dbtest"
	"github.com/headgate-io/headgate/server/record"
)

var ctx = context.Background()

// The kinds of database.
const (
	sqlite     = "SQLite"
	postgreSQL = "PostgreSQL"
	mariaDB    = "MariaDB"
)

// measured is a database that was filled.
type measured struct {
	Kind  string
	DSN   string
	Rules int
	Full  bool // no rule is plain: they have more fields than most of a large table do
	Poll  bool // it is looked at for changes, though it would tell
}

func (d measured) String() string { return fmt.Sprintf("%s with %s", d.Kind, d.what()) }

func (d measured) what() string {
	if d.Full {
		return count(d.Rules) + " full rules"
	}
	return count(d.Rules) + " rules"
}

func (d measured) open() (*database.Store, error) {
	return database.New(ctx, database.Options{DSN: d.DSN, NoNotify: d.Poll})
}

// makeDatabases fills one database of each kind for each size.
func (p plan) makeDatabases(stderr io.Writer) (made []measured, stop func(), err error) {
	dir, err := os.MkdirTemp("", "headgate-policies-")
	if err != nil {
		return nil, nil, err
	}
	var servers []*dbtest.Server
	stop = func() {
		for _, s := range servers {
			_ = s.Stop()
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	postgres, err := dbtest.Postgres()
	servers = append(servers, postgres)
	maria, err2 := dbtest.MariaDB()
	servers = append(servers, maria)
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, err
	}
	kinds := []string{sqlite, postgreSQL, mariaDB}
	var wanted []measured
	for _, n := range p.sizes() {
		wanted = append(wanted, measured{Rules: n})
	}
	for _, d := range append(wanted, measured{Rules: p.served(), Full: true}) {
		some := make([]measured, len(kinds))
		err := together(len(kinds), func(i int) (err error) {
			d := d
			d.Kind = kinds[i]
			d.DSN = "sqlite:" + filepath.Join(dir, fmt.Sprint(d.Rules, d.Full, ".db"))
			switch d.Kind {
			case postgreSQL:
				_, d.DSN, err = postgres.Database(ctx)
			case mariaDB:
				_, d.DSN, err = maria.Database(ctx)
			}
			if err != nil {
				return err
			}
			begun := time.Now()
			if err := d.fill(); err != nil {
				return fmt.Errorf("fill %v: %w", d, err)
			}
			fmt.Fprintf(stderr, "filled %v in %v\n", d, time.Since(begun).Round(time.Second))
			some[i] = d
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		made = append(made, some...)
	}
	return made, stop, nil
}

func (d measured) fill() error {
	s, err := d.open()
	if err != nil {
		return err
	}
	doc := rules(d.Rules)
	if d.Full {
		fill(doc.Rules)
	}
	return errors.Join(s.Import(ctx, record.Author{Actor: "eval"}, doc, true), s.Close())
}

// fill gives all rules what the rules of a service that somebody runs have: some of them differ from their neighbours
// in it.
func fill(rules []policy.Rule) {
	for i := range rules {
		r := &rules[i]
		r.Per, r.Burst = time.Minute, 2*r.Limit
		switch i % 10 {
		case 3:
			r.Mode = policy.Shadow
		case 6:
			r.Name = fmt.Sprint("plan ", i%7)
		case 9:
			r.Per, r.Algorithm = time.Hour, policy.SlidingWindow
			r.Burst = 0
		}
	}
}

// endpoints is how many templates the rules are for.
const endpoints = 1000

func template(i int) string { return fmt.Sprintf("GET /v1/service%d/items/{id}", i%endpoints) }

func project(i int) string { return fmt.Sprint("project-", i) }

// roomy is a limit that nobody meets: what is measured is the way.
const roomy = 1_000_000_000

// rules is n rules: those of last resort, and for each of the endpoints one of as many projects as it takes.
func rules(n int) policy.Document {
	doc := policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: roomy, Per: time.Second},
		{Endpoint: policy.UnknownEndpoint, Limit: roomy, Per: time.Second},
	}}
	templates, owner := make([]string, endpoints), ""
	for i := range templates {
		templates[i] = template(i)
	}
	for i := 0; len(doc.Rules) < n; i++ {
		if i%endpoints == 0 {
			owner = project(i / endpoints)
		}
		doc.Rules = append(doc.Rules, policy.Rule{
			Endpoint: templates[i%endpoints],
			Project:  owner,
			Limit:    roomy + int64(i%50)*1000,
			Per:      time.Second,
		})
	}
	return doc
}

func table() (*endpoint.Table, error) {
	templates := make([]endpoint.Template, endpoints)
	for i := range templates {
		t, err := endpoint.ParseTemplate(template(i))
		if err != nil {
			return nil, err
		}
		templates[i] = t
	}
	return endpoint.Compile(templates, endpoint.Profile{})
}
