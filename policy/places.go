package policy

import (
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// places are what the texts in Rule.Endpoint mean, each worked out once.
type places struct {
	*findings
	endpoints *endpoint.Table // nil if there are none

	known   map[string]*place // by Rule.Endpoint
	orphans map[string]uint32 // by shape of the template
}

// place is what one text in Rule.Endpoint means.
type place struct {
	number  uint32
	prefix  hash   // of Terms.ID
	content hash   // of the text; see ruleContent
	closest string // for a template that no endpoint has
	want    string // not empty: the text is wrong
}

// place says what the text of an endpoint means. It works each text out once.
func (p *places) place(text string) *place {
	if at, ok := p.known[text]; ok {
		return at
	}
	at := &place{content: ruleContent(text)}
	switch text {
	case Default:
		at.number, at.prefix = rowDefault, newHash().text(text)
	case UnknownEndpoint:
		at.number, at.prefix = rowUnknown, newHash().text(text)
	case All:
		at.number, at.prefix = rowAll, newHash().text(text)
	default:
		p.placeTemplate(at, text)
	}
	p.known[text] = at
	return at
}

func (p *places) placeTemplate(at *place, text string) {
	t, err := endpoint.ParseTemplate(text)
	if err != nil {
		at.want = wantEndpoint(text, err)
		return
	}
	if p.endpoints != nil {
		if id, ok := p.endpoints.Lookup(t); ok {
			at.number = uint32(id)
			at.prefix = newHash().text(shapeOf(p.endpoints.Template(id).String()))
			return
		}
		if !p.problems.full("no_endpoint") { // nobody will see it, and it is slow
			if near, ok := p.endpoints.Closest(t); ok {
				at.closest = near.String()
			}
		}
	}
	shape := shapeOf(t.String())
	n, ok := p.orphans[shape]
	if !ok {
		n = rowOrphan - uint32(len(p.orphans))
		p.orphans[shape] = n
	}
	at.number = n
}

// isOrphan reports whether a row's endpoint is a template that no endpoint has.
func (p *places) isOrphan(ep uint32) bool {
	return ep <= rowOrphan && ep > rowOrphan-uint32(len(p.orphans))
}

// hasParameter reports whether an endpoint has a parameter, or none are known.
func (p *places) hasParameter(name string) bool {
	if p.endpoints == nil {
		return true
	}
	for _, t := range p.endpoints.All() {
		for parameter := range t.Parameters() {
			if parameter == name {
				return true
			}
		}
	}
	return false
}

// shapeOf drops the parameter names of a template, which do not tell two
// templates apart: "GET /a/{id}/{rest...}" becomes "GET /a/{}/{...}".
func shapeOf(template string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(template, '{')
		end := strings.IndexByte(template, '}')
		if open < 0 || end < open {
			b.WriteString(template)
			return b.String()
		}
		b.WriteString(template[:open+1])
		if strings.HasSuffix(template[:end], "...") {
			b.WriteString("...")
		}
		b.WriteByte('}')
		template = template[end+1:]
	}
}
