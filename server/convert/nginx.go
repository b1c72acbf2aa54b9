package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/policy"
)

// nginxConfig is what limits of nginx refer to.
type nginxConfig struct {
	*conversion
	zones map[string]nginxZone // by the directive that uses them and their name
	maps  map[string]directive // map and geo, by the variable that they set

	locations []path // of the server at hand, with those in others: the longest that begins a path has the request
}

type nginxZone struct {
	key   string
	limit int64
	per   time.Duration
	file  string
	line  int
}

// use is a limit_req or limit_conn where it stands.
type use struct {
	directive
	file    string
	refuses refuses
}

// refuses is what happens to a request that is over limits of one directive. Levels have it from those above.
type refuses struct {
	shadow bool   // nothing
	status string // "" if no directive says it
}

// refusals are in the order of nginxLimits.
type refusals [2]refuses

// String is the directive as it is written.
func (u use) String() string { return u.name + " " + strings.Join(u.args, " ") }

// nginxLimits are the directives that are converted: how many requests begin in a time, and how many are under way.
var nginxLimits = []string{"limit_req", "limit_conn"}

// nginx converts limit_req and limit_conn. Files are read as if they stood one behind the other, since zones and
// limits may be in different ones.
func nginx(c *conversion, files []File) error {
	n := nginxConfig{conversion: c, zones: map[string]nginxZone{}, maps: map[string]directive{}}
	var trees [][]directive
	for _, f := range files {
		tree, err := parseNginx(f.Name, f.Text)
		if err != nil {
			return err
		}
		c.file = f.Name
		n.define(tree)
		trees = append(trees, tree)
	}
	for i, f := range files {
		c.file = f.Name
		n.level(trees[i], refusals{})
	}
	return nil
}

// define collects zones and maps.
func (n *nginxConfig) define(list []directive) {
	for _, d := range list {
		switch {
		case d.name == "limit_req_zone" && len(d.args) >= 2:
			zone := nginxZone{key: d.args[0], file: n.file, line: d.line}
			name := ""
			for _, a := range d.args[1:] {
				if v, ok := strings.CutPrefix(a, "zone="); ok {
					name, _, _ = strings.Cut(v, ":")
				} else if v, ok := strings.CutPrefix(a, "rate="); ok {
					if zone.limit, zone.per, ok = nginxRate(v); !ok {
						n.lost(d.line, "limit_req_zone: rate is %q, want a number and r/s or r/m", v)
					}
				}
			}
			n.zones["limit_req "+name] = zone
		case d.name == "limit_conn_zone" && len(d.args) == 2:
			name, _, _ := strings.Cut(strings.TrimPrefix(d.args[1], "zone="), ":")
			n.zones["limit_conn "+name] = nginxZone{key: d.args[0], file: n.file, line: d.line}
		case (d.name == "map" || d.name == "geo") && len(d.args) > 0:
			n.maps[d.args[len(d.args)-1]] = d
		case d.name == "include" && len(d.args) == 1 && !strings.HasSuffix(d.args[0], "mime.types"):
			n.note(Differs, d.line, "include %s is not followed: if limits stand there, give that file as well",
				d.args[0])
		}
		n.define(d.block)
	}
}

// nginxRate reads 10r/s or 30r/m.
func nginxRate(s string) (limit int64, per time.Duration, ok bool) {
	number, unit, _ := strings.Cut(s, "r/")
	limit, err := strconv.ParseInt(number, 10, 64)
	switch unit {
	case "s":
		per = time.Second
	case "m":
		per = time.Minute
	}
	return limit, per, err == nil && limit > 0 && per > 0
}

// level converts the limits of a file, http or a server, and what stands in it. Limits of a level hold in those
// below that have none. They refuse as how says.
func (n *nginxConfig) level(list []directive, how refusals) {
	own, how := n.usesOf(list, how)
	if slices.ContainsFunc(list, func(d directive) bool { return d.name == "location" }) {
		n.locations = locationsIn(list)
	}
	below := map[string]bool{} // something has such limits instead
	for _, d := range list {
		switch d.name {
		case "http", "server":
			n.level(d.block, how)
		case "location":
			n.location(d, how)
		default:
			continue
		}
		for _, limit := range nginxLimits {
			below[limit] = below[limit] || anyUse(d, limit)
		}
	}
	for _, u := range own {
		n.whole(u, below[u.name])
	}
}

// usesOf are the limits of a level itself, and how those below refuse.
func (n *nginxConfig) usesOf(list []directive, how refusals) ([]use, refusals) {
	for _, d := range list {
		for i, limit := range nginxLimits {
			switch {
			case len(d.args) != 1:
			case d.name == limit+"_dry_run":
				how[i].shadow = d.args[0] == "on"
			case d.name == limit+"_status":
				how[i].status = d.args[0]
				if d.args[0] != "429" && d.args[0] != "503" {
					n.differs(d.line, "%s is %s: refused requests get a 429", d.name, d.args[0])
				}
			}
		}
	}
	var own []use
	for _, d := range list {
		if i := slices.Index(nginxLimits, d.name); i >= 0 {
			own = append(own, use{d, n.file, how[i]})
		}
	}
	n.Limits += len(own)
	return own, how
}

// locationsIn are the paths of locations.
func locationsIn(list []directive) (paths []path) {
	for _, d := range list {
		if d.name != "location" || len(d.args) == 0 {
			continue
		}
		if p := (path{d.args[len(d.args)-1], d.args[0] == "="}); strings.HasPrefix(p.text, "/") &&
			!strings.HasPrefix(d.args[0], "~") {
			paths = append(paths, p)
		}
		paths = append(paths, locationsIn(d.block)...)
	}
	return paths
}

// anyUse reports whether a limit stands in a block.
func anyUse(d directive, limit string) bool {
	return slices.ContainsFunc(d.block, func(d directive) bool { return d.name == limit || anyUse(d, limit) })
}

// whole converts a limit for all of a server, but for what has limits below.
func (n *nginxConfig) whole(u use, below bool) {
	r, only, ok := n.rule(u)
	if !ok {
		return
	}
	of := u.String()
	switch {
	case len(only) > 0:
		n.under(u, r, path{text: "/"}, only)
	case below:
		n.elsewhere(u.line, of, r, "nginx")
	default:
		n.everywhere(u.line, of, r)
	}
}

// location converts the limits of a location.
func (n *nginxConfig) location(d directive, how refusals) {
	own, how := n.usesOf(d.block, how)
	for _, below := range d.block {
		if below.name == "location" {
			n.location(below, how)
		}
	}
	if len(own) == 0 {
		return
	}
	name := strings.Join(d.args, " ")
	modifier, text := "", name
	if len(d.args) == 2 {
		modifier, text = d.args[0], d.args[1]
	}
	for _, u := range own {
		of := u.String()
		switch {
		case strings.HasPrefix(modifier, "~"):
			n.lost(u.line, "%s in location %s: write rules for the endpoints that the expression means", of, name)
			continue
		case strings.HasPrefix(text, "@"):
			n.lost(u.line, "%s in location %s: it is reached from within alone", of, name)
			continue
		case !strings.HasPrefix(text, "/"):
			n.lost(u.line, "%s in location %s: that is no path", of, name)
			continue
		}
		r, only, ok := n.rule(u)
		if !ok {
			continue
		}
		if text == "/" && modifier != "=" && len(only) == 0 {
			n.whole(u, true)
			continue
		}
		n.under(u, r, path{text, modifier == "="}, only)
	}
}

// under adds a rule for each endpoint under a path.
func (n *nginxConfig) under(u use, r policy.Rule, p path, only []string) {
	of := u.String()
	endpoints, ok := n.endpoints(p, only)
	if len(n.options.Endpoints) > 0 {
		endpoints = slices.DeleteFunc(endpoints, func(at string) bool {
			t, err := endpoint.ParseTemplate(at)
			return err == nil && slices.ContainsFunc(n.locations, func(other path) bool {
				return (len(other.text) > len(p.text) || other.exact && !p.exact) && other.holds(t)
			})
		})
	}
	switch {
	case !ok:
		n.lost(u.line, "%s: %q is no path that a template can say", of, p.text)
		return
	case len(endpoints) == 0:
		n.lost(u.line, "%s: no endpoint lies under %s", of, p.text)
		return
	case len(endpoints) > 1:
		n.manyBuckets(u.line, of, len(endpoints), p.text, "nginx")
	}
	for _, at := range endpoints {
		r.Endpoint = at
		n.add(u.line, of, r)
	}
}

// rule makes the rule of a limit, for some methods or all.
func (n *nginxConfig) rule(u use) (r policy.Rule, only []string, ok bool) {
	of := u.String()
	limit := n.rate
	if u.name == "limit_conn" {
		limit = n.places
	}
	r, zone, ok := limit(u)
	if !ok {
		return r, nil, false
	}
	if u.refuses.shadow {
		r.Mode = policy.Shadow
	}
	if u.refuses.status == "503" {
		r.Refusal = "503"
	}
	how, ok := n.key(u.line, of, zone.key, 0)
	if !ok {
		return r, nil, false
	}
	if r.Subject = how.subject; u.name == "limit_conn" {
		r = inFlight(how.subject, r)
	}
	for _, network := range how.exempt {
		n.exempt(u.line, "of zone "+r.Name, network)
	}
	if len(how.exempt) > 0 && len(n.zones) > 1 {
		n.differs(u.line,
			"%s: addresses that it leaves out are exempt from all limits here, from this one alone in nginx", of)
	}
	return r, how.methods, true
}

// places is how many requests of a caller limit_conn lets be under way: nginx counts a connection while a request of it
// is being answered, and with HTTP/2 each request as a connection.
func (n *nginxConfig) places(u use) (r policy.Rule, zone nginxZone, ok bool) {
	if len(u.args) != 2 {
		n.lost(u.line, "%s: want a zone and a number", u)
		return r, zone, false
	}
	zone, known := n.zones["limit_conn "+u.args[0]]
	limit, err := strconv.ParseInt(u.args[1], 10, 64)
	switch {
	case !known:
		n.lost(u.line, "%s: there is no limit_conn_zone %s; if it stands in another file, give that one as well", u,
			u.args[0])
	case err != nil || limit < 1:
		n.lost(u.line, "%s: %q is no number, want 1 or more", u, u.args[1])
	default:
		return policy.Rule{Limit: limit, Name: u.args[0]}, zone, true
	}
	return r, zone, false
}

// rate is what limit_req admits in a time.
func (n *nginxConfig) rate(u use) (r policy.Rule, zone nginxZone, ok bool) {
	of := u.String()
	name, delay, known := "", "0", false
	var burst int64
	for _, a := range u.args {
		field, value, _ := strings.Cut(a, "=")
		switch field {
		case "zone":
			name = value
			zone, known = n.zones["limit_req "+value]
		case "burst":
			var err error
			if burst, err = strconv.ParseInt(value, 10, 64); err != nil || burst < 0 {
				n.lost(u.line, "%s: burst is %q, want a whole number", of, value)
				return r, zone, false
			}
		case "nodelay":
			delay = "all"
		case "delay":
			delay = value
		}
	}
	switch {
	case !known:
		n.lost(u.line, "%s: there is no limit_req_zone %s; if it stands in another file, give that one as well", of,
			name)
		return r, zone, false
	case zone.limit == 0:
		n.lost(u.line, "%s: its zone has no rate", of)
		return r, zone, false
	}
	r = policy.Rule{Limit: zone.limit, Per: zone.per, Burst: burst + 1, Name: name}
	switch {
	case burst == 0 || delay == "all":
	case delay == "0":
		r.Algorithm = policy.LeakyBucket
	default:
		n.differs(u.line, "%s: requests beyond the first %s pass at once here; nginx holds them back", of, delay)
	}
	return r, zone, true
}

// keyed is whose requests a zone counts together.
type keyed struct {
	subject policy.Subject
	methods []string // none: all
	exempt  []string // networks
}

// nginxSubjects are what variables of nginx come to here. Those that begin so, if they end in _.
var nginxSubjects = []struct {
	variable string
	subject  policy.Subject
	differs  string
}{
	{"$binary_remote_addr", policy.SubjectIP, ""}, {"$remote_addr", policy.SubjectIP, ""},
	{"$proxy_protocol_addr", policy.SubjectIP, ""},
	{"$realip_remote_addr", policy.SubjectIP, "the address of the peer there, of the client here"},
	{"$http_x_forwarded_for", policy.SubjectIP,
		"a client can write that header: here the client's address is read behind trusted_proxies"},
	{"$http_x_real_ip", policy.SubjectIP,
		"a client can write that header: here the client's address is read behind trusted_proxies"},
	{"$http_cf_connecting_ip", policy.SubjectIP,
		"a client can write that header: here the client's address is read behind trusted_proxies"},
	{"$server_name", policy.SubjectEndpoint, ""},
	{"$host", policy.SubjectEndpoint, "one bucket for all hosts"},
	{"$http_host", policy.SubjectEndpoint, "one bucket for all hosts"},
	{"$http_authorization", policy.SubjectPrincipal,
		"the verified caller, else the address: anything in that header was a budget of its own"},
	{"$http_x_api_key", policy.SubjectPrincipal,
		"the verified caller, else the address: anything in that header was a budget of its own"},
	{"$jwt_", policy.SubjectPrincipal, "the verified caller, else the address"},
	{"$apikey_", policy.SubjectPrincipal, "the verified caller, else the address"},
	{"$remote_user", policy.SubjectPrincipal, "the verified caller, else the address"},
	{"$ssl_client_", policy.SubjectPrincipal, "the verified caller, else the address"},
}

// nginxPaths are variables that tell endpoints apart, as rules do by themselves.
var nginxPaths = []string{"$uri", "$request_uri", "$url", "$document_uri", "$request_method", "$scheme", "$server_port"}

// key says what the key of a zone comes to, following maps.
func (n *nginxConfig) key(line int, of, key string, depth int) (keyed, bool) {
	if d, is := n.maps[key]; is && depth < maxDepth {
		return n.mapped(line, of, d, depth+1)
	}
	var found *keyed
	for _, v := range variables(key) {
		if slices.Contains(nginxPaths, v) {
			continue
		}
		one := keyed{}
		known := false
		for _, s := range nginxSubjects {
			if v == s.variable || strings.HasSuffix(s.variable, "_") && strings.HasPrefix(v, s.variable) {
				known, one.subject = true, s.subject
				if s.differs != "" {
					n.differs(line, "%s counts by %s: %s", of, v, s.differs)
				}
				break
			}
		}
		if !known || found != nil && found.subject != one.subject && found.subject != policy.SubjectEndpoint &&
			one.subject != policy.SubjectEndpoint {
			n.lost(line,
				"%s counts by %q, which is no caller that can be verified; choose a subject, and see "+
					"docs/policies.md", of, key)
			return keyed{}, false
		}
		if found == nil || found.subject == policy.SubjectEndpoint {
			found = &one
		}
	}
	if found == nil {
		if strings.Contains(key, "$") {
			n.differs(line,
				"%s counts by %q, which a client chooses: here all requests of an endpoint are counted together", of,
				key)
		}
		return keyed{subject: policy.SubjectEndpoint}, true
	}
	return *found, true
}

// variables are the variables in a text.
func variables(s string) (found []string) {
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 {
			return found
		}
		s = s[at:]
		end := 1
		for end < len(s) && (s[end] == '_' || '0' <= s[end] && s[end] <= '9' || 'a' <= s[end] && s[end] <= 'z' ||
			'A' <= s[end] && s[end] <= 'Z') {
			end++
		}
		found, s = append(found, s[:end]), s[end:]
	}
}

// mapped says what a key comes to that a map sets: an empty one is not limited.
func (n *nginxConfig) mapped(line int, of string, d directive, depth int) (keyed, bool) {
	other, values := "", map[string]string{}
	var order []string
	for _, e := range d.block {
		if len(e.args) != 1 {
			continue
		}
		if e.name == "default" {
			other = e.args[0]
		} else {
			values[e.name] = e.args[0]
			order = append(order, e.name)
		}
	}
	source := "$remote_addr"
	if len(d.args) == 2 {
		source = d.args[0]
	}
	switch inner := n.maps[source]; {
	case source == "$request_method":
		return n.byMethod(line, of, other, values, depth)
	case inner.name == "geo":
		return n.byNetwork(line, of, inner, other, values, depth)
	case other == "":
		n.lost(line, "%s counts only requests whose %s is one of %d values; write rules for the endpoints or "+
			"projects that they mean", of, source, len(values))
		return keyed{}, false
	}
	how, ok := n.key(line, of, other, depth)
	for _, v := range order {
		if values[v] == "" {
			n.lost(line, "%s leaves out requests whose %s is %q: give those callers a key of a project, and that "+
				"project a rule with mode allow", of, source, clip.To(v, 40))
		} else if values[v] != other {
			n.lost(line, "%s counts requests whose %s is %q by %q", of, source, clip.To(v, 40), values[v])
		}
	}
	return how, ok
}

// byMethod is a map of the request's method.
func (n *nginxConfig) byMethod(line int, of, other string, values map[string]string, depth int) (how keyed, ok bool) {
	var only []string
	for _, m := range methods {
		v, named := values[m]
		if !named {
			v = other
		}
		if v == "" {
			continue
		}
		one, is := n.key(line, of, v, depth)
		if !is || ok && one.subject != how.subject {
			return keyed{}, false
		}
		how, ok = one, true
		only = append(only, m)
	}
	if len(only) < len(methods) {
		how.methods = only
	}
	return how, ok
}

// byNetwork is a map of what geo says of the address: networks without a key are exempt.
func (n *nginxConfig) byNetwork(line int, of string, geo directive, other string, values map[string]string,
	depth int) (how keyed, ok bool) {
	keyOf := func(v string) string {
		if key, named := values[v]; named {
			return key
		}
		return other
	}
	usual := ""
	for _, e := range geo.block {
		if e.name == "default" && len(e.args) == 1 {
			usual = keyOf(e.args[0])
		}
	}
	if usual == "" {
		n.lost(line, "%s counts only some networks", of)
		return keyed{}, false
	}
	how, ok = n.key(line, of, usual, depth)
	for _, e := range geo.block {
		if e.name == "default" || len(e.args) != 1 {
			continue
		}
		_, noNetwork := netip.ParsePrefix(e.name)
		_, noAddress := netip.ParseAddr(e.name)
		switch key := keyOf(e.args[0]); {
		case noNetwork != nil && noAddress != nil:
			n.lost(e.line, "geo has %s %s, which is no network", e.name, strings.Join(e.args, " "))
		case key == "":
			how.exempt = append(how.exempt, e.name)
		case key != usual:
			n.lost(line, "%s counts %s by %q", of, e.name, fmt.Sprint(key))
		}
	}
	return how, ok
}
