package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
)

// ruled is the endpoint of templates, with a parameter.
const ruled = "GET /v1/items/{id}"

// setting is one thing that a rule may say of a field.
type setting struct {
	field, text string
	say         func(r *policy.Rule)
}

// settings are what rules may say, each field by itself, but the default of each.
func settings(t *testing.T, now time.Time) []setting {
	t.Helper()
	var all []setting
	add := func(field, text string, say func(r *policy.Rule)) { all = append(all, setting{field, text, say}) }
	for _, endpoint := range []string{ruled, "WS-SEND /v1/chat", "GRPC-RECEIVE /shop.Chat/Talk",
		"MCP /mcp/tools/call/search", "MODEL /v1/messages/large", policy.UnknownEndpoint, policy.All} {
		add("endpoint", endpoint, func(r *policy.Rule) { r.Endpoint = endpoint })
	}
	for _, of := range []string{"principal", "ip", "principal_ip", "project", "region", "endpoint", "identifier",
		"identifier_ip", "site", "path:id", "path:other", "claim:known", "claim:other"} {
		for _, counted := range []string{"", "requests:", "in_flight:"} {
			if counted+of == "principal" {
				continue
			}
			add("subject", counted+of, func(r *policy.Rule) {
				if err := r.SetSubject(counted + of); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, a := range []policy.Algorithm{policy.LeakyBucket, policy.FixedWindow, policy.SlidingWindow,
		policy.SlidingLog, policy.Calendar, policy.Concurrency} {
		add("algorithm", a.String(), func(r *policy.Rule) {
			if r.Algorithm = a; a == policy.Calendar {
				r.Per = 24 * time.Hour
			}
		})
	}
	for _, m := range []policy.Mode{policy.Shadow, policy.Allow, policy.Block} {
		add("mode", m.String(), func(r *policy.Rule) { r.Mode = m })
	}
	for _, s := range []policy.Scope{policy.Split, policy.Strict, policy.Lease, policy.Sync, policy.Gossip} {
		add("scope", s.String(), func(r *policy.Rule) { r.Scope = s })
	}
	for _, l := range []policy.StoreLoss{policy.LossShare, policy.LossOpen} {
		add("on_store_loss", l.String(), func(r *policy.Rule) { r.OnStoreLoss = l })
	}
	for _, p := range []policy.Penalty{"3 in 1m for 15m", "3 in 1m for 15m with addresses"} {
		add("penalty", string(p), func(r *policy.Rule) { r.Penalty = p })
	}
	for _, f := range []policy.Refusal{"503", "without fields", "as text/plain: later"} {
		add("refusal", string(f), func(r *policy.Rule) { r.Refusal = f })
	}
	for _, p := range []policy.Priority{"high", "high:30,normal:20"} {
		add("priority", string(p), func(r *policy.Rule) { r.Priority = p })
	}
	add("project", "acme", func(r *policy.Rule) { r.Project = "acme" })
	add("tier", "gold", func(r *policy.Rule) { r.Tier = "gold" })
	add("count_when", "404", func(r *policy.Rule) { r.CountWhen = "404" })
	add("expires", "later", func(r *policy.Rule) { r.Expires = now.Add(30 * 24 * time.Hour) })
	add("enforce_percent", "25", func(r *policy.Rule) { r.EnforcePercent = 25 })
	add("burst", "200", func(r *policy.Rule) { r.Burst = 200 })
	add("per", "1m", func(r *policy.Rule) { r.Per = time.Minute })
	return all
}

// said are the things that a rule says.
type said []setting

// says reports whether something is said of a field, or one of the texts.
func (s said) says(field string, texts ...string) bool {
	return slices.ContainsFunc(s, func(one setting) bool {
		return one.field == field && (len(texts) == 0 || slices.Contains(texts, one.text))
	})
}

// by reports whether the subject is one of these, whatever is counted of it.
func (s said) by(subjects ...string) bool {
	return slices.ContainsFunc(subjects, func(of string) bool {
		return s.says("subject", of, "requests:"+of, "in_flight:"+of)
	})
}

// underWay reports whether requests under way are counted.
func (s said) underWay() bool {
	return slices.ContainsFunc(s, func(one setting) bool { return strings.HasPrefix(one.text, "in_flight:") })
}

// idle says why one of the things that a rule says changes nothing, or cannot be, "" if all mean something: in words
// of its own, which know nothing of how lint finds it out.
func (s said) idle() string {
	stream := s.says("endpoint", "WS-SEND /v1/chat", "GRPC-RECEIVE /shop.Chat/Talk")
	switch {
	case s.says("project") && s.says("tier"):
		return "one of the two"
	case s.says("mode", "allow", "block"):
		for _, field := range []string{"subject", "algorithm", "scope", "on_store_loss", "penalty", "refusal",
			"priority", "count_when", "enforce_percent", "burst", "per"} {
			if s.says(field) {
				return "without a limit nothing is said of one"
			}
		}
	case stream && s.underWay():
		return "the stream has the place"
	case stream && s.says("count_when"):
		return "messages have no answers"
	case stream && s.says("refusal", "as text/plain: later"):
		return "the end of a stream has no body"
	case s.says("enforce_percent") && (s.by("endpoint") || s.says("project") && s.by("project")):
		return "all are one subject"
	case s.says("mode", "shadow") && (s.says("enforce_percent") || s.says("penalty") || s.says("priority", "high")):
		return "nobody is denied, and nothing said of requests"
	case s.says("endpoint", policy.UnknownEndpoint) && (s.says("project") || s.says("tier")):
		return "UNKNOWN is everybody's"
	case s.by("path:other"), s.by("path:id") && s.says("endpoint") && !s.says("endpoint", ruled, policy.All):
		return "there is no such parameter"
	case s.by("claim:other"):
		return "no token is read for it"
	case s.by("region", "identifier", "identifier_ip"):
		return "nothing tells them apart"
	case s.says("on_store_loss") && !s.says("scope", "strict", "lease", "sync"):
		return "no store is asked"
	case s.underWay() && (s.says("count_when") || s.says("burst") || s.says("scope", "split", "sync", "gossip") ||
		s.says("algorithm") && !s.says("algorithm", "concurrency")):
		return "places are no tokens"
	case !s.underWay() && s.says("algorithm", "concurrency"):
		return "nothing is counted that is under way"
	case s.says("algorithm", "leaky_bucket") && s.says("scope", "lease", "sync", "gossip"),
		s.says("algorithm", "fixed_window", "sliding_window", "sliding_log", "calendar") &&
			(s.says("scope") || s.says("burst") || s.says("priority", "high:30,normal:20")),
		s.says("algorithm", "calendar") && s.says("per"):
		return "the algorithm has no such thing"
	case s.says("priority", "high:30,normal:20") && (s.says("penalty") || s.says("scope", "lease", "sync", "gossip") ||
		s.underWay() && s.says("scope")):
		return "classes cannot share that"
	}
	return ""
}

// TestWhatMeansNothingIsSaid tries whatever three things a rule may say together, and holds that lint finds fault if,
// and only if, one of them means nothing there.
func TestWhatMeansNothingIsSaid(t *testing.T) {
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	o := policy.CompileOptions{
		Endpoints: table(t, ruled, "WS-SEND /v1/chat", "GRPC-RECEIVE /shop.Chat/Talk", "MCP /mcp/tools/call/search",
			"MODEL /v1/messages/large"),
		Shared: true, Gossips: true, Claims: []string{"known"}, Now: now,
		Unseen: []policy.Subject{policy.SubjectIdentifier, policy.SubjectIdentifierIP, policy.SubjectRegion},
	}
	// What is said of rules that mean something by themselves: others are missing beside them, or they surprise.
	surprising := []string{"scattered", "some_answers", "lockout", "path_alone", "every_request", "window_edge",
		"penalty_for_addresses", "penalty_per_replica", "class_without_rule", "priority_unused"}
	all := settings(t, now)
	tried, found := 0, 0
	try := func(three said) {
		r := policy.Rule{Endpoint: policy.Default, Limit: 100}
		for _, s := range three {
			s.say(&r)
		}
		if !r.Mode.Limits() {
			if r.Limit = 0; r.Endpoint == policy.Default {
				r.Endpoint = policy.All
			}
		}
		var codes, texts []string
		for _, p := range policy.Lint(policy.Document{Rules: []policy.Rule{r}}, o) {
			if p.Rule == 0 && !slices.Contains(surprising, p.Code) {
				codes = append(codes, p.Code)
			}
		}
		tried++
		why := three.idle()
		if why != "" {
			found++
		}
		if (why != "") != (len(codes) > 0) {
			for _, s := range three {
				texts = append(texts, s.field+" "+s.text)
			}
			t.Errorf("%s: lint says %q, want something if, and only if, it means nothing: %q",
				strings.Join(texts, ", "), codes, why)
		}
	}
	step := 8 / race.Fewer(8)
	for i, a := range all {
		try(said{a})
		for j, b := range all[i+1:] {
			if b.field == a.field {
				continue
			}
			try(said{a, b})
			for k, c := range all[i+1+j+1:] {
				if (i+j+k)%step == 0 && c.field != a.field && c.field != b.field {
					try(said{a, b, c})
				}
			}
		}
	}
	if tried < 25_000/step || found < tried/3 || found > tried*9/10 {
		t.Errorf("tried %d rules, of which %d mean nothing, want many of both", tried, found)
	}
}
