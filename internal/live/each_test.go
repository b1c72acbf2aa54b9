package live_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/live"
)

type entry struct {
	Name   string
	Digest [4]byte
	Of     []string
}

// Records that are written one by one are a JSON array, and read as they were, as are those of a
// program that wrote the array in one piece.
func TestRecordsOneByOne(t *testing.T) {
	for _, records := range [][]entry{
		nil,
		{{Name: "a", Digest: [4]byte{1, 2, 3, 255}}},
		{{Name: "a"}, {Name: `"]}`, Of: []string{"x"}}, {Name: "<ü>"}},
	} {
		var one bytes.Buffer
		if err := live.EncodeEach(records, &one); err != nil {
			t.Fatal(err)
		}
		whole, err := json.Marshal(records)
		if err != nil || !json.Valid(one.Bytes()) {
			t.Fatalf("%q, %v, want JSON", &one, err)
		}
		for _, text := range []string{one.String(), string(whole)} {
			got, err := live.DecodeEach[entry](strings.NewReader(text))
			if err != nil || !reflect.DeepEqual(got, records) {
				t.Errorf("%q reads as %+v, %v, want %+v", text, got, err, records)
			}
		}
	}
	for _, text := range []string{"", "7", "{}", "[", `[{"Name":1}]`, `[{"Name":"a"}`, `[{"Name":"a"},`} {
		if got, err := live.DecodeEach[entry](strings.NewReader(text)); err == nil {
			t.Errorf("%q reads as %+v, want an error", text, got)
		}
	}
}
