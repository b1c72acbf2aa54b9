package llm

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Request is what the body of a request says that its cost depends on.
type Request struct {
	Model string // at most 64 bytes; empty if it is not said once for sure, or not in words

	// Text is how many bytes the request has that the model reads: its body's length. What else stands in it is little,
	// and the ratio of tokens to bytes is learned with it.
	Text int64

	// MaxOutput is how many tokens the model may write at most, for all of Choices; 0 if it is not said.
	MaxOutput int64

	// Stream says that the answer is to come in pieces.
	Stream bool
}

// mostModel is how long a model's name is that is told from others.
const mostModel = 64

// ParseRequest reads a body. One that is no JSON says nothing but its length.
func ParseRequest(body []byte) Request {
	r := Request{Text: int64(len(body))}
	said, ok := members(body)
	if !ok {
		return r
	}
	nested := map[string][]json.RawMessage{}
	for _, name := range []string{"generationconfig", "inferenceconfig"} {
		for _, raw := range said[name] {
			inner, _ := members(raw)
			for name, values := range inner {
				nested[name] = append(nested[name], values...)
			}
		}
	}
	if named := append(said["model"], said["modelid"]...); len(named) == 1 {
		var model string
		if json.Unmarshal(named[0], &model) == nil && len(model) <= mostModel {
			r.Model = model
		}
	}
	// A number that is no number of tokens is the API's to refuse. The largest of those that are said counts.
	r.MaxOutput = largest(said, "max_tokens", "max_completion_tokens", "max_output_tokens")
	r.MaxOutput = max(r.MaxOutput, largest(nested, "maxoutputtokens", "maxtokens"))
	choices := max(1, largest(said, "n"), largest(nested, "candidatecount"))
	if r.MaxOutput > most/choices {
		r.MaxOutput = most
	} else {
		r.MaxOutput *= choices
	}
	r.Stream = slices.ContainsFunc(said["stream"], func(raw json.RawMessage) bool { return string(raw) == "true" })
	return r
}

// members are those of the one object that a text is, by their names without regard to case: which of two the API
// reads, nobody knows here.
func members(text []byte) (by map[string][]json.RawMessage, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, false
	}
	by = map[string][]json.RawMessage{}
	var value json.RawMessage // is written over
	for d.More() {
		name, err := d.Token()
		if err != nil || d.Decode(&value) != nil {
			return nil, false
		}
		alike := func(wanted string) bool { return strings.EqualFold(wanted, name.(string)) }
		if i := slices.IndexFunc(wanted, alike); i >= 0 {
			by[wanted[i]] = append(by[wanted[i]], bytes.Clone(value))
		}
	}
	return by, true
}

// wanted are the members that members returns.
var wanted = []string{"model", "modelid", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stream",
	"generationconfig", "inferenceconfig", "maxoutputtokens", "candidatecount", "maxtokens"}

// largest is the largest number that stands under one of some names.
func largest(by map[string][]json.RawMessage, names ...string) (most int64) {
	for _, name := range names {
		for _, raw := range by[name] {
			most = max(most, number(raw))
		}
	}
	return most
}

// number is one as JSON, or in a string, which servers in Python take for the number that it spells.
func number(raw json.RawMessage) int64 {
	var n float64
	var spelled string
	if json.Unmarshal(raw, &n) != nil && json.Unmarshal(raw, &spelled) == nil {
		n, _ = strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(spelled), "_", ""), 64)
	}
	if math.IsNaN(n) {
		return 0
	}
	return int64(min(max(n, 0), most))
}
