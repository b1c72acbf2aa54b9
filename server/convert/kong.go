package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// kong converts the plugins rate-limiting and rate-limiting-advanced of a file of decK.
func kong(c *conversion, files []File) error {
	for _, f := range files {
		c.file = f.Name
		list, err := documents(f)
		if err != nil {
			return err
		}
		for _, d := range list {
			if !slices.ContainsFunc([]string{"services", "routes", "plugins", "consumers", "consumer_groups"},
				func(name string) bool { return d.get(name).is() }) {
				return fmt.Errorf("%s: it has neither services, routes, plugins nor consumers, want a file of decK "+
					"(deck gateway dump)", f.Name)
			}
			c.kongDocument(d)
		}
	}
	return nil
}

// holder is what a plugin of Kong is attached to.
type holder struct {
	paths         []string // of routes; none: all requests
	methods       []string
	project, tier string
	what          string
}

func (c *conversion) kongDocument(d node) {
	routes := map[string]node{}
	services := map[string][]node{}
	for _, s := range d.get("services").list() {
		name := s.get("name").text()
		for _, r := range s.get("routes").list() {
			routes[r.get("name").text()] = r
			services[name] = append(services[name], r)
		}
	}
	for _, r := range d.get("routes").list() {
		routes[r.get("name").text()] = r
		service := r.get("service", "name").text()
		services[service] = append(services[service], r)
	}
	of := func(routes []node, what string) (h holder) {
		h.what = what
		for _, r := range routes {
			h.paths = append(h.paths, r.get("paths").texts()...)
			h.methods = append(h.methods, r.get("methods").texts()...)
			if len(r.get("methods").texts()) == 0 {
				h.methods = append(h.methods, methods...)
			}
		}
		return h
	}
	for _, s := range d.get("services").list() {
		name := s.get("name").text()
		c.plugins(s.get("plugins"), of(services[name], "service "+name))
		for _, r := range s.get("routes").list() {
			c.plugins(r.get("plugins"), of([]node{r}, "route "+r.get("name").text()))
		}
	}
	for _, r := range d.get("routes").list() {
		c.plugins(r.get("plugins"), of([]node{r}, "route "+r.get("name").text()))
	}
	consumers := func(list node) {
		for _, u := range list.list() {
			name := u.get("username").text()
			if name == "" {
				name = u.get("custom_id").text()
			}
			c.plugins(u.get("plugins"), holder{project: name, what: "consumer " + name})
		}
	}
	consumers(d.get("consumers"))
	for _, g := range d.get("consumer_groups").list() {
		name := g.get("name").text()
		c.plugins(g.get("plugins"), holder{tier: name, what: "consumer group " + name})
		consumers(g.get("consumers"))
	}
	for _, p := range d.get("plugins").list() {
		h := holder{what: "all requests"}
		if r := p.get("route"); r.is() {
			h = of([]node{routes[nameOf(r)]}, "route "+nameOf(r))
		} else if s := p.get("service"); s.is() {
			h = of(services[nameOf(s)], "service "+nameOf(s))
		}
		h.project, h.tier = nameOf(p.get("consumer")), nameOf(p.get("consumer_group"))
		c.plugin(p, h)
	}
}

// nameOf is a reference: a name, or an object that has one.
func nameOf(n node) string {
	for _, name := range []string{"name", "username", "id"} {
		if v := n.get(name).text(); v != "" {
			return v
		}
	}
	return n.text()
}

func (c *conversion) plugins(list node, h holder) {
	for _, p := range list.list() {
		c.plugin(p, h)
	}
}

// kongPeriods are the fields of rate-limiting.
var kongPeriods = []struct {
	name string
	per  time.Duration
}{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour},
	{"month", 30 * 24 * time.Hour}, {"year", 365 * 24 * time.Hour},
}

func (c *conversion) plugin(p node, h holder) {
	name, conf := p.get("name").text(), p.get("config")
	if p.get("enabled").text() == "false" {
		return
	}
	of := name + " of " + h.what
	var limits []policy.Rule
	by := ""
	switch name {
	case "rate-limiting":
		for _, period := range kongPeriods {
			if n, ok := conf.get(period.name).number(); ok && n > 0 {
				limits = append(limits, policy.Rule{Limit: n, Per: period.per, Algorithm: policy.FixedWindow})
			}
		}
		by = conf.get("limit_by").text()
		if shared := conf.get("policy").text(); shared == "redis" || shared == "cluster" {
			c.differs(conf.line(), "%s is counted in %s: windows are counted by each gateway here. For a limit of "+
				"all gateways use algorithm token_bucket and scope strict", of, shared)
		}
	case "rate-limiting-advanced":
		sizes := conf.get("window_size").list()
		for i, l := range conf.get("limit").list() {
			n, ok := l.number()
			var size int64
			if i < len(sizes) {
				size, _ = sizes[i].number()
			}
			if !ok || n < 1 || size < 1 {
				c.lost(l.line(), "%s: limit %s has no window_size", of, l.text())
				continue
			}
			r := policy.Rule{Limit: n, Per: time.Duration(size) * time.Second, Algorithm: policy.SlidingWindow}
			if conf.get("window_type").text() == "fixed" {
				r.Algorithm = policy.FixedWindow
			}
			limits = append(limits, r)
		}
		by = conf.get("identifier").text()
	case "response-ratelimiting":
		c.Limits++
		c.lost(p.line(), "%s: answers of the API set those costs; see docs/reservations.md", of)
		return
	default:
		return
	}
	c.Limits++
	if len(limits) == 0 {
		c.lost(p.line(), "%s has no limit", of)
		return
	}
	if len(limits) > 1 {
		c.lost(p.line(), "%s has %d limits, of which the shortest stays: one endpoint has one limit for a subject",
			of, len(limits))
	}
	r := limits[0]
	r.Project, r.Tier = h.project, h.tier
	if by == "" {
		by = "consumer"
	}
	switch by {
	case "consumer", "credential", "consumer-group":
		r.Subject = policy.SubjectPrincipal
		if by == "consumer" && (h.project != "" || h.tier != "") {
			r.Subject = policy.SubjectProject
		}
		c.differs(conf.line(),
			"%s counts by %s: that is a verified API key, token or certificate here, else the address", of, by)
	case "ip":
		r.Subject = policy.SubjectIP
	case "service", "path":
		r.Subject = policy.SubjectEndpoint
	default:
		c.lost(conf.line(), "%s counts by %s, which a client writes and nobody verifies", of, by)
		return
	}
	c.kongPlaces(p, of, r, h)
}

func (c *conversion) kongPlaces(p node, of string, r policy.Rule, h holder) {
	switch {
	case len(h.paths) == 0 && (h.project != "" || h.tier != ""):
		r.Endpoint = policy.All
		c.differs(p.line(), "%s stands in place of those of services and routes in Kong; here both hold", of)
		c.add(p.line(), of, r)
		return
	case len(h.paths) == 0 && slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Endpoint != policy.All }):
		c.elsewhere(p.line(), of, r, "Kong")
		return
	case len(h.paths) == 0:
		c.everywhere(p.line(), of, r)
		return
	}
	slices.Sort(h.methods)
	only := slices.DeleteFunc(slices.Compact(h.methods), func(m string) bool { return !slices.Contains(methods, m) })
	made := 0
	for _, where := range h.paths {
		if strings.HasPrefix(where, "~") {
			c.lost(p.line(), "%s at %s: write rules for the endpoints that the expression means", of, where)
			continue
		}
		endpoints, ok := c.endpoints(path{text: where}, only)
		if !ok || len(endpoints) == 0 {
			c.lost(p.line(), "%s at %s: no endpoint can be said for it", of, where)
			continue
		}
		for _, at := range endpoints {
			r.Endpoint = at
			c.add(p.line(), of, r)
			made++
		}
	}
	if made > 1 {
		c.manyBuckets(p.line(), of, made, strings.Join(h.paths, ", "), "Kong")
	}
}
