package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// The last good copy is written by parts, and is what it would be in one.
func TestCopyByPartsIsOne(t *testing.T) {
	for _, n := range []int{0, 1, savedAtOnce, savedAtOnce + 1, 3*savedAtOnce - 1} {
		doc := Document{Source: "test", Projects: map[string]string{"acme": "gold"}, Rules: make([]Rule, n)}
		for i := range doc.Rules {
			doc.Rules[i] = Rule{
				Endpoint: fmt.Sprintf("GET /a]},/%d", i),
				Limit:    int64(i + 1),
				Per:      time.Second,
				Subject:  Subject(i % subjects),
			}
		}
		data, err := encodeCopy(doc)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeCopy(data)
		if err != nil || !reflect.DeepEqual(got, doc) {
			t.Errorf("a copy of %d rules reads as %d rules, %v, want what was written", n, len(got.Rules), err)
		}
		whole := savedDocument{
			Format:   savedFormat,
			Source:   doc.Source,
			Projects: doc.Projects,
			Rules:    make([]savedRule, n),
		}
		for i, r := range doc.Rules {
			whole.Rules[i] = savedRule(r)
		}
		if want, err := json.Marshal(whole); err != nil || string(data) != string(want) {
			t.Errorf("a copy of %d rules in parts is not the one in whole, %v", n, err)
		}
	}
}
