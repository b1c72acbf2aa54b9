package llm

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// shapes are answers as the public documents of each API show them (November 2026), with other numbers and words.
var shapes = []struct {
	name, kind string
	body       string
	want       Usage
	written    int64 // bytes of text in the pieces of a stream; 0 where it does not matter
}{
	{"OpenAI, chat completions", "application/json; charset=utf-8",
		`{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":{"role":"assistant",
"content":"He said \"usage\": {\"prompt_tokens\": 1}."},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,
"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":8,"audio_tokens":0},
"completion_tokens_details":{"reasoning_tokens":4}},"service_tier":"default"}`, Usage{19, 8, 10}, 0},
	{"OpenAI, chat completions, a stream with usage", "text/event-stream",
		"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"}}],\"usage\":null}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}],\"usage\":null}\n\n" +
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\n" +
			"data: [DONE]\n\n", Usage{7, 0, 2}, 5},
	{"OpenAI, responses, a stream", "text/event-stream; charset=utf-8",
		"event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\r\n\r\n" +
			"event: response.output_text.delta\r\ndata: " +
			"{\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\r\n\r\n" +
			"event: response.output_text.done\r\ndata: {\"type\":\"response.output_text.done\",\"text\":\"Hi\"}\r\n" +
			"\r\n" +
			"event: response.completed\r\ndata: " +
			"{\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[" +
			"{\"text\":\"Hi\"}]}],\"usage\":{\"input_tokens\":37,\"input_tokens_details\":{\"cached_tokens\":30}," +
			"\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":9},\"total_tokens\":48}}}\r\n\r\n",
		Usage{37, 30, 11}, 2},
	{"OpenAI, embeddings", "application/json",
		`{"object":"list","data":[{"embedding":[0.0023,-9.3e-3,1]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`,
		Usage{8, 0, 0}, 0},
	{"Anthropic, messages", "application/json",
		`{"type":"message","content":[{"type":"tool_use","name":"x","input":{"usage":{"input_tokens":1,"output_tokens":1}}}],
"usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":900,"output_tokens":15}}`,
		Usage{1025, 900, 15}, 0},
	{"Anthropic, messages, a stream", "text/event-stream",
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25," +
			"\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n" +
			"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":" +
			"\"text_delta\",\"text\":\"Hello\"}}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}," +
			"\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		Usage{30, 5, 15}, 5},
	{"Gemini, generateContent", "application/json; charset=UTF-8",
		`{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"}}],"usageMetadata":{"promptTokenCount":4,
"cachedContentTokenCount":2,"candidatesTokenCount":6,"thoughtsTokenCount":50,"totalTokenCount":60,
"promptTokensDetails":[{"modality":"TEXT","tokenCount":4}]},"modelVersion":"g"}`, Usage{4, 2, 56}, 0},
	{"Gemini, streamGenerateContent as an array", "application/json",
		`[{"candidates":[{"content":{"parts":[{"text":"H"}]}}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":1}}
,
{"candidates":[{"content":{"parts":[{"text":"i"}]}}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":6}}]`,
		Usage{4, 0, 6}, 2},
	{"Bedrock, converse", "application/json",
		`{"metrics":{"latencyMs":551},"output":{"message":{"content":[{"text":"Hi"}],"role":"assistant"}},
"stopReason":"end_turn","usage":{"inputTokens":125,"outputTokens":60,"totalTokens":185,"cacheReadInputTokens":10}}`,
		Usage{135, 10, 60}, 0},
	{"Bedrock, converse, a stream", "application/vnd.amazon.eventstream",
		frame(`{"contentBlockIndex":0,"delta":{"text":"Hello"},"p":"abc"}`) + frame(`{"stopReason":"end_turn"}`) +
			frame(`{"metrics":{"latencyMs":9},"usage":{"inputTokens":12,"outputTokens":3,"totalTokens":15}}`),
		Usage{12, 0, 3}, 5},
}

// frame is a frame of Amazon's encoding. Nobody looks at its checksums.
func frame(payload string) string {
	headers := "\x0b:event-type\x07\x00\x05other"
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(headers))), "sum1"...)
	return string(b) + headers + payload + "sum2"
}

func read(kind string, pieces ...[]byte) *Answer {
	var a Answer
	a.Begin(http.Header{"Content-Type": {kind}})
	for _, p := range pieces {
		a.Write(p)
	}
	return &a
}

func TestUsageOfEveryShape(t *testing.T) {
	for _, s := range shapes {
		for _, size := range []int{1, 2, 3, 7, len(s.body)} {
			var pieces [][]byte
			for rest := []byte(s.body); len(rest) > 0; {
				n := min(size, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			a := read(s.kind, pieces...)
			if got, known := a.Usage(); !known || got != s.want {
				t.Errorf("%s in pieces of %d: %+v, %t, want %+v", s.name, size, got, known, s.want)
			}
			if s.written > 0 && a.Written() != s.written {
				t.Errorf("%s in pieces of %d: %d bytes of text, want %d", s.name, size, a.Written(), s.written)
			}
		}
	}
}

// What cannot be read says nothing, and what a model writes is not what it has used.
func TestNothingElseIsUsage(t *testing.T) {
	for _, body := range []string{
		``, `null`, `{}`, `[1,2]`, `"usage"`, `{"usage":5}`, `{"usage":null}`, `{"usage":[{"input_tokens":9}]}`,
		`{"usage":{"input_tokens":"9"}}`, `{"usage":{"input_tokens":9.5}}`, `{"usage":{"input_tokens":-9}}`,
		`{"choices":[{"usage":{"prompt_tokens":9}}]}`, `{"a":{"usage":{"prompt_tokens":9}}}`,
		`{"us\u0061ge":{"prompt_tokens":9}}`, `{"message":{"content":{"usage":{"input_tokens":9}}}}`,
		`{"usage":{"deeper":{"input_tokens":9}}}`, `{"content":"\"usage\":{\"prompt_tokens\":9}"}`,
		`{"content":[{"input":{"message":{"usage":{"input_tokens":9}}}}]}`,
		strings.Repeat(`{"a":`, 100) + `{"usage":{"prompt_tokens":9}}`, `[[{"usage":{"prompt_tokens":9}}]]`,
	} {
		if got, known := read("application/json", []byte(body)).Usage(); known {
			t.Errorf("%s says %+v, want nothing", body, got)
		}
	}
	whole := []byte(shapes[0].body)
	for kind, header := range map[string]http.Header{
		"gzip": {"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
		"text": {"Content-Type": {"text/plain"}},
		"none": {},
	} {
		var a Answer
		a.Begin(header)
		a.Write(whole)
		if got, known := a.Usage(); known {
			t.Errorf("%s: says %+v, want nothing", kind, got)
		}
	}
	var a Answer
	a.Begin(http.Header{"X-Amzn-Bedrock-Input-Token-Count": {"12"}, "X-Amzn-Bedrock-Output-Token-Count": {"34"},
		"Content-Type": {"text/plain"}})
	if got, known := a.Usage(); !known || got != (Usage{Input: 12, Output: 34}) {
		t.Errorf("Bedrock's fields say %+v, %t, want 12 and 34", got, known)
	}
}

func TestNumbersAreBounded(t *testing.T) {
	a := read("application/json", []byte(`{"usage":{"input_tokens":99999999999999999999999,"output_tokens":5}}`))
	if got, _ := a.Usage(); got != (Usage{Input: most, Output: 5}) {
		t.Errorf("%+v, want %d and 5", got, int64(most))
	}
}

// twin is what a whole JSON text says, by encoding/json.
func twin(text []byte) (u Usage, known bool) {
	var whole any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&whole) != nil {
		return u, false
	}
	list, isList := whole.([]any)
	if !isList {
		list = []any{whole}
	}
	var c counts
	for _, one := range list {
		object, _ := one.(map[string]any)
		for key, value := range object {
			inner, _ := value.(map[string]any)
			switch wordOf([]byte(key)) {
			case usageKey:
				twinUsage(&c, inner)
			case wrapper:
				for key, value := range inner {
					if wordOf([]byte(key)) == usageKey {
						usage, _ := value.(map[string]any)
						twinUsage(&c, usage)
					}
				}
			}
		}
	}
	return c.usage(), c.known
}

func twinUsage(c *counts, usage map[string]any) {
	for key, value := range usage {
		if n, ok := value.(json.Number); ok && twinIsCount(key) {
			twinNumber(c, wordOf([]byte(key)), n)
		}
		if inner, ok := value.(map[string]any); ok && wordOf([]byte(key)) == details {
			for key, value := range inner {
				if n, ok := value.(json.Number); ok && wordOf([]byte(key)) == cachedKey {
					twinNumber(c, cachedKey, n)
				}
			}
		}
	}
}

func twinIsCount(key string) bool { w := wordOf([]byte(key)); return w >= inputKey && w < textKey }

// twinNumber takes the larger of two that are said of one thing: a random text puts them in any order.
func twinNumber(c *counts, key word, n json.Number) {
	var v int64
	if _, err := fmt.Sscanf(n.String(), "%d", &v); err == nil && fmt.Sprint(v) == n.String() && v >= 0 {
		c.by[key], c.known = max(c.by[key], bounded(v)), true
	}
}

// saidTwice reports whether a text says the usage of an answer in more than one place.
func saidTwice(text []byte) bool {
	return bytes.Count(text, []byte(`"usage" :`))+bytes.Count(text, []byte(`"usage":`)) > 1
}

// write makes a random text in which each key of an object stands once, so that the order of keys
// says nothing, and no two keys of one meaning.
func write(rng *rand.Rand, b *bytes.Buffer, depth int) {
	names := []string{"usage", "message", "prompt_tokens_details", "prompt_tokens", "output_tokens", "cached_tokens",
		"cache_read_input_tokens", "content", "a", "x\\\"y"}
	switch kind := rng.IntN(8); {
	case depth < 6 && kind < 4:
		b.WriteByte('{')
		for i, at := range rng.Perm(len(names))[:rng.IntN(5)] {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, `"%s" :`, names[at])
			write(rng, b, depth+1)
		}
		b.WriteByte('}')
	case depth < 6 && kind == 4:
		b.WriteByte('[')
		for i := range rng.IntN(3) {
			if i > 0 {
				b.WriteByte(',')
			}
			write(rng, b, depth+1)
		}
		b.WriteByte(']')
	case kind == 5:
		b.WriteString([]string{`"te\\xt"`, `"\"usage\":{"`, `""`, "null", "true", "-3", "2.5", "1e3"}[rng.IntN(8)])
	default:
		fmt.Fprint(b, rng.IntN(1000))
	}
}

// TestAgainstEncodingJSON: of random texts the scanner finds what a reading of the whole finds.
func TestAgainstEncodingJSON(t *testing.T) {
	rng, found := rand.New(rand.NewPCG(1, 2)), 0
	for range 60_000 {
		var b bytes.Buffer
		if rng.IntN(2) == 0 {
			b.WriteString(`{"usage":`)
			write(rng, &b, 1)
			b.WriteByte('}')
		} else {
			write(rng, &b, 0)
		}
		if saidTwice(b.Bytes()) {
			continue // which of them is the newer one is a question of order
		}
		want, known := twin(b.Bytes())
		got, ok := read("application/json", b.Bytes()).Usage()
		if got != want || ok != known {
			t.Fatalf("%s says %+v, %t, want %+v, %t", &b, got, ok, want, known)
		}
		if known {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("%d texts of 60000 said something: too few to tell", found)
	}
}

// FuzzAnswer: however an answer is cut to pieces it says the same, and no number is out of bounds.
func FuzzAnswer(f *testing.F) {
	for i, s := range shapes {
		f.Add([]byte(s.body), uint8(i), uint16(7))
	}
	kinds := []string{"application/json", "text/event-stream", "application/vnd.amazon.eventstream"}
	f.Fuzz(func(t *testing.T, body []byte, kind uint8, at uint16) {
		k := kinds[int(kind)%len(kinds)]
		cut := int(at) % (len(body) + 1)
		one, two := read(k, body), read(k, body[:cut], body[cut:])
		a, knownA := one.Usage()
		b, knownB := two.Usage()
		if a != b || knownA != knownB || one.Written() != two.Written() {
			t.Errorf("cut at %d: %+v, %t, %d bytes; whole: %+v, %t, %d", cut, b, knownB, two.Written(), a, knownA,
				one.Written())
		}
		if a.Input < 0 || a.Output < 0 || a.Cached < 0 || a.Cached > a.Input || a.Input > most || a.Output > most {
			t.Errorf("%+v is out of bounds", a)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	event := []byte(
		"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":" +
			"{\"content\":\" word\"}}]}\n\n")
	var a Answer
	a.Begin(http.Header{"Content-Type": {"text/event-stream"}})
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		a.Write(event)
	}
}
