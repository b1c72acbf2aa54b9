package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/server/developers"
)

// Bounds of what a request may send, in bytes. An edit may be of many rules.
const (
	maxBody = 1 << 20
	maxEdit = 64 << 20
)

// readJSON reads the body, which must be one JSON value. Only a script can
// send one across origins, and only with the listener's leave.
func readJSON(w http.ResponseWriter, r *http.Request, most int64) (json.RawMessage, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return nil, fault{notJSON, fmt.Errorf("Content-Type is %q, want application/json",
			asSent(r.Header.Get("Content-Type")))}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return nil, fault{tooLarge, fmt.Errorf("the body has more than %d bytes", most)}
	}
	if err != nil {
		return nil, fault{invalidRequest, fmt.Errorf("body: %w", err)}
	}
	if !json.Valid(body) {
		return nil, fault{invalidRequest, errors.New("body is not JSON, want one JSON object")}
	}
	return body, nil
}

// decode reads the body into v: every field must be one of v's, once, and in
// lower case, which encoding/json would not ask for.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	return decodeUpTo(w, r, v, maxBody)
}

func decodeUpTo(w http.ResponseWriter, r *http.Request, v any, most int64) error {
	body, err := readJSON(w, r, most)
	if err != nil {
		return err
	}
	if err := developers.MembersOnce(body); err != nil {
		return fault{invalidRequest, err}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fault{invalidRequest, fmt.Errorf("body: %s", strings.TrimPrefix(err.Error(), "json: "))}
	}
	return nil
}

// checkQuery refuses parameters that op does not take, and those that come
// twice where one is meant. It refuses what url.URL.Query would leave out in
// silence as well: without ?project=a;b the rule meant is everybody's.
func (op *operation) checkQuery(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fault{invalidRequest, fmt.Errorf("query is not readable (%w), want %%3B for a ; in it and %%25 for a %%",
			err)}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch many := slices.Contains(op.query, name+"…"); {
		case !many && !slices.Contains(op.query, name):
			want := "none"
			if len(op.query) > 0 {
				want = list(op.query, "or")
			}
			errs = append(errs, fmt.Errorf("query has %q, want %s", asSent(name), want))
		case !many && len(query[name]) > 1:
			errs = append(errs, fmt.Errorf("query has %s %d times, want it once", name, len(query[name])))
		case slices.ContainsFunc(query[name], isNoText):
			errs = append(errs, fmt.Errorf("query has a %s that is no text, want UTF-8 without NUL", name))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	if op.hint != "" {
		errs[len(errs)-1] = fmt.Errorf("%w; %s", errs[len(errs)-1], op.hint)
	}
	return fault{invalidRequest, errors.Join(errs...)}
}

// isNoText reports whether databases would refuse to keep or to look for s.
func isNoText(s string) bool { return !utf8.ValidString(s) || strings.ContainsRune(s, 0) }

// list writes words as people do: a, b or c.
func list(words []string, last string) string {
	clean := make([]string, len(words))
	for i, w := range words {
		clean[i] = strings.TrimSuffix(w, "…")
	}
	if len(clean) == 1 {
		return clean[0]
	}
	return strings.Join(clean[:len(clean)-1], ", ") + " " + last + " " + clean[len(clean)-1]
}

// Bounds of a page.
const (
	pageSize = 100
	maxPage  = 1000
)

// pageLimit reads how many entries a page is to have.
func pageLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return pageSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, fault{invalidRequest, fmt.Errorf("limit is %q, want 1 to %d", asSent(text), maxPage)}
	}
	return n, nil
}

// answer sends value as JSON. What the database holds may be no JSON, such as a
// time after the year 9999: then that is the answer, and not an empty success.
func answer(w http.ResponseWriter, status int, value any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		refuse(w, &http.Request{}, unavailable, fmt.Errorf("The answer cannot be written: %w.", err))
		return
	}
	announce(w, status)
	_, _ = w.Write(body.Bytes()) // the client is gone if this fails
}

// announce begins an answer in JSON.
func announce(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// asSent is what a message repeats of a request.
func asSent(s string) string { return clip.To(s, 100) }
