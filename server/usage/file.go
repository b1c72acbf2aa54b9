package usage

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"time"

	"github.com/headgate-io/headgate/identity"
)

// A file of Days is lines of JSON: a header, a row for each caller and day, and the SHA-256 of all before. It has no
// secret; who callers are is in it.
//
//	{"headgate_usage":1,"since":"2026-11-20T12:00:00Z","written":"2026-11-25T12:00:00Z","ended":true}
//	{"day":"2026-11-25","kind":"api_key","id":"k_1","project":"acme","admitted":3,"denied":2,"tokens":3}
//	{"sha256":"5257a8…"}
type header struct {
	Version int       `json:"headgate_usage"`
	Since   time.Time `json:"since"`
	Written time.Time `json:"written"`
	Ended   bool      `json:"ended"` // nothing was counted after it
	Gaps    []Gap     `json:"gaps,omitempty"`
}

type line struct {
	Day      string `json:"day,omitempty"`
	Kind     string `json:"kind,omitempty"`
	ID       string `json:"id,omitempty"`
	Project  string `json:"project,omitempty"`
	Admitted uint64 `json:"admitted"`
	Denied   uint64 `json:"denied"`
	Tokens   uint64 `json:"tokens"`

	Sum string `json:"sha256,omitempty"` // of the last line
}

const (
	version  = 1
	mostLine = 16 << 10 // bytes
	mostGaps = 64       // the oldest of more are one
)

// Save writes all that was counted; ended says that nothing will be after it.
func (d *Days) Save(w io.Writer, ended bool) error {
	sum := sha256.New()
	out := json.NewEncoder(io.MultiWriter(w, sum))
	out.SetEscapeHTML(false)
	h := header{Version: version, Since: d.since, Written: d.now(), Ended: ended, Gaps: d.gaps}
	if err := out.Encode(h); err != nil {
		return err
	}
	for _, r := range d.Rows(time.Time{}, time.Unix(math.MaxInt32, 0)) {
		if err := out.Encode(line{Day: r.Day.Format(time.DateOnly), Kind: r.Kind, ID: r.ID, Project: r.Project,
			Admitted: r.Admitted, Denied: r.Denied, Tokens: r.Tokens}); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, lastLine(sum))
	return err
}

func lastLine(sum hash.Hash) string {
	return `{"sha256":"` + hex.EncodeToString(sum.Sum(nil)) + "\"}\n"
}

func (d *Days) now() time.Time { return time.Unix(0, d.clock.Wall(d.clock.Now())).UTC() }

// Load has d, which is new, go on from what Save wrote. If it cannot, d is as it was.
func (d *Days) Load(r io.Reader) error {
	rows, h, err := read(r)
	if err != nil {
		return err
	}
	for _, row := range rows {
		d.put(row)
	}
	d.since, d.gaps = h.Since, h.Gaps
	if now := d.now(); !h.Ended && now.After(h.Written) {
		d.gaps = append(d.gaps, Gap{h.Written, now})
	}
	oldest := time.Unix(0, (d.today()-KeptDays+1)*aDay)
	for len(d.gaps) > 0 && d.gaps[0].To.Before(oldest) {
		d.gaps = d.gaps[1:]
	}
	if more := len(d.gaps) - mostGaps; more > 0 {
		d.gaps[more].From = d.gaps[0].From
		d.gaps = d.gaps[more:]
	}
	return nil
}

// put puts a row where its caller is counted on.
func (d *Days) put(r Row) {
	day := r.Day.Unix() * int64(time.Second) / aDay
	if day <= d.today()-KeptDays {
		return
	}
	if r.Kind == Others {
		s := &d.shards[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		r.Hash, r.ID, r.Project = "", "", ""
		s.others[day] = &r // Rows adds up those of all shards
		return
	}
	who := identity.Principal{Kind: kindOf(r.Kind), ID: r.ID, Project: r.Project}
	k := callerDay{day, d.keys.Key(0, 0, who.AppendSubject(nil))}
	s := &d.shards[k.caller.Hi%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.rows[k]
	if to == nil {
		to = d.enterLocked(s, k, &who)
	}
	to.Admitted, to.Denied, to.Tokens = to.Admitted+r.Admitted, to.Denied+r.Denied, to.Tokens+r.Tokens
}

func kindOf(text string) identity.Kind {
	for kind := identity.Address; kind < identity.Kinds; kind++ {
		if kind.String() == text {
			return kind
		}
	}
	return identity.Address
}

// read reads a file as a whole, so that nothing of a damaged one is used.
func read(r io.Reader) (rows []Row, h header, err error) {
	sum := sha256.New()
	in := bufio.NewReaderSize(r, mostLine)
	text, err := in.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	switch {
	case err != nil || h.Version == 0 || h.Since.IsZero():
		return nil, h, errors.New("it is no file of usage")
	case h.Version != version:
		return nil, h, fmt.Errorf("it is of version %d, want %d, of an older Headgate", h.Version, version)
	}
	sum.Write(text)
	for {
		row, last, err := readLine(in, sum)
		switch {
		case err != nil:
			return nil, h, fmt.Errorf("it is damaged: row %d %w", len(rows)+1, err)
		case last:
			return rows, h, nil
		case len(rows) > MaxRows+KeptDays:
			return nil, h, fmt.Errorf("it has more than %d rows", MaxRows)
		}
		rows = append(rows, row)
	}
}

func atEnd(in *bufio.Reader) bool { _, err := in.Peek(1); return err == io.EOF }

func readLine(in *bufio.Reader, sum hash.Hash) (r Row, last bool, err error) {
	text, err := in.ReadSlice('\n')
	if err != nil {
		return r, false, errors.New("is cut off or too long")
	}
	var l line
	if json.Unmarshal(text, &l) != nil {
		return r, false, errors.New("is no JSON")
	}
	if l.Sum != "" {
		if string(text) != lastLine(sum) || !atEnd(in) {
			return r, false, errors.New("has another checksum than what is before it")
		}
		return r, true, nil
	}
	sum.Write(text)
	r = Row{Kind: l.Kind, ID: l.ID, Project: l.Project, Admitted: l.Admitted, Denied: l.Denied, Tokens: l.Tokens}
	if r.Day, err = ParseDay(l.Day); err != nil {
		return r, false, fmt.Errorf("has a day that %w", err)
	}
	if kindOf(r.Kind) == identity.Address && r.Kind != Others {
		return r, false,
			fmt.Errorf("has the kind %.40q, want api_key, token, certificate, user, signed_agent or others", r.Kind)
	}
	return r, false, nil
}
