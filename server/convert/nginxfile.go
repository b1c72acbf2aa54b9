package convert

import (
	"fmt"
	"strings"
)

// directive is one of nginx's, with the directives of its block.
type directive struct {
	name  string
	args  []string
	line  int
	block []directive
}

// nginxParser reads nginx's syntax: words and quoted texts, ended by ; or opening a block.
type nginxParser struct {
	file string
	text string
	at   int
	line int
}

// maxDepth bounds how deep blocks nest.
const maxDepth = 32

func parseNginx(file string, text []byte) ([]directive, error) {
	p := nginxParser{file: file, text: string(text), line: 1}
	list, err := p.block(0)
	if err == nil && p.at < len(p.text) {
		err = p.wrong("there is a } too many")
	}
	return list, err
}

func (p *nginxParser) wrong(what string) error { return fmt.Errorf("%s:%d: %s", p.file, p.line, what) }

// block reads directives up to } or the end.
func (p *nginxParser) block(depth int) (list []directive, err error) {
	if depth > maxDepth {
		return nil, p.wrong(fmt.Sprintf("blocks nest deeper than %d", maxDepth))
	}
	var d directive
	for {
		p.space()
		if p.at == len(p.text) {
			if d.name != "" {
				return nil, p.wrong(fmt.Sprintf("%s does not end, want ; or {", d.name))
			}
			if depth > 0 {
				return nil, p.wrong("a block does not end, want }")
			}
			return list, nil
		}
		switch p.text[p.at] {
		case '}':
			if d.name != "" {
				return nil, p.wrong(fmt.Sprintf("%s does not end, want ; before }", d.name))
			}
			return list, nil // the caller takes it
		case ';':
			p.at++
			if d.name != "" {
				list, d = append(list, d), directive{}
			}
		case '{':
			p.at++
			if strings.HasSuffix(d.name, "_by_lua_block") {
				if err := p.skipCode(); err != nil {
					return nil, err
				}
			} else if d.block, err = p.block(depth + 1); err != nil {
				return nil, err
			}
			if p.at == len(p.text) {
				return nil, p.wrong("a block does not end, want }")
			}
			p.at++
			list, d = append(list, d), directive{}
		default:
			word, err := p.word()
			if err != nil {
				return nil, err
			}
			if d.name == "" {
				d.name, d.line = word, p.line
			} else {
				d.args = append(d.args, word)
			}
		}
	}
}

// space goes past white space and comments.
func (p *nginxParser) space() {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '\n':
			p.line++
		case c == '#':
			if end := strings.IndexByte(p.text[p.at:], '\n'); end >= 0 {
				p.at += end
			} else {
				p.at = len(p.text)
			}
			continue
		case c != ' ' && c != '\t' && c != '\r':
			return
		}
		p.at++
	}
}

// word reads a word or a quoted text. ${name} is a part of a word.
func (p *nginxParser) word() (string, error) {
	var b strings.Builder
	if quote := p.text[p.at]; quote == '"' || quote == '\'' {
		from := p.line
		for p.at++; p.at < len(p.text) && p.text[p.at] != quote; p.at++ {
			switch {
			case p.text[p.at] == '\\' && p.at+1 < len(p.text):
				p.at++
			case p.text[p.at] == '\n':
				p.line++
			}
			b.WriteByte(p.text[p.at])
		}
		if p.at == len(p.text) {
			p.line = from
			return "", p.wrong("a quotation does not end")
		}
		p.at++
		return b.String(), nil
	}
	for ; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		switch {
		case c == '$' && strings.HasPrefix(p.text[p.at:], "${"):
			end := strings.IndexByte(p.text[p.at:], '}')
			if end < 0 {
				return "", p.wrong("${ does not end")
			}
			b.WriteString("$" + p.text[p.at+2:p.at+end])
			p.at += end
			continue
		case c == '\\' && p.at+1 < len(p.text):
			b.WriteByte(c)
			p.at++
			c = p.text[p.at]
		case strings.IndexByte(" \t\r\n;{}", c) >= 0:
			return b.String(), nil
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// skipCode goes to the } that ends a block of another language.
func (p *nginxParser) skipCode() error {
	for depth := 0; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\n':
			p.line++
		case '{':
			depth++
		case '}':
			if depth--; depth < 0 {
				return nil
			}
		}
	}
	return p.wrong("a block of Lua does not end, want }")
}
