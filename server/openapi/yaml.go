package openapi

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlNode is a value inside a parsed YAML document. Aliases are followed where
// they stand; nothing is ever expanded, so a document that multiplies aliases
// of aliases stays as small as it is written.
type yamlNode struct{ *yaml.Node }

// parseYAML reports the document's value, or its first syntax error with the
// line where the parser knows it, else 0.
func parseYAML(data []byte) (n node, line int, err error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, 1, errors.New("holds no document")
	case err != nil:
		return nil, yamlLine(err), errors.New(yamlText(err))
	}
	var second yaml.Node
	switch err := d.Decode(&second); {
	case errors.Is(err, io.EOF):
		return yamlNode{doc.Content[0]}.resolved(), 0, nil
	case err != nil:
		return nil, yamlLine(err), errors.New(yamlText(err))
	}
	return nil, second.Line, errors.New("a second YAML document begins, want one document a file")
}

var (
	yamlLinePattern = regexp.MustCompile(`^line (\d+): `)
	// yamlParserPattern tells what the library's parser says from what its
	// scanner says: the parser counts lines from 0.
	yamlParserPattern = regexp.MustCompile(`did not find expected (key|node content|',' or|'-' indicator|<)`)
)

// yamlLine finds the line in the library's message, which is the only place
// where it stands.
func yamlLine(err error) int {
	m := yamlLinePattern.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: "))
	if m == nil {
		return 0
	}
	line, _ := strconv.Atoi(m[1]) // digits, by the pattern
	if yamlParserPattern.MatchString(err.Error()) {
		line++
	}
	return line
}

func yamlText(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, yamlLinePattern.FindString(text))
	return "is not valid YAML: " + strings.Join(strings.Fields(text), " ")
}

func (n yamlNode) resolved() yamlNode {
	if n.Kind == yaml.AliasNode {
		return yamlNode{n.Alias}
	}
	return n
}

func (n yamlNode) kind() kind {
	switch n.Kind {
	case yaml.MappingNode:
		return mapping
	case yaml.SequenceNode:
		return list
	}
	if n.ShortTag() == "!!null" {
		return null
	}
	return scalar
}

func (n yamlNode) text() string {
	if n.kind() != scalar {
		return ""
	}
	return n.Value
}

func (n yamlNode) members() []member {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	return n.merge(nil, map[*yaml.Node]bool{})
}

// merge appends the members of a mapping: its own first, then those that "<<"
// keys bring and that are not there yet. A mapping merged before has nothing
// more to add, so each is visited once, even where mappings merge each other.
func (n yamlNode) merge(ms []member, seen map[*yaml.Node]bool) []member {
	if n.Kind != yaml.MappingNode || seen[n.Node] {
		return ms
	}
	seen[n.Node] = true
	inherited := ms
	var sources []yamlNode
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := yamlNode{n.Content[i]}.resolved(), yamlNode{n.Content[i+1]}.resolved()
		switch {
		case key.ShortTag() != "!!merge":
			if find(inherited, key.Value) == nil {
				ms = append(ms, member{key: key.Value, keyAt: key.at, value: value})
			}
		case value.Kind == yaml.SequenceNode:
			for _, v := range value.Content {
				sources = append(sources, yamlNode{v}.resolved())
			}
		default:
			sources = append(sources, value)
		}
	}
	for _, source := range sources {
		ms = source.merge(ms, seen)
	}
	return ms
}

func (n yamlNode) items() []node {
	if n.Kind != yaml.SequenceNode {
		return nil
	}
	ns := make([]node, len(n.Content))
	for i, c := range n.Content {
		ns[i] = yamlNode{c}.resolved()
	}
	return ns
}

func (n yamlNode) at() (line, column int) { return n.Line, n.Column }
