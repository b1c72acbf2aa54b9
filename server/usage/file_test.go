package usage_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/usage"
)

func newDays(now *time.Time) *usage.Days {
	return usage.NewDays(func(who *identity.Principal) string {
		return fmt.Sprintf("hash of %s %q of %q", who.Kind, who.ID, who.Project)
	}, func() time.Time { return *now })
}

func rowsOf(d *usage.Days, now time.Time) (text string) {
	for _, r := range d.Rows(time.Time{}, now.Add(48*time.Hour)) {
		text += fmt.Sprintf("%s %s %q %q %q: %d, %d, %d\n", r.Day.Format(time.DateOnly), r.Kind, r.ID,
			r.Project, r.Hash,
			r.Admitted, r.Denied, r.Tokens)
	}
	return text
}

var kinds = []identity.Kind{identity.APIKey, identity.Token, identity.Certificate, identity.LoggedIn}

// Several processes, one after the other with a file between them, count what one counts that never ends; whatever
// callers are called.
func TestDaysGoOn(t *testing.T) {
	names := []string{"a", "b", "=1+1", "\u202e<script>", "with \"quotes\"\n", "\xff\xfe", strings.Repeat("é", 300),
		strings.Repeat("é", 300) + "x", strings.Repeat("\xff", 4000)}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
		one, several := newDays(&now), newDays(&now)
		for range 40 {
			for range random.IntN(30) {
				d := &headgate.Decision{
					Principal: identity.Principal{
						Kind: kinds[random.IntN(4)], ID: names[random.IntN(len(names))], Project: names[random.IntN(3)],
					},
					Allowed: random.IntN(3) > 0,
					Cost:    int64(random.IntN(5)),
				}
				one.Observe(nil, d)
				several.Observe(nil, d)
			}
			now = now.Add(time.Duration(random.IntN(36)) * time.Hour)
			if random.IntN(3) > 0 {
				continue
			}
			var file bytes.Buffer
			if err := several.Save(&file, true); err != nil {
				t.Fatal(err)
			}
			next := newDays(&now)
			if err := next.Load(&file); err != nil {
				t.Fatal(err)
			}
			several = next
			if got, want := rowsOf(several, now), rowsOf(one, now); got != want {
				t.Fatalf("seed %d: after a restart\n%s\nwithout\n%s", seed, got, want)
			}
			if !several.Since().Equal(one.Since()) || len(several.Gaps()) != 0 {
				t.Fatalf("counted since %v with the gaps %v, want since %v", several.Since(),
					several.Gaps(), one.Since())
			}
		}
	}
}

// What a killed process had not written is a gap, as long as days of it are remembered, and there are never many.
func TestGaps(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	d := newDays(&now)
	restart := func() {
		t.Helper()
		var file bytes.Buffer
		if err := d.Save(&file, false); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		d = newDays(&now)
		if err := d.Load(&file); err != nil {
			t.Fatal(err)
		}
	}
	from := now
	restart()
	if got, want := fmt.Sprint(d.Gaps()), fmt.Sprint([]usage.Gap{{From: from, To: now}}); got != want {
		t.Errorf("the gaps are %s, want %s", got, want)
	}
	for range 200 {
		restart()
	}
	if gaps := d.Gaps(); len(gaps) != 64 || !gaps[0].From.Equal(from) || !gaps[63].To.Equal(now) {
		t.Errorf("%d gaps from %v to %v, want 64 from %v to %v", len(gaps), gaps[0].From,
			gaps[len(gaps)-1].To, from, now)
	}
	now = now.Add(40 * 24 * time.Hour)
	restart()
	if gaps := d.Gaps(); len(gaps) != 1 {
		t.Errorf("after 40 days there are %d gaps, want the last one", len(gaps))
	}
}

// No file is used in which a bit was changed, or that was cut off; nor one of something else.
func TestDamagedFilesAreRefused(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	d := newDays(&now)
	for i := range 5 {
		d.Observe(nil, &headgate.Decision{
			Principal: identity.Principal{Kind: identity.APIKey, ID: fmt.Sprint(i), Project: "acme"},
			Allowed:   true,
			Cost:      1,
		})
	}
	var file bytes.Buffer
	if err := d.Save(&file, true); err != nil {
		t.Fatal(err)
	}
	good := file.Bytes()
	refused := func(what string, text []byte) {
		t.Helper()
		d := newDays(&now)
		if err := d.Load(bytes.NewReader(text)); err == nil || rowsOf(d, now) != "" {
			t.Errorf("%s: %v, and %q is counted; want an error and nothing", what, err, rowsOf(d, now))
		}
	}
	for i := range good {
		changed := bytes.Clone(good)
		changed[i] ^= 1 << (i % 8)
		refused(fmt.Sprintf("bit %d of byte %d", i%8, i), changed)
		refused(fmt.Sprintf("cut off at %d", i), good[:i])
	}
	refused("appended", append(bytes.Clone(good), '\n'))
	refused("another version", bytes.Replace(good, []byte(`usage":1`), []byte(`usage":2`), 1))
	refused("a long line", append([]byte(`{"headgate_usage":1,"since":"`), bytes.Repeat([]byte("1"), 1<<20)...))
}

// FuzzLoad: whatever is in a file, nothing breaks, and what is taken can be written and read again.
func FuzzLoad(f *testing.F) {
	f.Add(`{"headgate_usage":1,"since":"2026-11-20T09:00:00Z","written":"2026-11-20T09:00:00Z","ended":true}` + "\n" +
		`{"day":"2026-11-20","kind":"api_key","id":"k_1","admitted":1,"denied":0,"tokens":1}` + "\n" +
		`{"sha256":"0"}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
		d := newDays(&now)
		if d.Load(strings.NewReader(usage.WithSum(text))) != nil {
			return
		}
		var file bytes.Buffer
		if err := d.Save(&file, true); err != nil {
			t.Fatal(err)
		}
		next := newDays(&now)
		if err := next.Load(&file); err != nil || rowsOf(next, now) != rowsOf(d, now) {
			t.Errorf("read again: %v,\n%s\nwant\n%s", err, rowsOf(next, now), rowsOf(d, now))
		}
	})
}
