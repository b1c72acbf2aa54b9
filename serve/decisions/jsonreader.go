package decisions

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// jsonReader reads a value in JSON as it arrives, and holds nothing of what is skipped. What is read is held to the
// grammar; what is skipped only as far as is needed to find its end.
type jsonReader struct{ in *bufio.Reader }

var errCut = errors.New("it ends too early")

// next returns the next byte that is no space.
func (j *jsonReader) next() (byte, error) {
	for {
		c, err := j.in.ReadByte()
		switch {
		case err == io.EOF:
			return 0, errCut
		case err != nil:
			return 0, err
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			return c, nil
		}
	}
}

// peek is next, and leaves the byte.
func (j *jsonReader) peek() (byte, error) {
	c, err := j.next()
	if err == nil {
		err = j.in.UnreadByte()
	}
	return c, err
}

func (j *jsonReader) expect(want byte) error {
	c, err := j.next()
	if err == nil && c != want {
		err = fmt.Errorf("there is %q where %q should be", c, want)
	}
	return err
}

// end wants nothing more.
func (j *jsonReader) end() error {
	switch _, err := j.next(); err {
	case errCut:
		return nil
	case nil:
		return errors.New("something follows it")
	default:
		return err
	}
}

// null reads a null, if there is one.
func (j *jsonReader) null() (bool, error) {
	c, err := j.peek()
	if err != nil || c != 'n' {
		return false, err
	}
	return true, j.literal("null")
}

func (j *jsonReader) literal(want string) error {
	for i := range len(want) {
		c, err := j.in.ReadByte()
		if err == io.EOF {
			return errCut
		}
		if err != nil {
			return err
		}
		if c != want[i] {
			return fmt.Errorf("a word is not %s", want)
		}
	}
	return nil
}

// object reads an object, or null: the fields with a reader by it, the others are skipped. A field of those that is
// there twice is an error: others may believe the other one.
func (j *jsonReader) object(fields map[string]func() error) error {
	if null, err := j.null(); null || err != nil {
		return err
	}
	if err := j.expect('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	return j.elements('}', func() error {
		name, err := j.text(maxReviewKey)
		if err != nil {
			return err
		}
		if err := j.expect(':'); err != nil {
			return err
		}
		read, wanted := fields[name]
		if !wanted {
			return j.skip()
		}
		if seen[name] {
			return fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if err := read(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// list reads an array, or null.
func (j *jsonReader) list(element func() error) error {
	if null, err := j.null(); null || err != nil {
		return err
	}
	if err := j.expect('['); err != nil {
		return err
	}
	return j.elements(']', element)
}

// elements reads what stands between commas, to a closing byte.
func (j *jsonReader) elements(closing byte, element func() error) error {
	if c, err := j.peek(); err != nil || c == closing {
		_, _ = j.in.ReadByte()
		return err
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch c, err := j.next(); {
		case err != nil:
			return err
		case c == closing:
			return nil
		case c != ',':
			return fmt.Errorf("there is %q where ',' or %q should be", c, closing)
		}
	}
}

// text reads a string of at most so many bytes, as it is written, or null.
func (j *jsonReader) text(most int) (s string, err error) {
	if null, err := j.null(); null || err != nil {
		return "", err
	}
	if err := j.expect('"'); err != nil {
		return "", err
	}
	written := []byte{'"'}
	for escaped := false; ; {
		c, err := j.in.ReadByte()
		switch {
		case err == io.EOF:
			return "", errCut
		case err != nil:
			return "", err
		case len(written) > most:
			return "", fmt.Errorf("a text is longer than %d bytes", most)
		}
		written = append(written, c)
		if c == '"' && !escaped {
			break
		}
		escaped = c == '\\' && !escaped
	}
	if json.Unmarshal(written, &s) != nil {
		return "", errors.New("a text is not written as JSON wants it")
	}
	return s, nil
}

// boolean reads true, false, or null for false.
func (j *jsonReader) boolean() (bool, error) {
	c, err := j.peek()
	switch {
	case err != nil:
		return false, err
	case c == 't':
		return true, j.literal("true")
	case c == 'f':
		return false, j.literal("false")
	}
	null, err := j.null()
	if err == nil && !null {
		err = fmt.Errorf("there is %q, want true or false", c)
	}
	return false, err
}

// skip reads a value and forgets it.
func (j *jsonReader) skip() error {
	for depth := 0; ; {
		c, err := j.next()
		if err != nil {
			return err
		}
		switch c {
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it is more than %d deep", maxDepth)
			}
			continue
		case '}', ']':
			depth--
		case ',', ':':
			if depth == 0 {
				return fmt.Errorf("there is %q where a value should be", c)
			}
			continue
		case '"':
			if err := j.skipText(); err != nil {
				return err
			}
		default:
			if err := j.skipWord(c); err != nil {
				return err
			}
		}
		switch {
		case depth < 0:
			return fmt.Errorf("there is %q where a value should be", c)
		case depth == 0:
			return nil
		}
	}
}

func (j *jsonReader) skipText() error {
	for escaped := false; ; {
		c, err := j.in.ReadByte()
		switch {
		case err == io.EOF:
			return errCut
		case err != nil:
			return err
		case c == '"' && !escaped:
			return nil
		}
		escaped = c == '\\' && !escaped
	}
}

// skipWord reads the rest of a number, or of true, false and null.
func (j *jsonReader) skipWord(c byte) error {
	for {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != 'E' && c != '+' && c != '-' && c != '.' {
			return fmt.Errorf("there is %q where a value should be", c)
		}
		next, err := j.in.Peek(1)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch next[0] {
		case ',', ':', '}', ']', ' ', '\t', '\n', '\r':
			return nil
		}
		c = next[0]
		_, _ = j.in.Discard(1)
	}
}
