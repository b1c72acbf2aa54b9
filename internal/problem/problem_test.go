package problem_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/problem"
)

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Write(w, httptest.NewRequest("GET", "/", nil), problem.Details{
		Type: problem.QuotaExceeded, Title: "Quota exceeded", Status: http.StatusTooManyRequests,
		Detail: `rule "a\b" has no room`, Violated: []string{"one", "two"},
	})
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded",` +
		`"status":429,"detail":"rule \"a\\b\" has no room","violated-policies":["one","two"]}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/problem+json", "Cache-Control": "no-store",
		"Content-Length": strconv.Itoa(len(want)),
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestWriteAnswersHeadWithoutBody(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Write(w, httptest.NewRequest("HEAD", "/", nil), problem.Details{Status: http.StatusNotFound})
	if w.Code != http.StatusNotFound || w.Body.Len() != 0 {
		t.Errorf("HEAD = %d with %d body bytes, want 404 with none", w.Code, w.Body.Len())
	}
}

// The hand-written encoder says what encoding/json would.
func FuzzDetailsAreJSON(f *testing.F) {
	f.Add("about:blank", "t\x00\x1f", "d\"\\\n\u2028", "näme")
	f.Fuzz(func(t *testing.T, typ, title, detail, name string) {
		for _, s := range []string{typ, title, detail, name} {
			if s == "" || !utf8.ValidString(s) {
				return // absent members and invalid UTF-8 have their own rules
			}
		}
		w := httptest.NewRecorder()
		problem.Write(w, httptest.NewRequest("GET", "/", nil), problem.Details{
			Type: typ, Title: title, Status: 400, Detail: detail, Violated: []string{name},
		})
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%q: %v", w.Body, err)
		}
		want := map[string]any{
			"type": typ, "title": title, "status": 400.0, "detail": detail, "violated-policies": []any{name},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
