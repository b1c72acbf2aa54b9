package llm

import (
	"encoding/json"
	"strings"
)

// Request is what the body of a request says that its cost depends on.
type Request struct {
	Model string // at most 64 bytes; empty if it is not said, or not in words

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
	var said struct {
		Model               json.RawMessage `json:"model"`
		ModelID             json.RawMessage `json:"modelId"`
		MaxTokens           json.RawMessage `json:"max_tokens"`
		MaxCompletionTokens json.RawMessage `json:"max_completion_tokens"`
		MaxOutputTokens     json.RawMessage `json:"max_output_tokens"`
		N                   json.RawMessage `json:"n"`
		Stream              json.RawMessage `json:"stream"`
		Generation          json.RawMessage `json:"generationConfig"`
		Inference           json.RawMessage `json:"inferenceConfig"`
	}
	if json.Unmarshal(body, &said) != nil {
		return r
	}
	var nested struct {
		MaxOutputTokens json.RawMessage `json:"maxOutputTokens"`
		CandidateCount  json.RawMessage `json:"candidateCount"`
		MaxTokens       json.RawMessage `json:"maxTokens"`
	}
	_ = json.Unmarshal(said.Generation, &nested)
	_ = json.Unmarshal(said.Inference, &nested)
	for _, raw := range []json.RawMessage{said.Model, said.ModelID} {
		var model string
		if json.Unmarshal(raw, &model) == nil && r.Model == "" && len(model) <= mostModel {
			r.Model = model
		}
	}
	// A number that is no number of tokens is the API's to refuse. The largest of those that are said counts.
	for _, raw := range []json.RawMessage{said.MaxTokens, said.MaxCompletionTokens, said.MaxOutputTokens,
		nested.MaxOutputTokens, nested.MaxTokens} {
		r.MaxOutput = max(r.MaxOutput, number(raw))
	}
	choices := max(1, number(said.N), number(nested.CandidateCount))
	if r.MaxOutput > most/choices {
		r.MaxOutput = most
	} else {
		r.MaxOutput *= choices
	}
	r.Stream = strings.TrimSpace(string(said.Stream)) == "true"
	return r
}

func number(raw json.RawMessage) int64 {
	var n float64
	if json.Unmarshal(raw, &n) != nil {
		return 0
	}
	return int64(min(max(n, 0), most))
}
