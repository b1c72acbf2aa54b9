package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/policy"
)

// Change is how long a change took to take effect, in milliseconds.
type Change struct {
	P50, P99, Most float64
	Samples        int
}

// refresh is the interval between two looks at the database, as the gateway has it by default.
const refresh = 250 * time.Millisecond

// measureChange changes a rule by SQL, as another program does, and asks for decisions until one is
// made under the new limit. The rules are kept fresh as in the gateway. Changes come at random, not
// in step with the looks.
func (p plan) measureChange() (found Change, err error) {
	s, err := p.at.open()
	if err != nil {
		return found, err
	}
	defer s.Close()
	wake := make(chan struct{}, 1)
	g, err := p.newGateway(policy.CacheOptions{
		Source:   s,
		Interval: refresh,
		Spread:   true,
		Wake:     wake,
		Others:   func() (int, bool) { return 0, true },
	})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	shell, err := p.at.shell()
	if err != nil {
		return found, err
	}
	defer shell.Close()
	running, stop := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { g.rules.Run(running) })
	loops.Go(func() {
		s.Watch(running, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	})
	defer loops.Wait()
	defer stop()
	var took spent
	most := time.Duration(0)
	for i := range p.changes {
		time.Sleep(rand.N(refresh))
		limit := int64(roomy) + 1000*int64(i+1)
		if _, err := shell.Exec(fmt.Sprintf("UPDATE policies SET rps_limit = %d WHERE endpoint = 'default'",
			limit)); err != nil {
			return found, err
		}
		begin := time.Now()
		if err := g.awaitLimit(limit); err != nil {
			return found, errors.Join(err, errors.New(g.rules.Status().LastError))
		}
		d := time.Since(begin)
		took.add(d)
		most = max(most, d)
	}
	t := took.times()
	return Change{t.P50 / 1000, t.P99 / 1000, ms(most), t.Samples}, nil
}

// awaitLimit asks for decisions until one is made under a limit.
func (g *gateway) awaitLimit(limit int64) error {
	request := headgate.Request{
		Method: "GET",
		Target: "/v1/service7/items/1",
		Peer:   netip.AddrFrom4([4]byte{198, 51, 100, 9}),
	}
	for deadline := time.Now().Add(20 * refresh); time.Now().Before(deadline); time.Sleep(50 * time.Microsecond) {
		decision := g.limiter.Check(ctx, request)
		if v, ok := decision.Binding(); ok && decision.Policies().Rule(v.Rule).Limit == limit {
			return nil
		}
	}
	return fmt.Errorf("a limit of %d has no effect after %v", limit, 20*refresh)
}

// shell opens the database as another program does.
func (d measured) shell() (*sql.DB, error) {
	switch d.Kind {
	case postgreSQL:
		return sql.Open("pgx", d.DSN)
	case mariaDB:
		u, err := url.Parse(d.DSN)
		if err != nil {
			return nil, err
		}
		return sql.Open("mysql", fmt.Sprintf("%s@unix(%s)%s", u.User.Username(), u.Query().Get("socket"), u.Path))
	}
	return sql.Open("sqlite", "file:"+strings.TrimPrefix(d.DSN, "sqlite:")+"?_pragma=busy_timeout(5000)")
}
