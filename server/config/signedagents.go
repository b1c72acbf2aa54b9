package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/server/token"
)

// SignedAgents says which automated agents are known by the signatures of their requests (RFC 9421, as Web Bot Auth has
// it); see docs/signed-agents.md. None are, unless their directories are named.
type SignedAgents struct {
	// Directories are where the agents that count publish their keys, 64 at most. Nothing is fetched from
	// anywhere else, whatever a request says.
	Directories []AgentDirectory `yaml:"directories"`

	// Tier is that of agents whose directory names none. Default signed_agent; "" for none.
	Tier string `yaml:"tier"`

	// MaxAge is how old a signature may be, whatever end it says, 1s to 24h. Default 1h. Leeway is how far
	// ahead of this clock one may be made. Default 30s.
	MaxAge time.Duration `yaml:"max_age"`
	Leeway time.Duration `yaml:"leeway"`

	// Nonce says of signatures without one, which whoever sees them can show again: optional (default), they count;
	// required, they do not.
	Nonce string `yaml:"nonce"`

	// Private lets directories be at addresses that are not of the public internet. Default false.
	Private bool `yaml:"private"`

	// Refresh is how often directories are asked. Default 1h. MinRefetch is the shortest time between two
	// fetches of one, however many signatures name keys that it does not have. Default 30s. MaxStale is how
	// long the last good keys stay in force when they cannot be had. Default 24h.
	Refresh    time.Duration `yaml:"refresh"`
	MinRefetch time.Duration `yaml:"min_refetch"`
	MaxStale   time.Duration `yaml:"max_stale"`
}

// AgentDirectory is where an agent publishes its keys.
type AgentDirectory struct {
	// Origin is the scheme and host of the directory, such as https://agent.example, as the agent says it in
	// Signature-Agent. The keys stand below it at /.well-known/http-message-signatures-directory.
	Origin string `yaml:"origin"`

	// Tier is the agent's. Default that of signed_agents. Project is which one it belongs to. Default none.
	Tier    string `yaml:"tier"`
	Project string `yaml:"project"`
}

// maxDirectories bounds what is fetched, and the series of the metrics.
const maxDirectories = 64

// On reports whether signatures are looked at.
func (s *SignedAgents) On() bool { return len(s.Directories) > 0 }

// TierOf is the tier of the agent of a directory.
func (s *SignedAgents) TierOf(d AgentDirectory) string { return cmp.Or(d.Tier, s.Tier) }

// TierNames are the tiers of agents.
func (s *SignedAgents) TierNames() (names []string) {
	for _, d := range s.Directories {
		if tier := s.TierOf(d); tier != "" && !slices.Contains(names, tier) {
			names = append(names, tier)
		}
	}
	return names
}

// InProjects reports whether some agent belongs to a project.
func (s *SignedAgents) InProjects() bool {
	return slices.ContainsFunc(s.Directories, func(d AgentDirectory) bool { return d.Project != "" })
}

func defaultSignedAgents() SignedAgents {
	return SignedAgents{
		Tier: "signed_agent", MaxAge: time.Hour, Leeway: 30 * time.Second, Nonce: "optional",
		Refresh: time.Hour, MinRefetch: 30 * time.Second, MaxStale: 24 * time.Hour,
	}
}

func (c *checker) signedAgents(s SignedAgents) {
	const name = "signed_agents."
	c.oneOf(name+"nonce", s.Nonce, "optional", "required")
	c.duration(name+"max_age", s.MaxAge, time.Second, 24*time.Hour)
	c.duration(name+"leeway", s.Leeway, 0, 10*time.Minute)
	c.duration(name+"refresh", s.Refresh, time.Second, 24*time.Hour)
	c.duration(name+"min_refetch", s.MinRefetch, time.Second, time.Hour)
	c.duration(name+"max_stale", s.MaxStale, time.Minute, 30*24*time.Hour)
	c.trimmed(name+"tier", s.Tier, "the name of a tier, or nothing")
	if len(s.Directories) > maxDirectories {
		c.wrong(name+"directories", fmt.Sprint(len(s.Directories), " of them"),
			fmt.Sprint("at most ", maxDirectories))
	}
	first := map[string]int{}
	for i, d := range s.Directories {
		at := fmt.Sprintf("%sdirectories[%d].", name, i)
		c.trimmed(at+"tier", d.Tier, "the name of a tier, or nothing")
		c.trimmed(at+"project", d.Project, "the name of a project, or nothing")
		origin, err := originOfDirectory(d.Origin, s.Private)
		switch before, again := first[origin]; {
		case err != nil:
			c.errs = append(c.errs, fmt.Errorf("%sorigin %w", at, err))
		case again:
			c.wrong(at+"origin", d.Origin, fmt.Sprintf("another one than directories[%d]", before))
		default:
			first[origin] = i
		}
	}
}

func originOfDirectory(text string, private bool) (string, error) {
	origin, err := token.Origin(text)
	if err != nil {
		return "", err
	}
	if err := token.CheckURL(origin, false); err != nil {
		return "", err
	}
	if !private && !strings.HasPrefix(origin, "https://") {
		return "", fmt.Errorf("is %q, want https, or private: true for a directory on this machine", text)
	}
	return origin, nil
}

// trimmed checks a name that may be missing.
func (c *checker) trimmed(field, value, want string) {
	if strings.TrimSpace(value) != value ||
		strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		c.wrong(field, value, want)
	}
}
