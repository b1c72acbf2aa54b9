// Package llm reads what a request to a language model may cost, and what it did cost: in the bodies of OpenAI
// (chat completions, responses, embeddings), Anthropic (messages), Gemini (generateContent) and Bedrock (converse, and
// invoke by its fields), whole or as streams. Nothing is kept of an answer but numbers, however long it is, and it is
// read as it passes.
//
// The names of fields are those of the public documents of each of them, of November 2026.
package llm

// Usage is what a model has read and written, in its own tokens.
type Usage struct {
	// Input is all that it read, Cached of it at the price of what it had read before.
	Input, Cached int64

	// Output is all that it wrote, thoughts included.
	Output int64
}

// most bounds each number that an answer is believed, so that sums and prices stay within an int64.
const most = 1 << 40

func bounded(n int64) int64 { return min(max(n, 0), most) }
