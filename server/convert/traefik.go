package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// traefik converts the middlewares rateLimit and inFlightReq of a dynamic configuration in YAML, or of Middlewares of
// Kubernetes.
func traefik(c *conversion, files []File) error {
	for _, f := range files {
		c.file = f.Name
		if strings.HasSuffix(f.Name, ".toml") {
			return fmt.Errorf("%s: TOML is not read, want the dynamic configuration in YAML", f.Name)
		}
		list, err := documents(f)
		if err != nil {
			return err
		}
		limits := map[string]node{}
		for _, d := range list {
			for _, m := range d.get("http", "middlewares").fields() {
				limits[m.name] = m.value
			}
			if d.get("kind").text() == "Middleware" {
				limits[d.get("metadata", "name").text()] = d.get("spec")
			}
		}
		used := map[string]bool{}
		for _, d := range list {
			c.traefikRouters(d, limits, used)
		}
		for _, d := range list {
			for _, m := range d.get("http", "middlewares").fields() {
				c.traefikUnused(m.name, m.value, used)
			}
			if d.get("kind").text() == "Middleware" {
				c.traefikUnused(d.get("metadata", "name").text(), d.get("spec"), used)
			}
		}
	}
	return nil
}

// traefikRouters converts the limits that routers name.
func (c *conversion) traefikRouters(d node, limits map[string]node, used map[string]bool) {
	type router struct {
		name, rule  string
		middlewares []string
		line        int
	}
	var routers []router
	for _, r := range d.get("http", "routers").fields() {
		routers = append(routers, router{r.name, r.value.get("rule").text(), r.value.get("middlewares").texts(),
			r.value.line()})
	}
	if d.get("kind").text() == "IngressRoute" {
		for _, r := range d.get("spec", "routes").list() {
			var names []string
			for _, m := range r.get("middlewares").list() {
				names = append(names, m.get("name").text())
			}
			routers = append(routers, router{d.get("metadata", "name").text(), r.get("match").text(), names, r.line()})
		}
	}
	for _, r := range routers {
		for _, name := range r.middlewares {
			name, _, _ = strings.Cut(name, "@")
			kind, limit := traefikLimit(limits[name])
			if !limit.is() {
				continue
			}
			used[name] = true
			c.Limits++
			rule, ok := c.traefikRule(kind, name, limit)
			if !ok {
				continue
			}
			of := kind + " " + name + " of router " + r.name
			place, only, ok := traefikPlace(r.rule)
			switch {
			case !ok:
				c.lost(r.line, "%s: %s says more than paths and methods; write rules for the endpoints that it means",
					of, r.rule)
			case place.text == "" && len(only) == 0:
				c.everywhere(r.line, of, rule)
			default:
				c.traefikUnder(r.line, of, rule, place, only)
			}
		}
	}
}

func (c *conversion) traefikUnder(line int, of string, r policy.Rule, p path, only []string) {
	if p.text == "" {
		p.text = "/"
	}
	endpoints, ok := c.endpoints(p, only)
	if !ok || len(endpoints) == 0 {
		c.lost(line, "%s: no endpoint can be said for %s", of, p.text)
		return
	}
	if len(endpoints) > 1 {
		c.manyBuckets(line, of, len(endpoints), p.text, "Traefik")
	}
	for _, at := range endpoints {
		r.Endpoint = at
		c.add(line, of, r)
	}
}

// traefikUnused converts a limit that no router of the file names.
func (c *conversion) traefikUnused(name string, m node, used map[string]bool) {
	kind, limit := traefikLimit(m)
	if !limit.is() || used[name] {
		return
	}
	c.Limits++
	if r, ok := c.traefikRule(kind, name, limit); ok {
		c.differs(limit.line(), "%s %s is named by no router in the file: it holds for all requests here", kind, name)
		c.everywhere(limit.line(), kind+" "+name, r)
	}
}

// traefikLimit is the limit of a middleware, if it is one.
func traefikLimit(m node) (kind string, limit node) {
	kind = "rateLimit"
	if m.get("inFlightReq").is() {
		kind = "inFlightReq"
	}
	return kind, m.get(kind)
}

// traefikRule makes a rule of a middleware, which counts by address if it is a rateLimit and does not say otherwise,
// and by host if it is an inFlightReq.
func (c *conversion) traefikRule(kind, name string, limit node) (r policy.Rule, ok bool) {
	by := limit.get("sourceCriterion")
	if kind == "rateLimit" {
		if r, ok = c.traefikRate(name, limit); ok {
			r.Subject, ok = c.traefikSubject(limit.line(), kind+" "+name, by, false)
		}
		return r, ok
	}
	amount, ok := limit.get("amount").number()
	if !ok || amount < 1 {
		c.lost(limit.line(), "inFlightReq %s: amount is %q, want a whole number of 1 or more", name,
			limit.get("amount").text())
		return r, false
	}
	subject, ok := c.traefikSubject(limit.line(), kind+" "+name, by, true)
	return inFlight(subject, policy.Rule{Limit: amount, Name: name}), ok
}

// traefikRate makes a rule of average, period and burst.
func (c *conversion) traefikRate(name string, limit node) (policy.Rule, bool) {
	line := limit.line()
	r := policy.Rule{Per: time.Second, Burst: 1, Name: name}
	average, ok := limit.get("average").number()
	if !ok || average < 1 {
		c.lost(line, "rateLimit %s: average is %q, which means no limit", name, limit.get("average").text())
		return r, false
	}
	r.Limit = average
	if period := limit.get("period"); period.is() {
		d, err := time.ParseDuration(period.text())
		if n, whole := period.number(); whole {
			d, err = time.Duration(n)*time.Second, nil
		}
		if err != nil || d < time.Second || d%time.Second != 0 {
			c.lost(period.line(), "rateLimit %s: period is %q, want whole seconds", name, period.text())
			return r, false
		}
		r.Per = d
	}
	if burst, ok := limit.get("burst").number(); ok && burst > 0 {
		r.Burst = burst
	}
	return r, true
}

// traefikSubject is whose requests a limit counts together, by what sourceCriterion says.
func (c *conversion) traefikSubject(line int, of string, by node, hostByDefault bool) (policy.Subject, bool) {
	switch header := by.get("requestHeaderName").text(); {
	case by.get("requestHost").text() == "true", !by.is() && hostByDefault:
		c.differs(max(by.line(), line), "%s counts by host: one bucket for all hosts here", of)
		return policy.SubjectEndpoint, true
	case strings.EqualFold(header, "Authorization") || strings.EqualFold(header, "X-Api-Key"):
		c.differs(by.line(), "%s counts by %s: the verified caller here, else the address; anything in "+
			"that header was a budget of its own", of, header)
		return policy.SubjectPrincipal, true
	case header != "":
		c.lost(by.line(), "%s counts by the header %s, which a client writes and nobody verifies", of, header)
		return policy.SubjectIP, false
	case by.get("ipStrategy", "depth").is():
		c.differs(by.line(), "%s reads X-Forwarded-For at depth %s: set trusted_proxies", of,
			by.get("ipStrategy", "depth").text())
	}
	for _, network := range by.get("ipStrategy", "excludedIPs").texts() {
		c.differs(by.line(), "%s looks behind %s: name it in trusted_proxies", of, network)
	}
	return policy.SubjectIP, true
}

var traefikCall = regexp.MustCompile("^(Host|HostSNI|Path|PathPrefix|Method)\\(((?:[`\"][^`\"]*[`\"],?\\s*)+)\\)$")

// traefikPlace reads what a router's rule says of path and method, joined by &&. Hosts are left out.
func traefikPlace(rule string) (p path, only []string, ok bool) {
	for _, part := range strings.Split(rule, "&&") {
		found := traefikCall.FindStringSubmatch(strings.TrimSpace(part))
		if found == nil {
			return p, nil, strings.TrimSpace(rule) == ""
		}
		args := strings.FieldsFunc(found[2], func(r rune) bool { return strings.ContainsRune("`\", ", r) })
		switch found[1] {
		case "Path", "PathPrefix":
			if len(args) != 1 || p.text != "" || strings.ContainsAny(args[0], "{}") {
				return p, nil, false
			}
			p = path{args[0], found[1] == "Path"}
		case "Method":
			only = slices.DeleteFunc(args, func(m string) bool { return !slices.Contains(methods, m) })
			if len(only) == 0 {
				return p, nil, false
			}
		}
	}
	if p.text == "/" && !p.exact {
		p.text = ""
	}
	return p, only, true
}
