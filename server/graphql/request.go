package graphql

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
)

// Names of what a request holds, in its body or its query (GraphQL over HTTP, draft).
const (
	nameQuery      = "query"
	nameOperation  = "operationName"
	nameVariables  = "variables"
	nameExtensions = "extensions"
)

// names are those, and others by which some servers take the ID of a document that they have.
var names = []string{nameQuery, nameOperation, nameVariables, nameExtensions, "id", "documentId", "doc_id", "docId",
	"queryId", "query_id", "hash", "sha256Hash", "persistedQuery"}

// asked is one request for an operation.
type asked struct {
	query     string
	operation string
	variables []byte // a JSON object, or nothing
	other     bool   // there are names that are not known
}

// Price prices a request by its body, or by the query of its target. It is for httplimit.Priced.
func (p *Pricer) Price(r *http.Request, target string, text []byte) httplimit.Price {
	price, err := p.request(r, target, text)
	if err != nil {
		var why *Refused
		if errors.As(err, &why) {
			return httplimit.Price{Fault: why.Fault, Why: why.Why}
		}
		return httplimit.Price{Fault: body.Syntax}
	}
	return price
}

var errBoth = refused(body.Alike, "What is executed may stand in the body or in the query, not in both.")

func (p *Pricer) request(r *http.Request, target string, text []byte) (httplimit.Price, error) {
	_, after, _ := strings.Cut(target, "?")
	query := []byte(after)
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return p.get(r, query, text)
	}
	operation, named := "", false
	for _, name := range names {
		value, there, fault := body.FormText(query, name)
		switch {
		case fault != body.None, there && name != nameOperation:
			return httplimit.Price{}, errBoth
		case there: // as some clients do, for those who read logs
			operation, named = value, true
		}
	}
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 {
		return httplimit.Price{}, refused(body.Empty, "The request holds no document.")
	}
	if text[0] != '[' {
		one, err := read(text)
		if err == nil && named && operation != one.operation {
			err = errBoth
		}
		if err != nil {
			return httplimit.Price{}, err
		}
		c, err := p.one(one, p.options.MaxTokens)
		return p.priced(c, 1, err)
	}
	if named {
		return httplimit.Price{}, errBoth
	}
	return p.batch(text)
}

// batch prices an array of requests.
func (p *Pricer) batch(text []byte) (httplimit.Price, error) {
	var sum Cost
	var first error
	parts, tokens := 0, p.options.MaxTokens
	fault := body.Elements(text, func(value []byte) body.Fault {
		if parts++; parts > p.options.MaxParts || first != nil {
			return body.Many
		}
		one, err := read(value)
		if err != nil {
			first = err
			return body.Syntax
		}
		var c Cost
		if c, first = p.one(one, tokens); first != nil {
			return body.Many
		}
		tokens -= tokensOf(one.query, tokens)
		sum.Tokens += c.Tokens // each at most MaxCost
		return body.None
	})
	switch {
	case parts > p.options.MaxParts:
		return httplimit.Price{}, refused(body.Many, "The body holds more operations than %d.", p.options.MaxParts)
	case first != nil:
		return httplimit.Price{}, first
	case fault != body.None:
		return httplimit.Price{}, refused(fault, "The body is not JSON.")
	case parts == 0:
		return httplimit.Price{}, refused(body.Empty, "The request holds no document.")
	}
	return p.priced(sum, parts, nil)
}

// priced is what a request of so many parts costs, if that is not too much.
func (p *Pricer) priced(c Cost, parts int, err error) (httplimit.Price, error) {
	if err == nil && c.Tokens > p.options.MaxCost {
		err = refused(body.Costly, "The request costs %d, of %d at most.", c.Tokens, p.options.MaxCost)
	}
	if err != nil {
		return httplimit.Price{}, err
	}
	return httplimit.Price{Cost: c.Tokens, Parts: parts, Many: c.Roots > 1}, nil
}

// one prices what one request asks for.
func (p *Pricer) one(a asked, tokens int) (Cost, error) {
	if a.query == "" {
		if p.options.Persisted == 0 {
			return Cost{}, refused(body.Stored, "PersistedQueryNotSupported")
		}
		return Cost{Tokens: p.options.Persisted, Roots: 2}, nil // nobody knows how many
	}
	if a.other {
		return Cost{}, refused(body.Alike, "Beside the document there are other names than %s, %s and %s.",
			nameOperation, nameVariables, nameExtensions)
	}
	c, err := p.document(a.query, a.operation, a.variables, tokens)
	if err == nil && c.Tokens > p.options.MaxCost {
		err = refused(body.Costly, "The operation costs %d, of %d at most.", c.Tokens, p.options.MaxCost)
	}
	return c, err
}

// get prices a request whose document stands in the query of its target.
func (p *Pricer) get(r *http.Request, query, text []byte) (httplimit.Price, error) {
	if len(text) > 0 {
		return httplimit.Price{}, refused(body.Alike,
			"A request of this method has its document in the query, and no body.")
	}
	a, named := asked{}, 0
	var extensions []byte
	for _, name := range names {
		value, there, fault := body.FormText(query, name)
		switch {
		case fault != body.None:
			return httplimit.Price{}, refused(fault,
				"The query of the target has %s twice, or a name that is like it.", name)
		case !there:
			continue
		case name == nameQuery:
			a.query = value
		case name == nameOperation:
			a.operation = value
		case name == nameVariables:
			a.variables = []byte(value)
		case name == nameExtensions:
			extensions = []byte(value)
		default:
			a.other = true
		}
		named++
	}
	switch upgrade := len(r.Header["Upgrade"]) > 0; {
	case named > 0:
	case upgrade && !p.options.Upgrades:
		return httplimit.Price{}, refused(body.Media, "Operations in messages of another protocol are not taken.")
	case upgrade, len(query) == 0: // or a page for people
		return httplimit.Price{}, nil
	}
	if err := a.complete(extensions); err != nil {
		return httplimit.Price{}, err
	}
	c, err := p.one(a, p.options.MaxTokens)
	return p.priced(c, 1, err)
}

// read reads a request for one operation, in JSON.
func read(text []byte) (a asked, err error) {
	seen := map[string]bool{}
	var extensions []byte
	fault := body.Members(text, func(name, value []byte) body.Fault {
		known := string(name)
		switch known {
		case nameQuery, nameOperation, nameVariables, nameExtensions:
		default:
			for _, of := range names[:4] {
				if before, _, _ := strings.Cut(known, "\x00"); strings.EqualFold(before, of) {
					return body.Alike
				}
			}
			a.other = true
			return body.None
		}
		if seen[known] {
			return body.Twice
		}
		seen[known] = true
		if value[0] == 'n' { // null
			return body.None
		}
		switch known {
		case nameVariables:
			a.variables = value
			return body.None
		case nameExtensions:
			extensions = value
			return body.None
		}
		s, ok := body.Unquote(value)
		switch {
		case !ok:
			return body.Kind
		case known == nameQuery:
			a.query = s
		default:
			a.operation = s
		}
		return body.None
	})
	if fault != body.None {
		return asked{}, refused(fault, "The body is not one JSON object with query, operationName, variables and "+
			"extensions, each once.")
	}
	return a, a.complete(extensions)
}

// complete checks what stands beside the document.
func (a *asked) complete(extensions []byte) error {
	if v := bytes.TrimLeft(a.variables, " \t\r\n"); len(v) > 0 && v[0] != '{' {
		if string(bytes.TrimRight(v, " \t\r\n")) != "null" {
			return refused(body.Kind, "The variables are no object.")
		}
		a.variables = nil
	}
	extensions = bytes.Trim(extensions, " \t\r\n")
	if len(extensions) == 0 || string(extensions) == "null" {
		return nil
	}
	const persisted, hash = "persistedQuery", "sha256Hash"
	of, err := member(extensions, persisted)
	if err != nil || of == nil || of[0] == 'n' {
		return err
	}
	value, err := member(of, hash)
	if err != nil || a.query == "" {
		return err
	}
	said, _ := body.Unquote(value)
	if sum := sha256.Sum256([]byte(a.query)); !strings.EqualFold(said, hex.EncodeToString(sum[:])) {
		// A server that goes by the hash would execute another document than this.
		return refused(body.Alike, "The hash in extensions is not that of the document.")
	}
	return nil
}

// member is the value of one of an object; nil if it is not there.
func member(object []byte, name string) (value []byte, err error) {
	fault := body.Members(object, func(other, v []byte) body.Fault {
		switch {
		case string(other) == name && value == nil:
			value = v
		case string(other) == name:
			return body.Twice
		case strings.EqualFold(string(other), name):
			return body.Alike
		}
		return body.None
	})
	if fault != body.None {
		return nil, refused(fault, "The extensions are not one JSON object with %s once.", name)
	}
	return value, nil
}
