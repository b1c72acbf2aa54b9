// Package state keeps what buckets hold in a file, over a restart of the process.
//
// The file is one line that says what it is, a line of JSON, the limits by which buckets are
// counted (policy.Set.Save), who is blocked for a time (penalty.Table.Save), the buckets
// (memory.Store.Save), and a checksum that only who has the secret can make. It is replaced as a
// whole: a process that is killed leaves the one before.
//
// Buckets have names under a seed that stands in the file, sealed by the secret, so that who reads
// the file alone cannot try which addresses are in it.
package state

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
)

// Options says where the file is. Path and Secrets are required.
type Options struct {
	Path string

	// Secrets are the secret that seals the file, and others that may have sealed it before. It is asked at the
	// start, and whenever the file is written.
	Secrets func() (current []byte, others [][]byte, err error)

	Clock Clock // default the machine's; for tests
}

// File is the file of one process, which has locked it. It is not safe for concurrent use.
type File struct {
	o    Options
	lock io.Closer
	seed [key.SeedSize]byte

	began       int64
	predecessor *policy.Predecessor
	penalties   int64 // where they begin
	buckets     int64 // where they begin; 0 if there are none
	size        int64
	written     time.Time
}

// Refused is why a file is not used though it is there. It was moved aside.
type Refused struct {
	Path, Aside string
	Err         error
}

func (r *Refused) Error() string {
	return fmt.Sprintf("state_file %s is not used: %v; it is kept as %s, and every local bucket begins full", r.Path,
		r.Err, r.Aside)
}

func (r *Refused) Unwrap() error { return r.Err }

const (
	magic   = "headgate state 1\n"
	magic2  = "headgate state 2\n" // with penalties, which version 1 would take for buckets
	kind    = "headgate state "
	sumSize = sha256.Size

	mostHeader = 1 << 12
)

// header is the line of JSON. Times are in Unix nanoseconds.
type header struct {
	Wall   int64  `json:"wall"`   // by the wall clock
	Boot   int64  `json:"boot"`   // since the machine started, with the time that it slept; 0 if that is not known
	Clock  int64  `json:"clock"`  // by the clock that buckets are counted by
	Secret string `json:"secret"` // which one sealed it
	Seed   string `json:"seed"`   // sealed
	Rules  int64  `json:"rules"`  // bytes of the limits

	Penalties int64 `json:"penalties,omitempty"` // bytes of those
}

// Open locks the file and reads all of it but the buckets. A file that cannot be used is moved aside, and the error is
// a *Refused beside a File that begins anew; any other error means that there can be none.
func Open(o Options) (*File, error) {
	if o.Clock == nil {
		o.Clock = machine
	}
	lock, err := Lock("state_file", o.Path)
	if err != nil {
		return nil, err
	}
	f := &File{o: o, lock: lock}
	current, others, err := o.Secrets()
	if err != nil {
		f.Close()
		return nil, err
	}
	err = f.read(append([][]byte{current}, others...))
	if err == nil {
		return f, nil
	}
	*f = File{o: o, lock: lock}
	if _, random := rand.Read(f.seed[:]); random != nil {
		f.Close()
		return nil, random
	}
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	refused := &Refused{Path: o.Path, Aside: o.Path + ".refused", Err: err}
	if err := os.Rename(o.Path, refused.Aside); err != nil {
		f.Close()
		return nil, fmt.Errorf("state_file %s is not used (%w), and cannot be moved aside: %w", o.Path,
			refused.Err, err)
	}
	return f, refused
}

// read checks the whole file and reads what comes before the buckets.
func (f *File) read(secrets [][]byte) error {
	file, err := os.Open(f.o.Path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	in := bufio.NewReader(file)
	first, err := in.ReadString('\n')
	switch {
	case first != magic && first != magic2 && len(first) > len(kind) && first[:len(kind)] == kind:
		return fmt.Errorf("it is of another version of Headgate (%q), want %q", first, magic2)
	case err != nil || first != magic && first != magic2:
		return errors.New("it is no file of buckets")
	}
	line, err := in.ReadSlice('\n')
	var h header
	if err != nil || len(line) > mostHeader || json.Unmarshal(line, &h) != nil {
		return errors.New("it is damaged: its second line cannot be read")
	}
	secret := f.sealedBy(secrets, h.Secret)
	if secret == nil {
		return errors.New(
			"it was written under another secret, want the secret_file of then, or its previous secret in it")
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	if err := f.verify(file, secret); err != nil {
		return err
	}
	if f.seed, err = unseal(secret, h.Seed); err != nil {
		return err
	}
	rules := int64(len(magic) + len(line))
	if left := f.size - rules - sumSize; h.Rules < 0 || h.Rules > left || h.Penalties < 0 ||
		h.Penalties > left-h.Rules {
		return errors.New("it is damaged: it says that its limits are longer than it is")
	}
	if f.predecessor, err = policy.ReadPredecessor(io.NewSectionReader(file, rules, h.Rules)); err != nil {
		return err
	}
	f.penalties, f.written = rules+h.Rules, time.Unix(0, h.Wall)
	f.buckets = f.penalties + h.Penalties
	f.began = h.Clock + elapsed(f.o.Clock, &h)
	return nil
}

func (f *File) sealedBy(secrets [][]byte, id string) []byte {
	for _, secret := range secrets {
		if len(secret) > 0 && hmac.Equal([]byte(name(secret)), []byte(id)) {
			return secret
		}
	}
	return nil
}

// verify compares the checksum.
func (f *File) verify(file io.ReaderAt, secret []byte) error {
	if f.size < sumSize {
		return errors.New("it is damaged: it is too short")
	}
	sum := checksum(secret)
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, f.size-sumSize)); err != nil {
		return err
	}
	var want [sumSize]byte
	if _, err := file.ReadAt(want[:], f.size-sumSize); err != nil {
		return err
	}
	if !hmac.Equal(sum.Sum(nil), want[:]) {
		return errors.New("it is damaged: its checksum does not match")
	}
	return nil
}

// Keys name the buckets.
func (f *File) Keys() *key.Hasher { return key.NewLasting(f.seed) }

// Predecessor is what is known of the limits of the process before; nil if there was none.
func (f *File) Predecessor() *policy.Predecessor { return f.predecessor }

// Began is the time at which this process goes on, by the clock that buckets are counted by; 0 if
// there was none before.
func (f *File) Began() int64 { return f.began }

// Written is when the process before wrote the file, by the wall clock of then; zero if there was none.
func (f *File) Written() time.Time { return f.written }

// Load fills empty tables with the buckets of the process before, and with whom it had blocked.
func (f *File) Load(store *memory.Store, blocked *penalty.Table, now int64) error {
	if f.buckets == 0 {
		return nil
	}
	file, err := os.Open(f.o.Path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	if err := blocked.Load(bufio.NewReader(io.NewSectionReader(file, f.penalties, f.buckets-f.penalties))); err != nil {
		return err
	}
	return store.Load(io.NewSectionReader(file, f.buckets, f.size-f.buckets-sumSize), now)
}

// Save replaces the file by what tables hold at now, under the rules in force. It reports its size in bytes.
func (f *File) Save(set *policy.Set, store *memory.Store, blocked *penalty.Table,
	wall, now int64) (size int64, err error) {
	secret, _, err := f.o.Secrets()
	if err != nil {
		return 0, err
	}
	var rules bytes.Buffer
	if err := set.Save(&rules, wall, now); err != nil {
		return 0, err
	}
	h := header{Clock: now, Secret: name(secret), Rules: int64(rules.Len())}
	first := magic
	if h.Penalties, err = blocked.Save(&rules, now); err != nil {
		return 0, err
	}
	if h.Penalties > 0 {
		first = magic2
	}
	h.Wall, h.Boot = f.o.Clock()
	if h.Seed, err = seal(secret, f.seed); err != nil {
		return 0, err
	}
	line, err := json.Marshal(h)
	if err != nil {
		return 0, err
	}
	return Replace(f.o.Path, func(file io.Writer) error {
		sum := checksum(secret)
		to := io.MultiWriter(file, sum)
		for _, part := range [][]byte{[]byte(first), append(line, '\n'), rules.Bytes()} {
			if _, err := to.Write(part); err != nil {
				return err
			}
		}
		if err := store.Save(to, now); err != nil {
			return err
		}
		_, err := file.Write(sum.Sum(nil))
		return err
	})
}

// Close lets another process have the file.
func (f *File) Close() { _ = f.lock.Close() }

// Lock makes this process the only one that has the file of a setting, until what is returned is closed.
func Lock(setting, path string) (io.Closer, error) { return lockFile(setting, path+".lock") }

// Replace writes a file of mode 0600 beside another and puts it in its place, and reports its size in bytes. If it
// fails, the other one is as it was.
func Replace(path string, write func(io.Writer) error) (size int64, err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = temp.Close()
			_ = os.Remove(temp.Name())
		}
	}()
	counted := &counter{to: temp}
	if err := write(counted); err != nil {
		return 0, err
	}
	if err := errors.Join(temp.Sync(), temp.Close()); err != nil {
		return 0, err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return 0, err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync() // some systems cannot
		_ = dir.Close()
	}
	return counted.size, nil
}

type counter struct {
	to   io.Writer
	size int64
}

func (c *counter) Write(text []byte) (int, error) {
	n, err := c.to.Write(text)
	c.size += int64(n)
	return n, err
}

// derive makes a key of a secret for one purpose.
func derive(secret []byte, purpose string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("headgate: state file, " + purpose))
	return h.Sum(nil)
}

// name tells one secret from another, and nothing of either.
func name(secret []byte) string { return hex.EncodeToString(derive(secret, "name")[:8]) }

func checksum(secret []byte) hash.Hash { return hmac.New(sha256.New, derive(secret, "checksum")) }

func sealer(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derive(secret, "seed"))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func seal(secret []byte, seed [key.SeedSize]byte) (string, error) {
	aead, err := sealer(secret)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(aead.Seal(nil, nil, seed[:], nil)), nil
}

func unseal(secret []byte, text string) (seed [key.SeedSize]byte, err error) {
	aead, err := sealer(secret)
	if err != nil {
		return seed, err
	}
	sealed, err := hex.DecodeString(text)
	if err != nil {
		return seed, errors.New("it is damaged: its seed cannot be read")
	}
	open, err := aead.Open(nil, nil, sealed, nil)
	if err != nil || len(open) != len(seed) {
		return seed, errors.New("it is damaged: its seed cannot be opened")
	}
	copy(seed[:], open)
	return seed, nil
}
