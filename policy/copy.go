package policy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/live"
)

// savedDocument is the last good copy: a format of our own, for the same
// version of this package. People's files are policy/file's.
type savedDocument struct {
	savedHead
	Rules []savedRule `json:"rules"` // the last field: there may be a million
}

// savedHead is all of a document but its rules, which may be many.
type savedHead struct {
	Format   int               `json:"format"`
	Count    int               `json:"count,omitempty"` // of rules; older copies have none
	Source   string            `json:"source"`
	Number   int64             `json:"number,omitempty"`
	Projects map[string]string `json:"projects"`
}

const savedFormat = 1

// savedRule has the fields of Rule, so that one converts to the other.
type savedRule struct {
	Endpoint    string        `json:"e"`
	Project     string        `json:"p,omitempty"`
	Tier        string        `json:"t,omitempty"`
	Limit       int64         `json:"l"`
	Per         time.Duration `json:"per,omitempty"`
	Burst       int64         `json:"b,omitempty"`
	Subject     Subject       `json:"s,omitempty"`
	Only        string        `json:"o,omitempty"`
	Algorithm   Algorithm     `json:"a,omitempty"`
	Mode        Mode          `json:"m,omitempty"`
	Scope       Scope         `json:"sc,omitempty"`
	OnStoreLoss StoreLoss     `json:"loss,omitempty"`
	CountWhen   Answers       `json:"cw,omitempty"`
	Penalty     Penalty       `json:"pen,omitempty"`
	Refusal     Refusal       `json:"ref,omitempty"`
	Priority    Priority      `json:"pri,omitempty"`
	Expires     time.Time     `json:"x,omitzero"`
	Name        string        `json:"n,omitempty"`

	EnforcePercent int64 `json:"pct,omitempty"`
}

// encodeCopy writes the last good copy.
func encodeCopy(d Document, w io.Writer) error {
	return encodeAround(d, len(d.Rules), w, func() error {
		var rules rulesEncoder
		return rules.encode(d.Rules, w)
	})
}

// encodeAround writes the last good copy but for its rules, which rules writes.
func encodeAround(d Document, count int, w io.Writer, rules func() error) error {
	head, err := json.Marshal(savedHead{
		Format: savedFormat, Count: count, Source: d.Source, Number: d.Number, Projects: d.Projects,
	})
	if err != nil {
		return err
	}
	if _, err := w.Write(append(head[:len(head)-1], `,"rules":[`...)); err != nil {
		return err
	}
	if err := rules(); err != nil {
		return err
	}
	_, err = w.Write([]byte("]}"))
	return err
}

// encodeCopy writes the last good copy.
func (d *drafted) encodeCopy(w io.Writer) error {
	if d.spool != nil {
		return d.spool.encodeCopy(d.Document, w)
	}
	return encodeCopy(d.Document, w)
}

// rulesEncoder writes rules as they stand in the last good copy, that is, as
// encoding/json would.
type rulesEncoder struct {
	count int
	out   []byte // is used again and again
}

// encode writes the rules that come next.
func (e *rulesEncoder) encode(rules []Rule, w io.Writer) error {
	e.out = e.out[:0]
	for i := range rules {
		if e.count++; e.count > 1 {
			e.out = append(e.out, ',')
		}
		if err := e.rule(&rules[i]); err != nil {
			return err
		}
		if len(e.out) > encodedAtOnce {
			if _, err := w.Write(e.out); err != nil {
				return err
			}
			e.out = e.out[:0]
		}
	}
	_, err := w.Write(e.out)
	return err
}

// encodedAtOnce is how many bytes of rules are written at a time.
const encodedAtOnce = 32 << 10

// rule appends a rule. Those that have no more than almost all have are not left
// to encoding/json, which takes ten times as long and leaves garbage.
func (e *rulesEncoder) rule(r *Rule) error {
	if !r.isPlain() || !isPlainJSON(r.Endpoint) || !isPlainJSON(r.Project) {
		text, err := json.Marshal((*savedRule)(r))
		e.out = append(e.out, text...)
		return err
	}
	e.out = append(append(append(e.out, `{"e":"`...), r.Endpoint...), '"')
	if r.Project != "" {
		e.out = append(append(append(e.out, `,"p":"`...), r.Project...), '"')
	}
	e.out = strconv.AppendInt(append(e.out, `,"l":`...), r.Limit, 10)
	if r.Per != 0 {
		e.out = strconv.AppendInt(append(e.out, `,"per":`...), int64(r.Per), 10)
	}
	e.out = append(e.out, '}')
	return nil
}

// isPlainJSON reports whether a text stands in JSON as it is.
func isPlainJSON(s string) bool {
	for i := range len(s) {
		if !plainJSON[s[i]] {
			return false
		}
	}
	return true
}

var plainJSON = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return plain
}()

// isPlain reports whether a rule has no more than an endpoint, a project and a limit.
func (r *Rule) isPlain() bool {
	return r.Tier == "" && r.Only == "" && r.Name == "" && r.CountWhen == "" && r.Penalty == "" &&
		r.Refusal == "" && r.Priority == "" && r.Burst == 0 && r.EnforcePercent == 0 && r.Expires.IsZero() &&
		r.Subject == 0 && r.Algorithm == 0 && r.Mode == 0 && r.Scope == 0 && r.OnStoreLoss == 0
}

// spool holds the rules of a document as they stand in the last good copy, in a
// file: in memory they would take more than what is in force. It is for one
// goroutine at a time. A nil spool holds nothing.
type spool struct {
	copy string   // the file of the last good copy, which this one is beside
	file *os.File // nil while it holds none
	w    *bufio.Writer

	rules rulesEncoder
	err   error // the first
}

// begin makes it hold no rules so far.
func (s *spool) begin() {
	if s == nil {
		return
	}
	s.drop()
	// Readable by the owner alone, as the copy is.
	s.file, s.err = os.CreateTemp(filepath.Dir(s.copy), "."+filepath.Base(s.copy)+".*")
	if s.err == nil {
		// So that it is gone with the process. Where an open file has to stay, drop removes it.
		_ = os.Remove(s.file.Name())
		s.w = bufio.NewWriterSize(s.file, 2*encodedAtOnce)
	}
}

// drop gives back what it takes on the disk: a file that nobody sees, as large as the copy.
func (s *spool) drop() {
	if s == nil {
		return
	}
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
	*s = spool{copy: s.copy}
}

// add takes the rules that come next.
func (s *spool) add(rules []Rule) {
	if s != nil && s.err == nil {
		s.err = s.rules.encode(rules, s.w)
	}
}

// encodeCopy writes the last good copy of the document whose rules it holds, and
// holds none any more.
func (s *spool) encodeCopy(d Document, w io.Writer) error {
	defer s.drop()
	if s.err == nil {
		s.err = s.w.Flush()
	}
	if s.err == nil {
		_, s.err = s.file.Seek(0, io.SeekStart)
	}
	if s.err != nil {
		return s.err
	}
	return encodeAround(d, s.rules.count, w, func() error { _, err := io.Copy(w, s.file); return err })
}

// LastGood reads the last good copy of a Cache.
func LastGood(path string) (Document, error) {
	return live.ReadCopy(path, func(r io.ReadSeeker) (Document, error) {
		doc, _, err := decodeCopy(r, nil)
		return doc, err
	})
}

// decodeCopy reads the last good copy, which has so many rules. It tells the draft,
// which may be nil, of them as they come, and the Document has those that it left.
func decodeCopy(r io.Reader, draft *Draft) (doc Document, rules int, err error) {
	from, head := json.NewDecoder(r), savedHead{}
	fields := map[string]any{"format": &head.Format, "count": &head.Count, "source": &head.Source,
		"number": &head.Number, "projects": &head.Projects}
	if _, err := from.Token(); err != nil {
		return Document{}, 0, err
	}
	for from.More() {
		name, err := from.Token()
		if err != nil {
			return Document{}, 0, err
		}
		if field, ok := fields[fmt.Sprint(name)]; ok {
			if err := from.Decode(field); err != nil {
				return Document{}, 0, err
			}
			continue
		}
		if name != "rules" || head.Format != savedFormat {
			break
		}
		doc = Document{Source: head.Source, Number: head.Number, Projects: head.Projects}
		doc.Rules, rules, err = decodeRules(from, draft.Begin(doc, max(0, min(head.Count, mostCounted))), draft)
		return doc, rules, err
	}
	return Document{}, 0, fmt.Errorf("format is %d, want %d, with the rules at the end", head.Format, savedFormat)
}

// decodeRules reads the rules of a copy after others.
func decodeRules(from *json.Decoder, left []Rule, draft *Draft) (_ []Rule, n int, err error) {
	if _, err := from.Token(); err != nil {
		return nil, 0, err
	}
	for from.More() {
		var saved savedRule
		if err := from.Decode(&saved); err != nil {
			return nil, 0, err
		}
		left = append(left, Rule(saved))
		if n++; n%decodedAtOnce == 0 {
			left = draft.Read(left)
		}
	}
	_, err = from.Token()
	return left, n, err
}

// mostCounted bounds the room that is made for rules before they are read.
const mostCounted = 1 << 22

// decodedAtOnce is how many rules are read before they are checked.
const decodedAtOnce = 1 << 10
