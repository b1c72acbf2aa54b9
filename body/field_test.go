package body_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/internal/race"
)

func TestReadText(t *testing.T) {
	long := strings.Repeat("x", body.MostText)
	for _, c := range []struct {
		text, want string
		fault      body.Fault
	}{
		{text: `{"model":"large","messages":[{"model":"small"}]}`, want: "large"},
		{text: `{"messages":[],"mod\u0065l":"l\u0061rge"}`, want: "large"},
		{text: `{"model":"` + long + `"}`, want: long},
		{text: `{"model":7}`, want: "7"},
		{text: `{"messages":[]}`},
		{text: `{"model":null}`},
		{text: `{"model":1.5}`},
		{text: `{"model":["large"]}`},
		{text: `{"model":""}`},
		{text: `{"model":"` + long + `x"}`},

		{text: ``, fault: body.Empty},
		{text: `[{"model":"large"}]`, fault: body.Kind},
		{text: `"large"`, fault: body.Kind},
		{text: `{"model":"small","model":"large"}`, fault: body.Twice},
		{text: `{"model":1.5,"model":"large"}`, fault: body.Twice},
		{text: `{"model":null,"model":"large"}`, fault: body.Twice},
		{text: `{"model":["small"],"model":"large"}`, fault: body.Twice},
		{text: `{"model":"` + long + `x","model":"large"}`, fault: body.Twice},
		{text: `{"model":"small","Model":"large"}`, fault: body.Alike},
		{text: `{"model":"large\u0000"}`, fault: body.Text},
		{text: `{"model":"small"}{"model":"large"}`, fault: body.Syntax},
		{text: "\ufeff" + `{"model":"large"}`, fault: body.Kind},
	} {
		if got, fault := body.ReadText([]byte(c.text), "model"); got != c.want || fault != c.fault {
			t.Errorf("ReadText(%.80q) = %.80q, %v, want %.80q, %v", c.text, got, fault, c.want, c.fault)
		}
	}
}

// textAgrees: what a field was taken for is what servers find in it, as messageAgrees says of messages.
func textAgrees(t *testing.T, text []byte) bool {
	t.Helper()
	got, fault := body.ReadText(text, "model")
	if fault != body.None {
		if got != "" {
			t.Errorf("ReadText(%.200q) = %q beside %v", text, got, fault)
		}
		return false
	}
	var loose struct{ Model any }
	var strict map[string]any
	if json.Unmarshal(text, &loose) != nil || json.Unmarshal(text, &strict) != nil {
		t.Errorf("ReadText(%.200q) = %q, and it is no object of JSON", text, got)
		return false
	}
	for _, model := range []any{loose.Model, strict["model"]} {
		if _, number := model.(float64); number && got == "" {
			continue // as 1.0 is, which nobody calls a model by
		}
		if read := asText(model); read != got && len(read) <= body.MostText {
			t.Errorf("ReadText(%.200q) = %q, and a server reads %q", text, got, read)
		}
	}
	return true
}

func TestRandomFieldsAreReadAsServersDo(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 5))
	pieces := []string{`"model":`, `"Model":`, `"m\u006fdel":`, `"x":`, `"large"`, `"small"`, `"\u0000"`, `{`, `}`, `[`,
		`]`, `,`, `,`, `,`, `7`, `1.5`, `null`, ` `, `{}`, `"model":"large"`, `"model":1.5`, "\ufeff"}
	known := 0
	for range race.Fewer(100_000) {
		text := []byte(`{`)
		for range random.IntN(8) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		if textAgrees(t, append(text, '}')) {
			known++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if known == 0 {
		t.Error("none of them was read")
	}
}

func FuzzReadText(f *testing.F) {
	f.Add([]byte(`{"model":"large","messages":[{"model":"small"}]}`))
	f.Add([]byte(`{"model":1.5,"model":"large"}`))
	f.Fuzz(func(t *testing.T, text []byte) { textAgrees(t, text) })
}
