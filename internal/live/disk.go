package live

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxCopy is the largest last good copy that is read, in bytes.
const maxCopy = 4 << 30

// saveCopy keeps a document for a start without its source.
func (v *Value[D, T]) saveCopy(doc D) error {
	if v.o.LastGood == "" {
		return nil
	}
	return safely(func() error {
		return writeFile(v.o.LastGood, func(w io.Writer) error { return v.o.Encode(doc, w) })
	})
}

// ReadCopy reads the document that a Value keeps in a file.
func ReadCopy[D any](path string, decode func(io.ReadSeeker) (D, error)) (doc D, err error) {
	f, err := os.Open(path)
	if err != nil {
		return doc, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := checked(f)
	if err != nil {
		return doc, fmt.Errorf("%s %w", path, err)
	}
	if doc, err = decode(data); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return doc, err
}

// compareWithCopy puts the kept document in force before an empty one is: what
// was emptied while no process ran is emptied all the same.
func (v *Value[D, T]) compareWithCopy(doc D) error {
	if v.o.LastGood == "" || v.current.Load() != nil || !v.o.Empty(doc) {
		return nil
	}
	err := v.loadCopy()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there never was one, or somebody means to begin anew
	}
	if err != nil {
		return fmt.Errorf("%s: the document is empty, and whether it was before is unknown, want the last good "+
			"copy readable, or removed to begin with none: %w", v.o.Name, err)
	}
	return nil
}

// loadCopy puts the kept document in force.
func (v *Value[D, T]) loadCopy() error {
	doc, err := ReadCopy(v.o.LastGood, v.o.Decode)
	if err != nil {
		return err
	}
	if err := v.use(doc, "", true); err != nil {
		return err
	}
	if written, err := os.Stat(v.o.LastGood); err == nil {
		now := v.o.Now()
		v.mu.Lock()
		defer v.mu.Unlock()
		age := now.Sub(written.ModTime())
		if age < 0 {
			// The clock was ahead then, or is behind now. The age counts from here, and from here as well after another
			// start: else a process that starts again and again would never find its copy old.
			age = 0
			_ = os.Chtimes(v.o.LastGood, now, now)
		}
		// From here on the age rises however the wall clock is set.
		v.fresh = now.Add(-age)
		v.o.Aged(age)
	}
	return nil
}

// dating is how often the date of the copy on disk follows the source's word that it is current.
const dating = 10 * time.Second

// dateCopy makes the date of the copy on disk the time at which the source was asked that confirmed
// it, so that its age is known at a start without the source. A date that cannot be set makes the
// copy look older than it is.
func (v *Value[D, T]) dateCopy(asked time.Time) {
	v.mu.Lock()
	kept := v.o.LastGood != "" && v.status.CopyError == ""
	v.mu.Unlock()
	if since := asked.Sub(v.dated); kept && (v.dated.IsZero() || since < 0 || since >= dating) {
		v.dated = asked
		_ = os.Chtimes(v.o.LastGood, asked, asked)
	}
}

// copyAgain is how long after a copy could not be written it is tried again.
const copyAgain = time.Minute

// copyIsDue reports whether it is time to load the document in force once more, for the copy on disk:
// there may be room by now, and the document may not change for long.
func (v *Value[D, T]) copyIsDue(asked time.Time) bool {
	v.mu.Lock()
	missing := v.status.CopyError != ""
	v.mu.Unlock()
	since := asked.Sub(v.copied)
	if !missing || since >= 0 && since < copyAgain {
		return false
	}
	v.copied = asked // also of a load that fails
	return true
}

// The file is one line with a checksum, then the document.
const headerFormat = "headgate last good copy, crc32 %08x\n"

// writeFile replaces a file as a whole: readers, and whoever comes after a
// crash, see the old content or the new.
func writeFile(path string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	removeLeftovers(path)
	// Readable by the owner alone (os.CreateTemp makes it 0600): projects and limits are nobody else's business.
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // an error, or a panic of write
			_ = temp.Close()
			_ = os.Remove(temp.Name())
		}
	}()
	// The checksum is known last, and is as long as none.
	if _, err := fmt.Fprintf(temp, headerFormat, 0); err != nil {
		return err
	}
	sum, buffered := crc32.NewIEEE(), bufio.NewWriterSize(temp, 64<<10)
	if err := write(io.MultiWriter(buffered, sum)); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if _, err := temp.WriteAt(fmt.Appendf(nil, headerFormat, sum.Sum32()), 0); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	done = true
	return syncDir(dir)
}

// leftAfter is how long after its last byte a temporary file is of a process that was
// killed: one that is only slow finds it gone, says so, and writes another.
const leftAfter = time.Minute

// removeLeftovers removes what writeFile left of a path in processes that were killed
// meanwhile. Each is as large as the copy.
func removeLeftovers(path string) {
	dir, prefix := filepath.Dir(path), "."+filepath.Base(path)+"."
	entries, _ := os.ReadDir(dir) // who cannot read it may write there all the same
	for _, entry := range entries {
		number, ours := strings.CutPrefix(entry.Name(), prefix)
		if !ours || number == "" || strings.Trim(number, "0123456789") != "" {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// syncDir makes a rename last. Some systems cannot sync a directory, and there
// is nothing to do about that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}

// checked is the document in a file of which the checksum matches. The error says
// what the file is else.
func checked(f *os.File) (*io.SectionReader, error) {
	header := fmt.Appendf(nil, headerFormat, 0)
	length := int64(len(header))
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if info.Size() > maxCopy {
		return nil, fmt.Errorf("is larger than %d bytes", int64(maxCopy))
	}
	var sum uint32
	n, err := f.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if _, err := fmt.Sscanf(string(header[:n]), headerFormat, &sum); err != nil {
		return nil, errors.New("is no last good copy")
	}
	data, is := io.NewSectionReader(f, length, info.Size()-length), crc32.NewIEEE()
	if _, err := io.Copy(is, data); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if is.Sum32() != sum {
		return nil, errors.New("is damaged: its checksum does not match")
	}
	_, err = data.Seek(0, io.SeekStart)
	return data, err
}
