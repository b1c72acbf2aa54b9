package identity_test

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/identity"
)

var (
	oldSecret   = bytes.Repeat([]byte("old "), 8)
	newSecret   = bytes.Repeat([]byte("new "), 8)
	otherSecret = bytes.Repeat([]byte("3rd "), 8)
)

// TestRotation follows a key through the rotation of the secret, with the
// digests in use remembered from before each step.
func TestRotation(t *testing.T) {
	digester := newDigesterOf(t, oldSecret)
	used, idle := newKey(t), newKey(t)
	ring := &identity.Keyring{}
	store := func(usedUnder []byte) {
		t.Helper()
		if err := ring.Replace([]identity.KeyRecord{
			{Digest: newDigesterOf(t, usedUnder).Digest(used), Key: identity.Key{ID: "used"}},
			{Digest: newDigesterOf(t, oldSecret).Digest(idle), Key: identity.Key{ID: "idle"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	var told []identity.Rotation
	who := newResolver(t, identity.Options{
		Keys:     ring,
		Digester: digester,
		Rotated:  func(r identity.Rotation) { told = append(told, r) },
	})
	check := func(when string, text string, want identity.Rejection, wantTold int) {
		t.Helper()
		for range 3 { // and from the memo
			told = nil
			p := who.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Api-Key": {text}}})
			if p.Rejected != want || len(told) != wantTold {
				t.Errorf("%s: %s, told of %d; want %s, %d", when, p, len(told), want, wantTold)
			}
		}
	}
	replace := func(current, previous []byte) {
		t.Helper()
		if err := digester.Replace(current, previous); err != nil {
			t.Fatal(err)
		}
	}
	store(oldSecret)
	check("before", used, identity.NotRejected, 0)
	check("before", newKey(t), identity.KeyUnknown, 0)

	replace(newSecret, oldSecret)
	check("in the overlap", used, identity.NotRejected, 1)
	old, current := newDigesterOf(t, oldSecret), newDigesterOf(t, newSecret)
	id, previous := digester.SecretIDs()
	if want := (identity.Rotation{Old: old.Digest(used), New: current.Digest(used), SecretID: id}); told[0] != want {
		t.Errorf("told of %v, want %v", told[0], want)
	}
	if wantOld, _ := old.SecretIDs(); previous != wantOld || id == previous || len(id) != 8 ||
		strings.Contains(string(newSecret), id) {
		t.Errorf("SecretIDs = %q, %q", id, previous)
	}
	check("in the overlap", newKey(t), identity.KeyUnknown, 0)
	check("in the overlap", "hg_nonsense", identity.KeyMalformed, 0)

	store(newSecret) // as who was told does
	check("moved", used, identity.NotRejected, 0)
	check("not moved", idle, identity.NotRejected, 1)

	replace(newSecret, nil)
	check("after", used, identity.NotRejected, 0)
	check("after", idle, identity.KeyUnknown, 0)

	// Straight to another secret: what was remembered under the old one does
	// not outlive it.
	replace(otherSecret, nil)
	check("under another secret", used, identity.KeyUnknown, 0)
}

// A key that another process moved while this one remembers its old digest is
// found by the new one.
func TestRememberedDigestIsNoLastWord(t *testing.T) {
	digester, ring, text := newDigesterOf(t, newSecret), &identity.Keyring{}, newKey(t)
	if err := digester.Replace(newSecret, oldSecret); err != nil {
		t.Fatal(err)
	}
	who := newResolver(t, identity.Options{Keys: ring, Digester: digester})
	for i, under := range [][]byte{newSecret, oldSecret, newSecret} {
		if err := ring.Replace([]identity.KeyRecord{{Digest: newDigesterOf(t, under).Digest(text),
			Key: identity.Key{ID: "k"}}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if p := who.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Api-Key": {text}}}); p.Kind !=
				identity.APIKey {
				t.Errorf("step %d: %s", i, p)
			}
		}
	}
	// And a key that is gone is unknown, remembered or not.
	if err := ring.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if p := who.Resolve(t.Context(), identity.Evidence{Header: http.Header{"X-Api-Key": {text}}}); p.Rejected !=
		identity.KeyUnknown {
		t.Errorf("a key that is gone: %s", p)
	}
}

func TestReplaceRefuses(t *testing.T) {
	d := newDigesterOf(t, oldSecret)
	before := d.Digest("text")
	for want, secrets := range map[string][2][]byte{
		"secret has 31 bytes, want 32 or more":                   {make([]byte, 31), nil},
		"previous secret has 0 bytes, want 32 or more":           {newSecret, {}},
		"previous secret is the secret itself, want another one": {newSecret, bytes.Clone(newSecret)},
		"previous secret has 31 bytes, want 32 or more":          {newSecret, make([]byte, 31)},
	} {
		if err := d.Replace(secrets[0], secrets[1]); err == nil || err.Error() != want {
			t.Errorf("Replace: %v, want %s", err, want)
		}
	}
	if d.Digest("text") != before {
		t.Error("a refused Replace changed the secret")
	}
	if d.PreviousDigest("text") != (identity.Digest{}) {
		t.Error("there is a previous digest without a previous secret")
	}
}

// Keys are recognised without a gap while the secret is rotated under load.
func TestRotationUnderLoad(t *testing.T) {
	digester, ring, text := newDigesterOf(t, oldSecret), &identity.Keyring{}, newKey(t)
	if err := ring.Replace([]identity.KeyRecord{{Digest: digester.Digest(text),
		Key: identity.Key{ID: "k"}}}); err != nil {
		t.Fatal(err)
	}
	moved := make(chan identity.Rotation, 1)
	who := newResolver(t, identity.Options{Keys: ring, Digester: digester, Rotated: func(r identity.Rotation) {
		select {
		case moved <- r:
		default:
		}
	}})
	done := make(chan struct{})
	var all sync.WaitGroup
	var requests [4]atomic.Int64
	for i := range requests {
		all.Go(func() {
			for ; ; requests[i].Add(1) {
				select {
				case <-done:
					return
				default:
				}
				if p := who.Resolve(context.Background(),
					identity.Evidence{Header: http.Header{"X-Api-Key": {text}}}); p.Kind != identity.APIKey {
					t.Errorf("during the rotation: %s", p)
					return
				}
			}
		})
	}
	if err := digester.Replace(newSecret, oldSecret); err != nil {
		t.Error(err)
	}
	// No request that began before is under way any more: it would look under
	// the old secret alone. Between two processes time takes care of that.
	for i := range requests {
		for before := requests[i].Load(); requests[i].Load() < before+2 && !t.Failed(); {
			runtime.Gosched()
		}
	}
	r := <-moved
	if err := ring.Replace([]identity.KeyRecord{{Digest: r.New, Key: identity.Key{ID: "k"}}}); err != nil {
		t.Error(err)
	}
	// Requests that began before this end with the two secrets they began with.
	if err := digester.Replace(newSecret, nil); err != nil {
		t.Error(err)
	}
	close(done)
	all.Wait()
}
