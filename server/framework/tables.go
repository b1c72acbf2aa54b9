package framework

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// sorted are the values of a map in the order of their keys.
func sorted[V any](m map[string]V) (values []V) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

// flask reads the table that `flask routes` prints, whose columns the line of dashes shows.
func flask(r *report, text string) error {
	number := 0
	var head string
	var columns [][2]int
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n ")
		if columns == nil {
			if columns = dashes(line); columns == nil {
				head = line
			}
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		rule := column(line, columns, head, "Rule")
		if !strings.HasPrefix(rule, "/") {
			return fmt.Errorf("%s:%d: rule is %s, want a path under the heading Rule, as `flask routes` prints it",
				r.file, number, clip(rule))
		}
		only := strings.FieldsFunc(column(line, columns, head, "Methods"),
			func(c rune) bool { return c == ',' || c == ' ' })
		if len(only) == 0 {
			return fmt.Errorf("%s:%d: no method, want one under the heading Methods", r.file, number)
		}
		for _, heading := range []string{"Host", "Subdomain"} {
			if host := column(line, columns, head, heading); host != "" {
				r.differs(number, "%s: its host %s is not asked for", rule, clip(host))
			}
		}
		parts, err := angles(rule, nil)
		var ways [][]token
		if err == nil {
			ways, err = alternatives(parts)
		}
		if err != nil {
			r.lost(number, "%s: %v", rule, err)
			continue
		}
		if err := r.add(number, only, rule, ways); err != nil {
			return err
		}
	}
	if columns == nil {
		return fmt.Errorf("%s: has no line of dashes below headings, want the table that `flask routes` prints", r.file)
	}
	return nil
}

// dashes are where columns begin and end, if line is one of dashes.
func dashes(line string) (columns [][2]int) {
	if strings.Trim(line, "- ") != "" || line == "" {
		return nil
	}
	for i := 0; i < len(line); i++ {
		if line[i] == '-' && (i == 0 || line[i-1] == ' ') {
			columns = append(columns, [2]int{i, len(line)})
			if n := len(columns); n > 1 {
				columns[n-2][1] = i
			}
		}
	}
	return columns
}

// column is what stands under a heading.
func column(line string, columns [][2]int, head, heading string) string {
	for i, c := range columns {
		end := c[1]
		if i == len(columns)-1 {
			end = len(line)
		}
		if c[0] < len(head) && strings.TrimSpace(head[c[0]:min(max(c[1], c[0]), len(head))]) == heading {
			if c[0] >= len(line) {
				return ""
			}
			return strings.TrimSpace(line[c[0]:max(c[0], min(end, len(line)))])
		}
	}
	return ""
}

// railsRow is a row of `rails routes`: a name, methods, a path, and what serves it with its constraints.
var railsRow = regexp.MustCompile(`^\s*(?:([^\s|]+)\s+)??(?:([A-Z]+(?:\|[A-Z]+)*)\s+)?([/(]\S*)\s+(\S.*)$`)

// railsConstraint is one of the constraints behind what serves a route, {:id=>/\d+/} or {id: /\d+/}.
var railsConstraint = regexp.MustCompile(`:?"?(\w+)"?(?:\s*=>|:)\s*(?:/((?:[^/\\]|\\.)*)/([a-z]*)|("(?:[^"\\]|\\.)*"))`)

// railsRoute is a route as both tables have it.
type railsRoute struct {
	line          int
	methods, path string
	serves        string
}

// rails reads what `rails routes` prints, as a table or --expanded, with the engines that are mounted.
func rails(r *report, text string) error {
	sections := map[string][]railsRoute{}
	var order []string
	section, number := "", 0
	var now *railsRoute // of --expanded
	for line := range strings.Lines(text) {
		number++
		if len(line) > maxLine {
			return fmt.Errorf("%s:%d: line has more than %d bytes", r.file, number, maxLine)
		}
		line = strings.TrimRight(line, "\r\n ")
		trimmed := strings.TrimSpace(line)
		title := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(trimmed, "[ "), " ]"), ":")
		if engine, ok := strings.CutPrefix(title, "Routes for "); ok {
			section, now = engine, nil
			order = append(order, engine)
			continue
		}
		if key, value, ok := strings.Cut(line, " |"); ok && now != nil {
			value = strings.TrimSpace(value)
			switch strings.TrimSpace(key) {
			case "Verb":
				now.methods = value
			case "URI":
				now.path = value
			case "Controller#Action":
				now.serves = value
				sections[section] = append(sections[section], *now)
			}
			continue
		}
		switch {
		case strings.HasPrefix(line, "--[ "):
			now = &railsRoute{line: number}
			continue
		case trimmed == "" || strings.HasPrefix(trimmed, "Prefix "):
			continue
		}
		m := railsRow.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("%s:%d: is %s, want a row of `rails routes`, with a path and what serves it", r.file,
				number, clip(trimmed))
		}
		sections[section] = append(sections[section], railsRoute{number, m[2], m[3], m[4]})
	}
	mounted := map[string]string{}
	for _, one := range sections[""] {
		engine, _, _ := strings.Cut(one.serves, " ")
		prefix := strings.TrimSuffix(one.path, "/")
		if _, ok := sections[engine]; ok && one.methods == "" {
			mounted[engine] = prefix
			for _, inner := range sections[engine] {
				inner.path = prefix + inner.path
				if err := r.rails(inner); err != nil {
					return err
				}
			}
			continue
		}
		if err := r.rails(one); err != nil {
			return err
		}
	}
	for _, engine := range order {
		if _, ok := mounted[engine]; !ok {
			r.lost(0, "the routes of %s: no row says where it is mounted", clip(engine))
		}
	}
	return nil
}

func (r *report) rails(one railsRoute) error {
	where := map[string]string{}
	if serves, constraints, ok := strings.Cut(one.serves, " {"); ok {
		one.serves = serves
		for _, m := range railsConstraint.FindAllStringSubmatch(constraints, -1) {
			isParameter := namedIn(one.path, m[1])
			if isParameter && m[4] == "" && !strings.Contains(m[3], "x") {
				where[m[1]] = strings.ReplaceAll(m[2], `\/`, "/")
				if strings.Contains(m[3], "i") {
					where[m[1]] = "(?i:" + where[m[1]] + ")"
				}
			} else if !isParameter && m[1] != "format" {
				r.differs(one.line, "%s: %s is not asked for", one.path, clip(m[0]))
			}
		}
	}
	known := -1 // how many routes there are before one with an extension of its own
	text, extension := strings.CutSuffix(one.path, "(.:format)")
	parts, err := colons(text, '(', ')', where)
	if err == nil && extension {
		if n := len(parts) - 1; n >= 0 && parts[n].optional == nil && parts[n].name == "" && parts[n].text != "/" {
			// Behind a parameter, the extension is part of what that takes.
			parts = append(parts, part{optional: []part{plain("."), {token: token{name: "format"}}}})
			known = len(r.routes)
		}
	}
	if err == nil && one.methods == "" && !extension && !action.MatchString(one.serves) {
		r.differs(one.line, "%s: all beneath is one endpoint, since %s is mounted there, which says no routes",
			one.path, clip(one.serves))
		parts = append(parts, part{optional: []part{plain("/"), {token: token{name: "rest", slash: true}}}})
	}
	var ways [][]token
	if err == nil {
		ways, err = alternatives(parts)
	}
	if err != nil {
		r.lost(one.line, "%s: %v", one.path, err)
		return nil
	}
	var only []string
	if one.methods != "" {
		only = strings.Split(one.methods, "|")
	}
	err = r.add(one.line, only, one.path, ways)
	if known >= 0 && len(r.routes) > known {
		r.extensions++
	}
	return err
}

// action is a controller and what it does: "users#show".
var action = regexp.MustCompile(`^[\w/:]+#\w+`)

// namedIn reports whether a path has a parameter of a name.
func namedIn(path, name string) bool {
	return strings.Contains(path, ":"+name) || strings.Contains(path, "*"+name)
}
