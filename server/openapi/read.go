package openapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"
)

// MaxBytes is the longest document read, unpacked. The largest public ones have
// about 40 MB; a YAML document takes roughly ten times its length in memory
// while it is read.
const MaxBytes = 64 << 20

// readBytes reads one file of a length that can be handled, and unpacks it if it
// is gzip.
func readBytes(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, openFault(file, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, openFault(file, err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s: is a folder, want a file", file)
	}
	data, err := readAtMost(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if data, err = unpack(data); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return data, nil
}

// readFile is readBytes of a file that is text.
func readFile(file string) ([]byte, error) {
	data, err := readBytes(file)
	if err != nil {
		return nil, err
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: is empty", file)
	}
	if !utf8.Valid(data) {
		line, column := position(data, invalidUTF8(data))
		return nil, fmt.Errorf("%s:%d:%d: a byte is not UTF-8, want text in UTF-8", file, line, column)
	}
	return data, nil
}

func unpack(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("gzip is damaged: %w", err)
	}
	// JSON and YAML of API documents pack about 1:12.
	out, err := readAtMost(z, int64(len(data))*12)
	if err != nil && !errors.Is(err, errTooLong) {
		return nil, fmt.Errorf("gzip is damaged: %w", err)
	}
	return out, err
}

var errTooLong = fmt.Errorf("is longer than %d MiB unpacked, want a document of at most that", MaxBytes>>20)

// readAtMost reads r to its end, or reports errTooLong. expect is a guess of
// the length, which spares copies when it is near.
func readAtMost(r io.Reader, expect int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(expect, 0), MaxBytes)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(r, MaxBytes+1)); err != nil {
		return nil, err
	}
	if b.Len() > MaxBytes {
		return nil, errTooLong
	}
	return b.Bytes(), nil
}

func openFault(file string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such file: openapi and routes name files from the working directory", file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: may not be read by this user", file)
	}
	return fmt.Errorf("%s: %w", file, err)
}

// position turns an offset into a line and a column, both from 1, the column in
// bytes.
func position(data []byte, offset int) (line, column int) {
	before := data[:min(max(offset, 0), len(data))]
	return bytes.Count(before, []byte{'\n'}) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}
