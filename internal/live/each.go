package live

import (
	"encoding/json"
	"fmt"
	"io"
)

// EncodeEach writes records as a JSON array, one after the other: all of it in one
// piece takes several times the memory that they do.
func EncodeEach[T any](records []T, w io.Writer) error {
	out, before := json.NewEncoder(w), "["
	for i := range records {
		if _, err := io.WriteString(w, before); err != nil {
			return err
		}
		if err := out.Encode(&records[i]); err != nil { // with a line end
			return err
		}
		before = ","
	}
	if len(records) > 0 {
		before = ""
	}
	_, err := io.WriteString(w, before+"]\n")
	return err
}

// DecodeEach reads what EncodeEach writes, or encoding/json of the same records.
func DecodeEach[T any](from io.ReadSeeker) (records []T, err error) {
	in := json.NewDecoder(from)
	switch begin, err := in.Token(); {
	case err != nil:
		return nil, err
	case begin == nil: // null, as encoding/json writes no records
		return nil, nil
	case begin != json.Delim('['):
		return nil, fmt.Errorf("it begins with %v, want an array", begin)
	}
	for in.More() {
		var record T
		if err := in.Decode(&record); err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	_, err = in.Token()
	return records, err
}
