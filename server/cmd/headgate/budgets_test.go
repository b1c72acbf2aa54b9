package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/developers"
)

func TestBudgetsBars(t *testing.T) {
	for _, c := range []struct {
		left  developers.Left
		burst int64
		want  [3]string
	}{
		{developers.Left{Remaining: 10}, 10, [3]string{"##########", "10 of 10", "-"}},
		{developers.Left{Remaining: 9, ResetSeconds: 0.25}, 10, [3]string{"#########.", "9 of 10", "250ms"}},
		// some is not none
		{developers.Left{Remaining: 1, ResetSeconds: 9.9}, 1000, [3]string{"#.........", "1 of 1000", "9.9s"}},
		{developers.Left{Remaining: 0, ResetSeconds: 3600, RetryAfterSeconds: 1200}, 3,
			[3]string{"..........", "0 of 3, one in 20m", "1h"}},
		// an allowance
		{developers.Left{Remaining: 60, ResetSeconds: 3723}, 10, [3]string{"##########", "60 of 10", "1h2m3s"}},
		{developers.Left{Remaining: 1 << 62}, 1<<63 - 1,
			[3]string{"#####.....", "4611686018427387904 of 9223372036854775807", "-"}},
	} {
		if got := leftCells(&c.left, c.burst, "#", "."); got != c.want {
			t.Errorf("leftCells(%+v, %d) = %q, want %q", c.left, c.burst, got, c.want)
		}
	}
}

// The credential goes to whom it was meant for, over what others cannot read,
// and nothing that comes back harms a terminal.
func TestDoorKeepsTheCredential(t *testing.T) {
	var elsewhere, seen int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	var answer http.HandlerFunc
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen++; r.Header.Get("X-Api-Key") != "hg_SECRET" || r.URL.Path != "/base/.headgate/v1/budgets" {
			t.Errorf("the API got %v %v", r.URL, r.Header)
		}
		answer(w, r)
	}))
	defer api.Close()
	key := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(key, []byte("hg_SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.txt")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	url := api.URL + "/base"
	redirect := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }
	for name, c := range map[string]struct {
		args   []string
		answer http.HandlerFunc
		want   string
	}{
		"no credential": {[]string{"--url", url}, nil, "--key-file or --token-file"},
		"two": {[]string{"--url", url, "--key-file", key, "--token-file", key}, nil,
			"--key-file or --token-file"},
		"no URL": {[]string{"--key-file", key}, nil, `--url is ""`},
		"over plain HTTP": {[]string{"--url", "http://api.example", "--key-file", key}, nil,
			"want https://, or --allow-http"},
		"an empty file":   {[]string{"--url", url, "--key-file", empty}, nil, "is none"},
		"a redirect":      {[]string{"--url", url, "--key-file", key}, redirect, "302 Found"},
		"not switched on": {[]string{"--url", url, "--key-file", key}, http.NotFound, "developers.path"},
		"no gateway's": {[]string{"--url", url, "--key-file", key}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>"))
		}, "not one of a gateway's"},
		"a refusal in red": {[]string{"--url", url, "--key-file", key}, inRed(http.StatusTooManyRequests,
			"application/problem+json", `{"detail":"\u001b[31mred"}`), "\uFFFD[31mred"},
		"an answer in red": {[]string{"--url", url, "--key-file", key}, inRed(http.StatusOK, "application/json",
			`{"caller":{"kind":"token","id":"\u001b[31mred"},"budgets":[]}`), "token \uFFFD[31mred"},
		"another path than": {[]string{"--url", url, "--path", "x", "--key-file", key}, nil, `--path is "x"`},
	} {
		before := seen
		answer = c.answer
		var out, errs bytes.Buffer
		run(context.Background(), append([]string{"budgets"}, c.args...), &out, &errs)
		text := out.String() + errs.String()
		if !strings.Contains(text, c.want) || strings.Contains(text, "SECRET") || strings.Contains(text, "\u001b") {
			t.Errorf("%s: prints %q, want %q in it", name, text, c.want)
		}
		if (seen > before) != (c.answer != nil) {
			t.Errorf("%s: the API got %d requests", name, seen-before)
		}
	}
	if elsewhere > 0 {
		t.Errorf("another host got %d requests, want none", elsewhere)
	}
}

func inRed(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
