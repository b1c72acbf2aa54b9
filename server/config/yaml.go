package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxExpanded bounds how many values aliases may add to what a YAML text holds
// itself.
const maxExpanded = 1_000_000

// ToJSON returns YAML as JSON, every value on the line it has in the YAML, and
// JSON as it is: one strict reader then serves both, and the lines that it
// names are right.
func ToJSON(text []byte) ([]byte, error) {
	if json.Valid(text) || strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return text, nil // broken JSON is reported better by the reader of JSON
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, errors.New(notYAML(text, err))
	}
	if len(document.Content) == 0 {
		return []byte("null"), nil
	}
	w := jsonWriter{line: 1}
	if err := w.node(document.Content[0]); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// jsonWriter writes nodes as JSON and keeps to their lines.
type jsonWriter struct {
	out      bytes.Buffer
	line     int
	aliased  int // aliases that the node stands under
	expanded int // values written under aliases
}

func (w *jsonWriter) node(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		w.aliased++
		defer func() { w.aliased-- }()
		n = n.Alias
	}
	if w.aliased > 0 {
		w.expanded++
	}
	if w.expanded > maxExpanded {
		return fmt.Errorf("line %d: the aliases expand to more than %d values", n.Line, maxExpanded)
	}
	for ; w.line < n.Line; w.line++ {
		w.out.WriteByte('\n')
	}
	switch n.Kind {
	case yaml.MappingNode:
		return w.list(n.Content, '{', '}', ",:")
	case yaml.SequenceNode:
		return w.list(n.Content, '[', ']', ",,")
	}
	return w.scalar(n)
}

// list writes nodes in brackets; between[i%2] stands before the i-th, but for
// the first.
func (w *jsonWriter) list(nodes []*yaml.Node, open, end byte, between string) error {
	w.out.WriteByte(open)
	for i, n := range nodes {
		if i > 0 {
			w.out.WriteByte(between[i%2])
		}
		if between[1] == ':' && i%2 == 0 {
			n = asText(n) // JSON's keys are strings
		}
		if err := w.node(n); err != nil {
			return err
		}
	}
	w.out.WriteByte(end)
	return nil
}

func asText(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.ScalarNode {
		return n // no key of ours; the reader of JSON says so
	}
	text := *n
	text.Tag = "!!str"
	return &text
}

func (w *jsonWriter) scalar(n *yaml.Node) error {
	// A number is copied as it is written: 10^30 must be refused as 10^30.
	if tag := n.ShortTag(); (tag == "!!int" || tag == "!!float") && json.Valid([]byte(n.Value)) {
		w.out.WriteString(n.Value)
		return nil
	}
	var value any = n.Value
	if n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp" {
		if err := n.Decode(&value); err != nil {
			return errors.New(oneLine(err))
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	w.out.Write(text)
	return nil
}
