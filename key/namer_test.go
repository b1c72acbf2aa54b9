package key_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
)

var secret = []byte("sixteen bytes...")

func namer(t testing.TB, secret []byte) *key.Namer {
	t.Helper()
	n, err := key.NewNamer(secret)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNameDependsOnEveryPart(t *testing.T) {
	n := namer(t, secret)
	base := n.Name(1, "GET /a", []byte("subject"))
	if got := namer(t, secret).Name(1, "GET /a", []byte("subject")); got != base {
		t.Fatalf("another process names it %v, want %v", got, base)
	}
	for part, other := range map[string]key.Key{
		"rule":     n.Name(2, "GET /a", []byte("subject")),
		"endpoint": n.Name(1, "GET /b", []byte("subject")),
		"subject":  n.Name(1, "GET /a", []byte("subjecT")),
		"border":   n.Name(1, "GET /as", []byte("ubject")),
		"secret":   namer(t, append([]byte("x"), secret...)).Name(1, "GET /a", []byte("subject")),
	} {
		if other == base {
			t.Errorf("a different %s gives the same name %v", part, base)
		}
	}
}

// Known answers, of another program, so that no new version loses all buckets.
func TestNamesStayTheSame(t *testing.T) {
	n := namer(t, secret)
	if got, want := n.Name(0x0102030405060708, "GET /v1/items/{id}", []byte("someone")),
		(key.Key{Hi: 0x9f9e48fb978efb3d, Lo: 0x76f0bdd9413bdb1c}); got != want {
		t.Errorf("Name = {%#x, %#x}, want %v", got.Hi, got.Lo, want)
	}
	if got := n.Tag([]byte("someone")); got != 0x429f {
		t.Errorf("Tag = %#x, want 0x429f", got)
	}
}

// Names that are remembered are those that would be made anew, also where many take each other's places and
// several ask at once.
func TestRememberedNames(t *testing.T) {
	n, fresh := namer(t, secret), namer(t, secret)
	const subjects = 20_000 // more than are remembered
	want := make([]key.Key, subjects)
	subject := func(i int) []byte { return []byte(strconv.Itoa(i)) }
	for i := range want {
		want[i] = fresh.Name(uint64(i%3), "GET /a", subject(i))
	}
	var tags [100]uint16
	for i := range tags {
		tags[i] = fresh.Tag(subject(i))
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range race.Fewer(100_000) {
				i := r.IntN(subjects)
				if r.IntN(4) > 0 {
					i %= 500
				}
				if got := n.Name(uint64(i%3), "GET /a", subject(i)); got != want[i] {
					t.Errorf("subject %d is named %v, want %v", i, got, want[i])
					return
				}
				if got, want := n.Tag(subject(i%100)), tags[i%100]; got != want {
					t.Errorf("the tag of subject %d is %d, want %d", i%100, got, want)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestShortSecretIsRefused(t *testing.T) {
	if _, err := key.NewNamer(secret[:15]); err == nil || err.Error() != "the secret has 15 bytes, want at least 16" {
		t.Errorf("NewNamer of 15 bytes: %v", err)
	}
}

func BenchmarkName(b *testing.B) {
	n, subject := namer(b, secret), []byte("\x01\x04acme\x08key-0001")
	b.ReportAllocs()
	for b.Loop() {
		n.Name(1, "GET /v1/items/{id}", subject)
	}
}
