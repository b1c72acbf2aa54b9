package convert

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// ingress converts the annotations of ingress-nginx, and the Policy of NGINX Ingress Controller.
func ingress(c *conversion, files []File) error {
	type object struct {
		file string
		node
	}
	var objects []object
	for _, f := range files {
		list, err := documents(f)
		if err != nil {
			return err
		}
		for _, d := range list {
			items := []node{d}
			if d.get("kind").text() == "List" {
				items = d.get("items").list()
			}
			for _, item := range items {
				objects = append(objects, object{f.Name, item})
			}
		}
	}
	parts := slices.ContainsFunc(objects, func(o object) bool {
		return limited(o.node) && slices.ContainsFunc(pathsOf(o.node), path.part)
	})
	for _, o := range objects {
		c.file = o.file
		switch o.get("kind").text() {
		case "Ingress":
			c.annotations(o.node, parts)
		case "Policy":
			if limit := o.get("spec", "rateLimit"); limit.is() {
				c.nginxPolicy(o.node, limit)
			}
		}
	}
	return nil
}

// limited reports whether an Ingress has a limit.
func limited(d node) bool {
	notes := d.get("metadata", "annotations")
	return slices.ContainsFunc([]string{"limit-rps", "limit-rpm", "limit-connections"}, func(name string) bool {
		return notes.get(annotation + name).is()
	})
}

// pathsOf are the paths of an Ingress.
func pathsOf(d node) (paths []path) {
	for _, rule := range d.get("spec", "rules").list() {
		for _, p := range rule.get("http", "paths").list() {
			paths = append(paths, path{p.get("path").text(), p.get("pathType").text() == "Exact"})
		}
	}
	return paths
}

// part reports whether the path is for some requests alone.
func (p path) part() bool { return p.exact || p.text != "" && p.text != "/" }

const annotation = "nginx.ingress.kubernetes.io/"

// annotations converts an Ingress. Its controller writes limit_req with nodelay, by address, with a burst of five
// times the rate if limit-burst-multiplier does not say otherwise.
func (c *conversion) annotations(d node, parts bool) {
	notes := d.get("metadata", "annotations")
	name := d.get("metadata", "name").text()
	times := int64(5)
	if m := notes.get(annotation + "limit-burst-multiplier"); m.is() {
		n, ok := m.number()
		if !ok || n < 1 {
			c.lost(m.line(), "limit-burst-multiplier is %q, want a whole number", m.text())
			return
		}
		times = n
	}
	for _, rate := range []struct {
		name string
		per  time.Duration
	}{{"limit-connections", 0}, {"limit-rps", time.Second}, {"limit-rpm", time.Minute}} {
		of := notes.get(annotation + rate.name)
		if !of.is() {
			continue
		}
		c.Limits++
		n, ok := of.number()
		if !ok || n < 1 {
			c.lost(of.line(), "%s is %q, want a whole number of 1 or more", rate.name, of.text())
			continue
		}
		r := policy.Rule{Limit: n, Per: rate.per, Burst: n*times + 1, Subject: policy.SubjectIP, Name: name}
		if rate.per == 0 { // so many at once
			r = inFlight(policy.SubjectIP, policy.Rule{Limit: n, Name: name})
		}
		c.ingressPaths(d, of.line(), rate.name+" "+of.text(), r, parts)
	}
	for _, field := range []string{"limit-whitelist", "limit-allowlist"} {
		list := notes.get(annotation + field)
		for _, network := range strings.FieldsFunc(list.text(), func(r rune) bool { return r == ',' || r == ' ' }) {
			if c.exempt(list.line(), field, network) {
				c.differs(list.line(), "%s: %s is exempt from all limits here, from those of one Ingress there",
					field, network)
			}
		}
	}
}

// ingressPaths adds a rule for the paths of an Ingress, which have one bucket for an address each.
func (c *conversion) ingressPaths(d node, line int, of string, r policy.Rule, parts bool) {
	hosts := map[string]bool{}
	for _, rule := range d.get("spec", "rules").list() {
		hosts[rule.get("host").text()] = true
	}
	paths := pathsOf(d)
	for _, p := range paths {
		if !p.part() {
			continue
		}
		endpoints, ok := c.endpoints(p, nil)
		switch {
		case !ok:
			c.lost(line, "%s at %s: write rules for the endpoints that it means", of, p.text)
		case len(endpoints) == 0:
			c.lost(line, "%s: no endpoint lies under %s", of, p.text)
		case len(endpoints) > 1:
			c.manyBuckets(line, of, len(endpoints), p.text, "the Ingress")
		}
		for _, at := range endpoints {
			r.Endpoint = at
			c.add(line, of, r)
		}
	}
	switch whole := len(paths) == 0 || !slices.ContainsFunc(paths, path.part) ||
		slices.ContainsFunc(paths, func(p path) bool { return !p.part() }); {
	case whole && parts:
		c.elsewhere(line, of, r, "ingress-nginx")
	case whole:
		c.everywhere(line, of, r)
	}
	if len(hosts) > 1 {
		c.differs(line, "%s: %d hosts have a limit each there, and one together here", of, len(hosts))
	}
	if d.get("metadata", "annotations").get(annotation + "limit-rate").is() {
		c.lost(line, "limit-rate: Headgate limits requests, not bytes a second of an answer")
	}
}

// nginxPolicy converts a Policy, which does not say what it is for: a route or a VirtualServer names it.
func (c *conversion) nginxPolicy(d, limit node) {
	c.Limits++
	name := d.get("metadata", "name").text()
	of := "Policy " + name
	line := limit.line()
	n, per, ok := nginxRate(limit.get("rate").text())
	if !ok {
		c.lost(line, "%s: rate is %q, want a number and r/s or r/m", of, limit.get("rate").text())
		return
	}
	burst, _ := limit.get("burst").number()
	r := policy.Rule{Limit: n, Per: per, Burst: burst + 1, Name: name}
	if burst > 0 && limit.get("noDelay").text() != "true" {
		if limit.get("delay").is() {
			c.differs(line, "%s: requests beyond the first %s pass at once here; nginx holds them back", of,
				limit.get("delay").text())
		} else {
			r.Algorithm = policy.LeakyBucket
		}
	}
	if limit.get("dryRun").text() == "true" {
		r.Mode = policy.Shadow
	}
	if limit.get("scale").text() == "true" {
		r.Scope = policy.Split
	}
	key := strings.NewReplacer("${", "$", "}", "").Replace(limit.get("key").text())
	how, ok := (&nginxConfig{conversion: c}).key(line, of, key, 0)
	if !ok {
		return
	}
	r.Subject = how.subject
	if condition := limit.get("condition"); condition.is() && !c.condition(line, of, condition, &r) {
		return
	}
	r.Endpoint = policy.Default
	c.differs(line, "%s does not say where it holds: it is the rule for every endpoint without one of its own; "+
		"write the endpoints that its routes mean", of)
	c.add(line, of, r)
}

// condition makes a tier of a condition on a claim.
func (c *conversion) condition(line int, of string, condition node, r *policy.Rule) bool {
	claim := condition.get("jwt")
	if !claim.is() {
		c.lost(line,
			"%s holds for requests with some value of a variable: give those callers a tier, and write its limit", of)
		return false
	}
	if condition.get("default").text() == "true" {
		c.differs(line, "%s is for %s %s, and for callers without a limit of their own: it is the rule for everybody",
			of, claim.get("claim").text(), claim.get("match").text())
		return true
	}
	r.Tier = claim.get("match").text()
	c.differs(line, "%s is for tokens whose %s is %s: set tokens.tier to that claim", of,
		claim.get("claim").text(), r.Tier)
	return true
}
