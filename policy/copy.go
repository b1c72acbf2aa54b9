package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/live"
)

// savedDocument is the last good copy: a format of our own, for the same
// version of this package. People's files are policy/file's.
type savedDocument struct {
	Format int         `json:"format"`
	Rules  []savedRule `json:"rules"`
	savedRest
}

// savedRest is what is known of a document when its rules are.
type savedRest struct {
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
	var rules rulesEncoder
	if err := rules.encode(d.Rules, w); err != nil {
		return err
	}
	return endCopy(d, w)
}

// encodeCopy writes the last good copy.
func (d *drafted) encodeCopy(w io.Writer) error {
	if d.spool != nil {
		return d.spool.encodeCopy(d.Document, w)
	}
	return encodeCopy(d.Document, w)
}

// beginCopy is how the last good copy begins, and endCopy writes what follows its rules.
var beginCopy = fmt.Sprintf(`{"format":%d,"rules":[`, savedFormat)

func endCopy(d Document, w io.Writer) error {
	rest, err := json.Marshal(savedRest{Source: d.Source, Number: d.Number, Projects: d.Projects})
	if err != nil {
		return err
	}
	rest[0] = ',' // for its brace
	_, err = w.Write(append([]byte("]"), rest...))
	return err
}

// rulesEncoder writes rules as they stand in the last good copy, that is, as
// encoding/json would.
type rulesEncoder struct {
	began bool
	out   []byte // is used again and again
}

// encode writes the rules that come next.
func (e *rulesEncoder) encode(rules []Rule, w io.Writer) error {
	e.out = e.out[:0]
	if !e.began {
		e.out, e.began = append(e.out, beginCopy...), true
	} else if len(rules) > 0 {
		e.out = append(e.out, ',')
	}
	for i := range rules {
		if i > 0 {
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
	if *r != (Rule{Endpoint: r.Endpoint, Project: r.Project, Limit: r.Limit, Per: r.Per}) ||
		!isPlainJSON(r.Endpoint) || !isPlainJSON(r.Project) {
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
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// spool holds the rules of a document as they stand in the last good copy, in a
// file without a name: in memory they would take more than what is in force. It is
// for one goroutine at a time.
type spool struct {
	copy string   // the file of the last good copy, which this one is beside
	file *os.File // nil while there is none
	w    *bufio.Writer

	rules rulesEncoder
	err   error // the first
}

// begin forgets what it holds. A nil spool holds nothing.
func (s *spool) begin() {
	if s == nil {
		return
	}
	s.rules.began, s.err = false, nil
	if s.file == nil {
		if s.file, s.err = unnamed(s.copy); s.err != nil {
			return
		}
		s.w = bufio.NewWriterSize(s.file, 2*encodedAtOnce)
	}
	s.w.Reset(s.file)
	_, err := s.file.Seek(0, io.SeekStart)
	s.err = errors.Join(s.file.Truncate(0), err)
}

// unnamed opens a file beside another one, which is gone with the process.
func unnamed(beside string) (*os.File, error) {
	// Readable by the owner alone, as the copy is.
	f, err := os.CreateTemp(filepath.Dir(beside), "."+filepath.Base(beside)+".*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
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
	if s.add(nil); s.err == nil { // there may be no rules
		s.err = s.w.Flush()
	}
	if s.err == nil {
		_, s.err = s.file.Seek(0, io.SeekStart)
	}
	if s.err == nil {
		_, s.err = io.Copy(w, s.file)
	}
	if s.err == nil {
		s.err = endCopy(d, w)
	}
	err := s.err
	s.begin()
	return err
}

// LastGood reads the last good copy of a Cache.
func LastGood(path string) (Document, error) { return live.ReadCopy(path, decodeCopy) }

func decodeCopy(data []byte) (Document, error) {
	var saved savedDocument
	if err := json.Unmarshal(data, &saved); err != nil {
		return Document{}, err
	}
	if saved.Format != savedFormat {
		return Document{}, fmt.Errorf("format is %d, want %d", saved.Format, savedFormat)
	}
	d := Document{
		Source:   saved.Source,
		Number:   saved.Number,
		Projects: saved.Projects,
		Rules:    make([]Rule, len(saved.Rules)),
	}
	for i, r := range saved.Rules {
		d.Rules[i] = Rule(r)
	}
	return d, nil
}
