package database_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/record"
)

// edit is what an editor is about to do to the rules and tiers of Base: one of
// the fields below it.
type edit struct {
	Base     int64
	Set      []policy.Rule     `json:",omitempty"`
	Delete   string            `json:",omitempty"`
	Tiers    map[string]string `json:",omitempty"`
	Rollback int64             `json:",omitempty"`
}

// said is a line that an editor prints: before an edit what it will be, and the
// version that it was when it is acknowledged.
type said struct {
	Begin *edit `json:",omitempty"`
	Done  int64 `json:",omitempty"`
}

// editForever makes one random edit after the other, each of what it has just
// read. It is its task as a child; childSeed is the number of its run, and in
// every value that it writes.
func editForever(dsn string) error {
	run, err := strconv.Atoi(os.Getenv(childSeed))
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := database.New(ctx, database.Options{DSN: dsn, NoNotify: os.Getenv(childQuiet) != ""})
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(run), 5))
	out := json.NewEncoder(os.Stdout)
	who := editor(run)
	for n := 0; ; n++ {
		doc, err := s.Export(ctx)
		if err != nil {
			return err
		}
		if doc.Number == 0 { // somebody's SQL is not numbered yet
			if err := s.Number(ctx); err != nil {
				return err
			}
			continue
		}
		e := draw(random, doc, run*100_000+n)
		if err := out.Encode(said{Begin: &e}); err != nil {
			return err
		}
		v, err := e.make(ctx, s, who)
		var conflict *record.Conflict
		switch {
		case errors.As(err, &conflict):
		case err != nil:
			return err
		case v.ID != e.Base: // else it changed nothing
			if err := out.Encode(said{Done: v.ID}); err != nil {
				return err
			}
		}
	}
}

func editor(run int) record.Author {
	return record.Author{Actor: fmt.Sprint("editor ", run), Why: "because"}
}

// draw makes a random edit. A rule's new burst is its old limit, so that an
// edit of anything but its base is found out.
func draw(random *rand.Rand, doc policy.Document, unique int) edit {
	e := edit{Base: doc.Number}
	set := func(i int) {
		r := policy.Rule{Endpoint: fmt.Sprint("GET /e", i), Limit: int64(unique), Per: 1e9}
		for _, old := range doc.Rules {
			if old.Endpoint == r.Endpoint {
				r.Burst = old.Limit
			}
		}
		e.Set = append(e.Set, r)
	}
	i := random.IntN(8)
	switch kind := random.IntN(100); {
	case kind < 15:
		set(i)
		set(8 + random.IntN(4))
	case kind < 25 && len(doc.Rules) > 4:
		e.Delete = doc.Rules[random.IntN(len(doc.Rules))].Endpoint
	case kind < 35:
		e.Tiers = map[string]string{fmt.Sprint("p", i): fmt.Sprint("t", unique)}
	case kind < 40 && doc.Number > 20:
		e.Rollback = 10 + random.Int64N(doc.Number-10)
	default:
		set(i)
	}
	return e
}

func (e edit) make(ctx context.Context, s *database.Store, who record.Author) (record.Version, error) {
	if e.Rollback > 0 {
		return s.Rollback(ctx, who, e.Rollback, e.Base)
	}
	edit := record.Edit{Base: e.Base, Set: e.Set, Tiers: e.Tiers}
	if e.Delete != "" {
		edit.Delete = []record.RuleKey{{Endpoint: e.Delete}}
	}
	return s.Apply(ctx, who, edit)
}

// twin is what an edit comes to, said in another way.
func (e edit) twin(states []standing) standing {
	if e.Rollback > 0 {
		return states[e.Rollback]
	}
	after := states[e.Base].clone()
	for _, r := range e.Set {
		after.rules[record.KeyOf(r)] = r
	}
	delete(after.rules, record.RuleKey{Endpoint: e.Delete})
	maps.Copy(after.tiers, e.Tiers)
	return after
}

// life is what one run of an editor has said until it was killed.
type life struct {
	run   int
	cmd   *exec.Cmd
	until int // lines, then it is killed
	lines int
	begun *edit // not acknowledged
}

// Two editors of the same rules are killed again and again, in the middle of
// whatever they do, while somebody changes them by SQL too. Nothing that was
// acknowledged is lost, nothing was made from rules that were not there any
// more, every version is known, and each can be brought up again.
func TestKilledEditorsLoseNothing(t *testing.T) { everywhere(t, testKilledEditorsLoseNothing) }

func testKilledEditorsLoseNothing(t *testing.T, d someDatabase) {
	edits := race.Fewer(300) // of each kind of database, so more than 1,000
	s, db := d.open(t), d.shell(t)
	run(t, db, "INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /e0', 1)")
	must(t, s.Number(t.Context()))

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	acknowledged := map[int64]edit{}
	interrupted := map[string]edit{} // by the editor
	typed := 0
	lines := make(chan editorLine)
	runs := 0
	begin := func() *life {
		runs++
		l := &life{run: runs, until: 10 + random.IntN(60)}
		l.start(t, d, lines)
		return l
	}
	for alive := map[*life]bool{begin(): true, begin(): true}; len(alive) > 0; {
		line := <-lines
		l := line.from
		if line.err != nil {
			if err := l.cmd.Wait(); err == nil || err.Error() != "signal: killed" {
				t.Fatalf("editor %d ended with %v after %q, want it killed", l.run, err, line.text)
			}
			if l.begun != nil {
				interrupted[editor(l.run).Actor] = *l.begun
			}
			if delete(alive, l); len(acknowledged) < edits {
				alive[begin()] = true
			}
			continue
		}
		var told said
		if err := json.Unmarshal([]byte(line.text), &told); err != nil {
			t.Fatalf("editor %d says %q", l.run, line.text)
		}
		if told.Begin != nil {
			l.begun = told.Begin
		} else {
			acknowledged[told.Done] = *l.begun
			l.begun = nil
			if len(acknowledged)%50 == 0 {
				typed++
				typeSQL(t, db, fmt.Sprintf("INSERT INTO policies (endpoint, rps_limit) VALUES ('GET /sql%d', 1)",
					typed))
			}
		}
		if l.lines++; l.lines == l.until || len(acknowledged) >= edits && l.lines > l.until {
			must(t, l.cmd.Process.Kill())
		} else if len(acknowledged) >= edits && l.lines < l.until {
			l.until = l.lines + 1
		}
	}
	t.Logf("%d edits acknowledged of %d editors, %d interrupted, %d by SQL", len(acknowledged), runs,
		len(interrupted), typed)
	must(t, s.Check(t.Context()))
	checkEdits(t, s, acknowledged, interrupted, typed)
}

// typeSQL runs a statement as somebody would: again, if it met another writer,
// who locks in another order.
func typeSQL(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	for {
		done, err := db.ExecContext(t.Context(), statement)
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "deadlock") {
			continue
		}
		must(t, err)
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			t.Fatalf("%s: %d rows, %v, want 1", statement, n, err)
		}
		return
	}
}

type editorLine struct {
	from *life
	text string
	err  error
}

func (l *life) start(t *testing.T, d someDatabase, lines chan<- editorLine) {
	t.Helper()
	l.cmd = child(t, "edit", d.dsn, false)
	l.cmd.Env = append(l.cmd.Env, childSeed+"="+strconv.Itoa(l.run))
	if d.quiet {
		l.cmd.Env = append(l.cmd.Env, childQuiet+"=yes")
	}
	out, err := l.cmd.StdoutPipe()
	must(t, err)
	must(t, l.cmd.Start())
	go func() {
		r := bufio.NewReader(out)
		for {
			text, err := r.ReadString('\n')
			if err != nil {
				lines <- editorLine{l, text, io.EOF} // half a line was never said
				return
			}
			lines <- editorLine{from: l, text: strings.TrimSpace(text)}
		}
	}()
}

// checkEdits compares the history with what the editors said.
func checkEdits(t *testing.T, s *database.Store, acknowledged map[int64]edit, interrupted map[string]edit, typed int) {
	states := checkReproducible(t, s)
	history, err := s.History(t.Context(), 0, len(states))
	must(t, err)
	if len(history) != len(states)-1 {
		t.Fatalf("History has %d versions, want %d", len(history), len(states)-1)
	}
	bySQL := map[record.RuleKey]bool{}
	for _, v := range history {
		if v.Action == record.ActionSQL {
			for key := range states[v.ID].rules {
				if _, was := states[v.ID-1].rules[key]; !was && strings.HasPrefix(key.Endpoint, "GET /sql") {
					bySQL[key] = true
				}
			}
			continue
		}
		if v.Action == record.ActionStart {
			continue
		}
		e, ok := acknowledged[v.ID]
		if !ok { // made, and killed before it was said
			if e, ok = interrupted[v.Actor]; !ok {
				t.Errorf("version %d by %s is nobody's edit", v.ID, v.Actor)
				continue
			}
			delete(interrupted, v.Actor)
		}
		delete(acknowledged, v.ID)
		if e.Base != v.ID-1 || v.Of != e.Rollback || v.Why != "because" {
			t.Errorf("version %d (of %d, because of %q) is made from version %d: %+v", v.ID, v.Of, v.Why, e.Base, e)
		}
		if want := e.twin(states); !reflect.DeepEqual(states[v.ID], want) {
			t.Errorf("version %d = %+v, want %+v", v.ID, states[v.ID], want)
		}
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d edits were acknowledged and are in no version: %+v", len(acknowledged), acknowledged)
	}
	if len(bySQL) != typed {
		t.Errorf("%d changes by SQL are in the history, want %d", len(bySQL), typed)
	}
}
