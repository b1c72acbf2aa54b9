package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/agents"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/token"
)

// signedAgents verifies what agents have signed, and keeps the keys for it fresh.
type signedAgents struct {
	verifier    *agents.Verifier
	directories []directory
}

// directory is where the keys of one agent come from.
type directory struct {
	settings agents.DirectoryOptions
	agent    string
	source   *token.Source
}

// waitForDirectories is how long a start or reload waits for directories of agents. Those that are not
// there by then are asked again in the background.
const waitForDirectories = 5 * time.Second

// NewDirectories returns where the keys of the agents of s come from, in the order of s, without keys yet.
func NewDirectories(s config.SignedAgents, log *slog.Logger) ([]*token.Source, error) {
	made, err := newDirectories(&s, nil, log)
	var sources []*token.Source
	for _, d := range made {
		sources = append(sources, d.source)
	}
	return sources, err
}

// newDirectories takes over from before what is the same there.
func newDirectories(s *config.SignedAgents, before []directory, log *slog.Logger) (all []directory, err error) {
	for _, named := range s.Directories {
		origin, err := token.Origin(named.Origin)
		if err != nil {
			return nil, err // Complete has checked it
		}
		d := directory{agent: nameOf(origin), settings: agents.DirectoryOptions{
			Origin: origin, Private: s.Private, Refresh: s.Refresh, MinRefetch: s.MinRefetch, MaxStale: s.MaxStale,
		}}
		for _, old := range before {
			if old.settings == d.settings {
				d.source = old.source
			}
		}
		if d.source == nil {
			if d.source, err = agents.NewDirectory(d.settings, log); err != nil {
				return nil, fmt.Errorf("signed_agents: %w", err)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// nameOf is what an agent is called: its host, and the scheme with it where that is not the usual one.
func nameOf(origin string) string { return strings.TrimPrefix(origin, "https://") }

// startAgents makes what the configuration says of agents, if anything; before is what it replaces, nil if nothing.
func startAgents(ctx context.Context, c *config.Config, before *signedAgents, shown *replays,
	log *slog.Logger) (*signedAgents, error) {
	s := &c.SignedAgents
	if !s.On() {
		return nil, nil
	}
	o := agents.Options{
		Origins: c.Origins, Agents: map[string]agents.Named{}, MaxAge: s.MaxAge, Leeway: s.Leeway,
		Nonces: s.Nonce == "required", Shown: shown.nonces(),
	}
	var old []directory
	if before != nil {
		old = before.directories
	}
	a := &signedAgents{}
	var err error
	if a.directories, err = newDirectories(s, old, log); err != nil {
		return nil, err
	}
	for i, d := range a.directories {
		named := s.Directories[i]
		o.Agents[d.settings.Origin] = agents.Named{
			Agent: identity.Agent{ID: d.agent, Project: named.Project, Tier: s.TierOf(named)}, Keys: d.source,
		}
	}
	if a.verifier, err = agents.New(o); err != nil {
		return nil, fmt.Errorf("signed_agents: %w", err)
	}
	a.fetch(ctx)
	return a, nil
}

// fetch fetches the keys of directories that have none yet, all at once. Who cannot be asked has said so in the log:
// nobody gains, as a request that its agent has signed counts as its address's.
func (a *signedAgents) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, waitForDirectories)
	defer cancel()
	var asking sync.WaitGroup
	for _, d := range a.directories {
		if d.source.Set() == nil {
			asking.Go(func() { _ = d.source.Start(ctx) })
		}
	}
	asking.Wait()
}

// run keeps the keys fresh until ctx ends.
func (a *signedAgents) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, d := range a.directories {
		running.Go(func() { d.source.Run(ctx) })
	}
	running.Wait()
}

// agentStats is where the metrics of agents come from.
func (p *parts) agentStats() (all []metrics.AgentStatus) {
	a := p.agents.get()
	if a == nil {
		return nil
	}
	for _, d := range a.directories {
		s := d.source.Status()
		keys := s.Keys
		if d.source.Set() == nil {
			keys = 0 // those that it had are too old
		}
		all = append(all, metrics.AgentStatus{Agent: d.agent, Keys: keys, Age: s.Age, Failures: s.Failures})
	}
	return all
}
