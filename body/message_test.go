package body_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/internal/race"
)

func TestReadMessage(t *testing.T) {
	long := strings.Repeat("x", body.MostMethod)
	for _, c := range []struct {
		text, method, name, id string
		fault                  body.Fault
	}{
		{text: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":{"name":"x"}}}`,
			method: "tools/call", name: "search", id: "7"},
		{text: ` {"id":"a\"b","method":"ping"} `, method: "ping", id: `"a\"b"`},
		{text: `{"method":"tools\/call","params":{"na\u006de":"se\u0061rch"}}`, method: "tools/call", name: "search"},
		{text: `{"jsonrpc":"2.0","id":1,"result":{"method":"x","name":"y"}}`, id: "1"},
		{text: `{"method":"a","params":["search"]}`, method: "a"},
		{text: `{"method":"a","params":{"name":["search"]},"id":null}`, method: "a"},
		{text: `{"method":"a","id":1.5}`, method: "a"},
		{text: `{"method":"` + long + `","params":{"name":"` + long + `x"}}`, method: long},
		{text: `{"method":"a","id":"` + long + `"}`, method: "a"},

		{text: ``, fault: body.Empty},
		{text: `[{"method":"a"}]`, fault: body.Kind},
		{text: `"a"`, fault: body.Kind},
		{text: `{"method":["a"]}`, fault: body.Kind},
		{text: `{"method":null}`, fault: body.Kind},
		{text: `{"method":""}`, fault: body.Length},
		{text: `{"method":"` + strings.Repeat("x", 1<<20) + `"}`, fault: body.Length},
		{text: `{"method":"a","method":"b"}`, fault: body.Twice},
		{text: `{"method":"a","m\u0065thod":"b"}`, fault: body.Twice},
		{text: `{"method":"a","Method":"b"}`, fault: body.Alike},
		{text: `{"method":"a","method\u0000":"b"}`, fault: body.Alike},
		{text: `{"method":"a","params":{"name":"x"},"params":{"name":"y"}}`, fault: body.Twice},
		{text: `{"method":"a","params":[1],"params":{"name":"y"}}`, fault: body.Twice},
		{text: `{"method":"a","params":{"name":"x","NAME":"y"}}`, fault: body.Alike},
		{text: `{"method":"a","id":1,"id":2}`, fault: body.Twice},
		{text: `{"method":"a","params":{"name":1.5,"name":"search"}}`, fault: body.Twice},
		{text: `{"method":"a","params":{"name":1.5,"Name":"search"}}`, fault: body.Alike},
		{text: `{"method":"a\u0000"}`, fault: body.Text},
		{text: `{"method":"a","params":{"name":"x\n"}}`, fault: body.Text},
		{text: "\ufeff" + `{"method":"a"}`, fault: body.Kind},
		{text: `{"method":"a"}{"method":"b"}`, fault: body.Syntax},
		{text: "{\x00\"\x00m\x00", fault: body.Syntax},
		{text: `{"method":"a","x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, fault: body.Depth},
	} {
		m, fault := body.ReadMessage([]byte(c.text))
		if m.Method != c.method || m.Name != c.name || string(m.ID) != c.id || fault != c.fault {
			t.Errorf("ReadMessage(%.80q) = %.80q of %q, answered as %q, %v, want %.80q of %q, %q, %v", c.text, m.Method,
				m.Name, m.ID, fault, c.method, c.name, c.id, c.fault)
		}
	}
}

// messageAgrees: what a message was taken for is what a server finds in it that decodes by name, the last of two and in
// any case (encoding/json into a struct), and one that takes names to the letter (into a map).
func messageAgrees(t *testing.T, text []byte) bool {
	t.Helper()
	m, fault := body.ReadMessage(text)
	if fault != body.None {
		if m.Method != "" || m.Name != "" || m.ID != nil {
			t.Errorf("ReadMessage(%.200q) = %+v beside %v", text, m, fault)
		}
		return false
	}
	var loose struct {
		ID     json.RawMessage
		Method any
		Params json.RawMessage
	}
	var strict map[string]json.RawMessage
	if json.Unmarshal(text, &loose) != nil || json.Unmarshal(text, &strict) != nil {
		t.Errorf("ReadMessage(%.200q) = %+v, and it is no object of JSON", text, m)
		return false
	}
	var looseParams struct{ Name any }
	var strictParams map[string]any
	_ = json.Unmarshal(loose.Params, &looseParams)
	_ = json.Unmarshal(strict["params"], &strictParams)
	var method any
	_ = json.Unmarshal(strict["method"], &method)
	for _, read := range []struct{ method, name any }{
		{loose.Method, looseParams.Name}, {method, strictParams["name"]},
	} {
		if text := asText(read.method); text != m.Method {
			t.Errorf("ReadMessage(%.200q) = %q, and a server reads %q", text, m.Method, text)
		}
		if _, number := read.name.(float64); number && m.Name == "" {
			continue // as 1.0 is, which no tool is called by
		}
		if text := asText(read.name); text != m.Name && len(text) <= body.MostMethod {
			t.Errorf("ReadMessage(%.200q) names %q, and a server reads %q", text, m.Name, text)
		}
	}
	if m.ID != nil && string(m.ID) != string(loose.ID) {
		t.Errorf("ReadMessage(%.200q) is answered as %q, and a server answers %q", text, m.ID, loose.ID)
	}
	return true
}

// asText is a string, or a whole number as it is written where it is exact; else nothing.
func asText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		if v == float64(int64(v)) && v < 1<<53 && v > -1<<53 {
			return fmt.Sprint(int64(v))
		}
	}
	return ""
}

func TestRandomMessagesAreReadAsServersDo(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 4))
	pieces := []string{`"method":`, `"Method":`, `"m\u0065thod":`, `"params":`, `"PARAMS":`, `"name":`,
		`"nam\u0065":`, `"id":`, `"tools/call"`, `"search"`, `"\u0000"`, `{`, `}`, `{`, `}`, `[`, `]`, `,`, `,`, `,`,
		`1`, `1.5`, `null`, ` `, `{}`, `"params":{"name":"a"}`, `"method":"b"`, `"id":3`, "\ufeff"}
	known := 0
	for range race.Fewer(200_000) {
		text := []byte(`{"method":"tools/call"`)
		if random.IntN(4) == 0 {
			text = []byte(`{`)
		} else {
			text = append(text, ',')
		}
		for range random.IntN(9) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		if messageAgrees(t, append(text, '}')) {
			known++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if known < race.Fewer(1000) {
		t.Errorf("%d messages read, want the generator to make more", known)
	}
}

func FuzzReadMessage(f *testing.F) {
	for _, text := range vectors(f) {
		if len(text) < 1<<10 {
			f.Add(text)
			f.Add(fmt.Appendf(nil, `{"method":"a","params":{"name":%s}}`, text))
			f.Add(fmt.Appendf(nil, `{"id":%s,"method":"a"}`, text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) { messageAgrees(t, text) })
}
