package decisions

import (
	"net/url"
	"strconv"
	"strings"
)

// Questions come in batches, and encoding/json would be a third of what a batch costs. So a body that is written as
// programs write it is read here: the names of fields to the letter and each once, texts of ASCII without an escape,
// whole numbers, white space wherever JSON has it. It is read as decode reads it, which the tests hold; of any other
// body, and of what is none, decode says what it is.

// readPlain returns the questions of a body, or false for one that is decode's to read. Texts are parts of text.
func readPlain(text string) (questions []Question, batch, ok bool) {
	s := scanner{text: text}
	questions = make([]Question, 0, min(MaxBatch, 1+len(text)/usualQuestion))
	if !s.next('{') {
		return nil, false, false
	}
	if batch = strings.HasPrefix(s.rest(), `"requests"`); batch {
		s.at += len(`"requests"`)
		if !s.next(':') || !s.next('[') {
			return nil, false, false
		}
		for more := true; more; more = s.next(',') {
			if len(questions) == MaxBatch || !s.next('{') {
				return nil, false, false
			}
			questions = append(questions, Question{})
			if !s.question(&questions[len(questions)-1]) {
				return nil, false, false
			}
		}
		ok = s.next(']') && s.next('}')
	} else {
		questions = append(questions, Question{})
		ok = s.question(&questions[0])
	}
	return questions, batch, ok && s.rest() == ""
}

// usualQuestion is about how short a question is, in bytes.
const usualQuestion = 40

// scanner takes values off a text in JSON. Where one is not plain it returns false, and is of no use from then on.
type scanner struct {
	text string
	at   int
}

// rest is what follows, without the white space before it.
func (s *scanner) rest() string {
	for s.at < len(s.text) && strings.IndexByte(" \n\t\r", s.text[s.at]) >= 0 {
		s.at++
	}
	return s.text[s.at:]
}

// next passes over c, if that follows.
func (s *scanner) next(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c { // most bodies have no white space
		s.at++
		return true
	}
	if rest := s.rest(); rest == "" || rest[0] != c {
		return false
	}
	s.at++
	return true
}

// word takes a text. In those that differ in case or by an escape alone encoding/json may see the same name.
func (s *scanner) word() (string, bool) {
	if !s.next('"') {
		return "", false
	}
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			word := s.text[s.at:i]
			s.at = i + 1
			return word, true
		case c < ' ' || c > '~' || c == '\\':
			return "", false
		}
	}
	return "", false
}

// number takes a whole number of zero or more.
func (s *scanner) number() (int64, bool) {
	rest := s.rest()
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	if end > 1 && rest[0] == '0' {
		return 0, false // JSON has no such numbers
	}
	if end < len(rest) && strings.IndexByte(".eE", rest[end]) >= 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(rest[:end], 10, 64)
	s.at += end
	return n, err == nil
}

// truth takes true or false.
func (s *scanner) truth() (is, ok bool) {
	rest := s.rest()
	switch {
	case strings.HasPrefix(rest, "true"):
		s.at += len("true")
		return true, true
	case strings.HasPrefix(rest, "false"):
		s.at += len("false")
		return false, true
	}
	return false, false
}

// question takes a question, whose { was taken.
func (s *scanner) question(q *Question) (ok bool) {
	var seen [9]bool
	return s.object(func(name string) bool {
		field := 0
		switch name {
		case "method":
			q.Method, ok = s.word()
		case "target":
			field = 1
			q.Target, ok = s.word()
		case "client":
			field = 2
			q.Client, ok = s.word()
		case "header":
			field = 3
			ok = s.header(q)
		case "user":
			field = 4
			ok = s.user(q)
		case "identifier":
			field = 5
			q.Identifier, ok = s.word()
		case "cost":
			field = 6
			q.Cost, ok = s.number()
		case "reserve":
			field = 7
			q.Reserve, ok = s.number()
		case "message":
			field = 8
			q.Message, ok = s.truth()
		default:
			return false
		}
		ok = ok && !seen[field]
		seen[field] = true
		return ok
	})
}

// object takes what stands between { and }, which has each take the value of a name.
func (s *scanner) object(each func(name string) bool) bool {
	if s.next('}') {
		return true
	}
	for {
		name, ok := s.word()
		if !ok || !s.next(':') || !each(name) {
			return false
		}
		if !s.next(',') {
			return s.next('}')
		}
	}
}

func (s *scanner) header(q *Question) bool {
	q.Header = map[string]Lines{}
	return s.next('{') && s.object(func(name string) bool {
		if _, twice := q.Header[name]; twice {
			return false
		}
		line, ok := s.word()
		q.Header[name] = Lines{line}
		return ok
	})
}

func (s *scanner) user(q *Question) bool {
	q.User = &User{}
	var seen [2]bool
	return s.next('{') && s.object(func(name string) (ok bool) {
		field, into := 0, &q.User.ID
		switch name {
		case "id":
		case "project":
			field, into = 1, &q.User.Project
		default:
			return false
		}
		*into, ok = s.word()
		ok = ok && !seen[field]
		seen[field] = true
		return ok
	})
}

// readTarget reads a target as url.ParseRequestURI does, into u if it holds nothing that is escaped.
func readTarget(u *url.URL, target string) *url.URL {
	path, query, _ := strings.Cut(target, "?")
	if path == "" || path[0] != '/' || query == "" && len(path) < len(target) {
		u, _ = url.ParseRequestURI(target)
		return u // nil if it has no safe reading, which is for httplimit to say
	}
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/-._~", c) >= 0:
		default:
			u, _ = url.ParseRequestURI(target)
			return u
		}
	}
	for i := range len(query) {
		if query[i] <= ' ' || query[i] > '~' {
			u, _ = url.ParseRequestURI(target)
			return u
		}
	}
	u.Path, u.RawQuery = path, query
	return u
}
