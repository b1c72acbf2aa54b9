package llm

import "math"

// scanner follows one JSON text piece by piece, and remembers of it what its usage object says and how long the pieces
// of the answer's text are. What looks like usage elsewhere, in the arguments of a tool for one, is the model's own
// writing and counts for nothing. It takes what is no JSON for text in which nothing is found.
type scanner struct {
	depth   int
	objects uint64 // by depth: 1 is an object
	array   bool   // the whole text is an array of answers, as Gemini streams them

	state   scanState
	name    [mostName]byte // of the string that is read, or was last, if it is a key
	length  int            // of the string, and of the number
	number  int64
	float   bool // the number has more than digits
	text    bool // the string is a piece of the answer's text
	escaped bool
	silent  bool // the text repeats pieces that were counted

	path [mostPath]word // keys of the outermost objects, by depth

	found   counts
	written int64 // bytes of text
}

type scanState uint8

const (
	between   scanState = iota // a value or a key may come
	inKey                      // in a string that is a key
	inString                   // in one that is a value
	inNumber                   // in a number
	afterName                  // a value comes
)

const (
	mostName  = 32 // bytes of the longest key that counts for something
	mostPath  = 4  // how many objects deep those stand
	mostDepth = 64 // beyond it a text is not read
)

// word is a key that counts for something.
type word uint8

const (
	other word = iota
	usageKey
	wrapper // what an event has its usage in: "message" of Anthropic, "response" of OpenAI, "metadata" of Bedrock
	details // of input
	inputKey
	outputKey
	thoughtsKey
	cachedKey // part of the input
	readKey   // from a cache, beside the input
	wroteKey  // to a cache, beside the input
	textKey
)

func wordOf(name []byte) word {
	switch string(name) {
	case "usage", "usageMetadata":
		return usageKey
	case "message", "response", "metadata":
		return wrapper
	case "prompt_tokens_details", "input_tokens_details":
		return details
	case "prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens":
		return inputKey
	case "completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens":
		return outputKey
	case "thoughtsTokenCount":
		return thoughtsKey
	case "cached_tokens", "cachedContentTokenCount":
		return cachedKey
	case "cache_read_input_tokens", "cacheReadInputTokens":
		return readKey
	case "cache_creation_input_tokens", "cacheWriteInputTokens":
		return wroteKey
	case "content", "text", "delta", "thinking", "partial_json", "arguments", "reasoning_content", "refusal":
		return textKey
	}
	return other
}

// counts are the numbers of a usage object, by their key; 0 is none.
type counts struct {
	by    [textKey]int64
	known bool // there was such an object, with a number in it
}

// usage puts the numbers together. What was read from a cache or written to one stands beside the input where the key
// says so, and is part of it elsewhere.
func (c *counts) usage() Usage {
	u := Usage{Input: c.by[inputKey], Cached: c.by[cachedKey], Output: c.by[outputKey] + c.by[thoughtsKey]}
	u.Input += c.by[readKey] + c.by[wroteKey]
	u.Cached += c.by[readKey]
	u.Input, u.Output = bounded(u.Input), bounded(u.Output)
	u.Cached = min(bounded(u.Cached), u.Input)
	return u
}

// merge takes over what a later part of the answer says: each number is the newest that was said.
func (c *counts) merge(later *counts) {
	for i, n := range later.by {
		if n > 0 {
			c.by[i] = n
		}
	}
	c.known = c.known || later.known
}

// reset begins another text. What was found stays.
func (s *scanner) reset() {
	*s = scanner{found: s.found, written: s.written}
}

func (s *scanner) write(p []byte) {
	for len(p) > 0 {
		if s.state == inString && !s.escaped { // most of an answer
			n := 0
			for n < len(p) && p[n] != '"' && p[n] != '\\' {
				n++
			}
			if s.text {
				s.written = min(s.written+int64(n), most)
			}
			if p = p[n:]; len(p) == 0 {
				return
			}
		}
		s.next(p[0])
		p = p[1:]
	}
}

func (s *scanner) next(c byte) {
	switch s.state {
	case inKey, inString:
		s.inText(c)
		return
	case inNumber:
		if c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-' {
			s.float = true
			return
		}
		if '0' <= c && c <= '9' {
			s.digit(c)
			return
		}
		s.endNumber()
	}
	switch c {
	case '{', '[':
		s.open(c == '{')
	case '}', ']':
		s.depth = max(0, s.depth-1)
		s.state = between
	case '"':
		s.length, s.escaped = 0, false
		if s.isObject() && s.state != afterName {
			s.state = inKey
			return
		}
		s.text = !s.silent && (s.key(s.depth) == textKey || s.key(s.depth-1) == textKey && !s.isObject())
		s.state = inString
	case ':':
		s.state = afterName
	case ',':
		s.state = between
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		s.number, s.float, s.state = 0, false, inNumber
		s.digit(c)
	case '-':
		s.number, s.float, s.state = 0, true, inNumber
	}
}

func (s *scanner) open(object bool) {
	if s.depth == 0 && !object {
		s.array = true
	}
	s.depth++
	if s.depth < mostDepth {
		s.objects &^= 1 << s.depth
		if object {
			s.objects |= 1 << s.depth
		}
	}
	s.setKey(other)
	s.state = between
}

func (s *scanner) isObject() bool { return s.depth < mostDepth && s.objects>>s.depth&1 == 1 }

// level is the depth without an array around the whole.
func (s *scanner) level(depth int) int {
	if s.array {
		return depth - 1
	}
	return depth
}

// key is the last key at a depth. Deeper ones than those that are kept count for text alone, which the innermost says.
func (s *scanner) key(depth int) word {
	if depth = min(s.level(depth), mostPath) - 1; depth >= 0 {
		return s.path[depth]
	}
	return other
}

func (s *scanner) setKey(k word) {
	if depth := min(s.level(s.depth), mostPath) - 1; depth >= 0 {
		s.path[depth] = k
	}
}

func (s *scanner) inText(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
		if s.state == inKey {
			s.length = mostName + 1 // none of those that count needs one
		}
		return
	case c == '"':
		if s.state == inKey {
			s.setKey(other)
			if s.length <= mostName {
				s.setKey(wordOf(s.name[:s.length]))
			}
		}
		s.state = between
		return
	}
	if s.state == inString {
		if s.text && s.written < most {
			s.written++
		}
		return
	}
	if s.length < mostName {
		s.name[s.length] = c
	}
	s.length = min(s.length+1, mostName+1)
}

func (s *scanner) digit(c byte) {
	if s.number > (math.MaxInt64-9)/10 {
		s.number = math.MaxInt64
		return
	}
	s.number = s.number*10 + int64(c-'0')
}

// endNumber takes a number that stands in the usage object of an answer, or of what an event tells of it.
func (s *scanner) endNumber() {
	s.state = between
	level := s.level(s.depth)
	if s.float || !s.isObject() || level < 2 || level > mostPath {
		return
	}
	at, key := level-1, s.path[level-1]
	if at > 0 && s.path[at-1] == details && key == cachedKey {
		at--
	} else if key < inputKey || key >= textKey {
		return
	}
	if at--; at == 0 && s.path[0] == usageKey || at == 1 && s.path[0] == wrapper && s.path[1] == usageKey {
		s.found.by[key], s.found.known = bounded(s.number), true
	}
}
