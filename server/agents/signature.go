package agents

import (
	"crypto/ed25519"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/token"
)

// fields are those of the signatures of a request.
type fields struct {
	dictionaries [len(fieldNames)]*httpsfv.Dictionary // of agentField nil where it is the text of older drafts
	text         string                               // that
}

func parse(lines *[len(fieldNames)][]string) (*fields, bool) {
	f := &fields{}
	for i := range lines {
		if i == agentField && len(lines[i]) == 1 && strings.HasPrefix(strings.Trim(lines[i][0], " \t"), `"`) {
			f.text = lines[i][0]
			continue
		}
		var err error
		if f.dictionaries[i], err = httpsfv.UnmarshalDictionary(lines[i]); err != nil {
			return nil, false
		}
	}
	return f, true
}

// only reports whether no other signature than that with a label may be of Web Bot Auth.
func (f *fields) only(label string) bool {
	for _, other := range f.dictionaries[inputField].Names() {
		if s := (signature{fields: f, label: other}); other != label && s.isOurs() {
			return false
		}
	}
	return true
}

// member is one of a dictionary, with its text.
func (f *fields) member(field int, key string) (m httpsfv.Member, text string, ok bool) {
	if f.dictionaries[field] == nil {
		return nil, "", false
	}
	if m, ok = f.dictionaries[field].Get(key); !ok {
		return nil, "", false
	}
	text, err := httpsfv.Marshal(m)
	return m, text, err == nil
}

// signature is one of a request, as its fields have it.
type signature struct {
	request *identity.Signed
	fields  *fields
	label   string

	list  httpsfv.InnerList // its Signature-Input
	bytes []byte
	keyID string
	nonce string
	life
	agent  string   // the origin of its directory, "" while none is known
	covers []string // components of the request besides the fields
	parts  []string // lines of the base; those of ofOrigin without their value

	named Named
	set   *token.Set
}

// ofOrigin are the components whose value depends on how the API is known, each with whether it names the API.
var ofOrigin = map[string]bool{"@authority": true, "@target-uri": true, "@scheme": false}

// isOurs reports whether it is one of Web Bot Auth.
func (s *signature) isOurs() bool {
	member, _ := s.fields.dictionaries[inputField].Get(s.label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		return false
	}
	tag, _ := list.Params.Get("tag")
	s.list = list
	return tag == "web-bot-auth"
}

// read reads what is covered, and then the parameters. Whom it is of is known afterwards if it says so, whatever else
// is wrong.
func (s *signature) read() identity.Rejection {
	if len(s.list.Items) > maxComponents {
		return identity.SignatureMalformed
	}
	var wrong identity.Rejection
	bound := false
	signers := map[string]string{} // origins of directories, by the keys of their members
	seen := make([]string, 0, maxComponents)
	for _, item := range s.list.Items {
		id, err := httpsfv.Marshal(item)
		name, ok := item.Value.(string)
		if err != nil || !ok || name != strings.ToLower(name) || slices.Contains(seen, id) {
			return identity.SignatureMalformed
		}
		seen = append(seen, id)
		part, ok := s.component(item, name, signers)
		if !ok {
			wrong = identity.SignatureUnfit
		}
		bound = bound || ofOrigin[name]
		s.parts = append(s.parts, id+": "+part)
	}
	s.agent = signers[s.label]
	if len(signers) == 1 { // intermediaries may change the label (RFC 9421 section 7.2.5)
		for _, s.agent = range signers {
		}
	}
	if wrong == identity.NotRejected && (!bound || s.agent == "") {
		wrong = identity.SignatureUnfit
	}
	if !s.readParameters() {
		return identity.SignatureMalformed
	}
	if alg, given := s.list.Params.Get("alg"); given && alg != "ed25519" {
		return identity.SignatureUnfit
	}
	return wrong
}

// component is the value of a component with the end of its line, or nothing for one of ofOrigin. It reports false for
// one that is not understood or not there.
func (s *signature) component(item httpsfv.Item, name string, signers map[string]string) (value string, ok bool) {
	params := item.Params.Names()
	field := slices.IndexFunc(fieldNames[:], func(f string) bool { return strings.EqualFold(f, name) })
	switch {
	case len(params) == 1 && params[0] == "key" && field >= 0: // RFC 9421 section 2.1.2
		key, _ := item.Params.Get("key")
		label, _ := key.(string)
		member, value, ok := s.fields.member(field, label)
		if ok && field == agentField {
			signers[label], ok = directoryOf(member)
		}
		return value + "\n", ok
	case len(params) > 0: // they change what a component means
		return "", false
	case field == agentField:
		if s.fields.text == "" {
			return "", false // all members at once
		}
		who, err := httpsfv.UnmarshalItem([]string{s.fields.text})
		if err == nil {
			signers[s.label], ok = directoryOf(who)
		}
		return strings.Trim(s.fields.text, " \t") + "\n", ok
	}
	if _, depends := ofOrigin[name]; depends {
		if name == "@target-uri" {
			s.covers = append(s.covers, "@request-target") // what of it is not the origin's
		}
		return "", true
	}
	if value, ok = valueOf(s.request, name); ok {
		s.covers = append(s.covers, name)
	}
	return value + "\n", ok
}

// directoryOf is the origin of the directory that a member of Signature-Agent names.
func directoryOf(m httpsfv.Member) (origin string, ok bool) {
	who, ok := m.(httpsfv.Item)
	if !ok {
		return "", false
	}
	if kind, given := who.Params.Get("type"); given && kind != httpsfv.Token("directory") {
		return "", false
	}
	url, ok := who.Value.(string)
	if !ok {
		return "", false
	}
	at, err := token.Origin(url)
	return at, err == nil
}

// readParameters reports whether the parameters and the signature have the form that they have to have.
func (s *signature) readParameters() bool {
	p := s.list.Params
	created, ok1 := seconds(p, "created")
	expires, ok2 := seconds(p, "expires")
	key, ok3 := text(p, "keyid")
	nonce, ok4 := text(p, "nonce")
	if _, given := p.Get("nonce"); !given {
		ok4 = true
	}
	if member, ok := s.fields.dictionaries[signatureField].Get(s.label); ok {
		if item, ok := member.(httpsfv.Item); ok {
			s.bytes, _ = item.Value.([]byte)
		}
	}
	s.keyID, s.nonce, s.life = key, nonce, life{created, expires}
	return ok1 && ok2 && ok3 && ok4 && len(s.bytes) == ed25519.SignatureSize && created.Before(expires)
}

// base is what was signed (RFC 9421 section 2.5), if the API is known at this origin.
func (s *signature) base(at origin) []byte {
	b := make([]byte, 0, 1<<10)
	for _, part := range s.parts {
		b = append(b, part...)
		switch part {
		case `"@authority": `:
			b = append(append(b, at.authority...), '\n')
		case `"@scheme": `:
			b = append(append(b, at.scheme...), '\n')
		case `"@target-uri": `:
			b = append(append(append(b, at.scheme...), "://"...), at.authority...)
			b = append(append(b, s.request.Target...), '\n')
		}
	}
	params, err := httpsfv.Marshal(s.list)
	if err != nil {
		return nil
	}
	return append(append(b, `"@signature-params": `...), params...)
}

// valueOf is the value of a component (RFC 9421 sections 2.1 and 2.2) that does not depend on the origin.
func valueOf(r *identity.Signed, name string) (string, bool) {
	path, query, _ := strings.Cut(r.Target, "?")
	switch name {
	case "@method":
		return r.Method, true
	case "@request-target":
		return r.Target, true
	case "@path":
		return path, true
	case "@query":
		return "?" + query, true
	}
	if strings.HasPrefix(name, "@") {
		return "", false
	}
	lines := slices.Clone(r.Header.Values(http.CanonicalHeaderKey(name)))
	for i := range lines {
		lines[i] = strings.Trim(lines[i], " \t")
	}
	return strings.Join(lines, ", "), len(lines) > 0
}

func seconds(p *httpsfv.Params, name string) (time.Time, bool) {
	v, _ := p.Get(name)
	n, ok := v.(int64)
	return time.Unix(n, 0), ok && n >= 0
}

// text is that of a parameter, of printable ASCII.
func text(p *httpsfv.Params, name string) (string, bool) {
	v, _ := p.Get(name)
	s, ok := v.(string)
	return s, ok && s != "" && len(s) <= maxText
}
