package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// documents are the documents of a YAML file.
func documents(f File) (list []node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(f.Text))
	for {
		var one yaml.Node
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if len(one.Content) == 1 {
			list = append(list, node{one.Content[0]})
		}
	}
}

// node is a node of YAML, or none.
type node struct{ *yaml.Node }

// get is what stands under names in objects; a node of nothing if it is not there.
func (n node) get(names ...string) node {
	for _, name := range names {
		n = n.field(name)
	}
	return n
}

func (n node) field(name string) node {
	if n.Node == nil {
		return node{}
	}
	if n.Kind == yaml.AliasNode {
		return node{n.Alias}.field(name)
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return node{n.Content[i+1]}
			}
		}
	}
	return node{}
}

// is reports whether there is something other than null.
func (n node) is() bool { return n.Node != nil && n.Tag != "!!null" }

func (n node) text() string {
	if !n.is() || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// number is a whole number; ok is false for anything else.
func (n node) number() (int64, bool) {
	v, err := strconv.ParseInt(n.text(), 10, 64)
	return v, err == nil
}

func (n node) line() int {
	if n.Node == nil {
		return 0
	}
	return n.Line
}

// list are the items of a list, or the one thing that stands in its place.
func (n node) list() (items []node) {
	switch {
	case !n.is():
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			items = append(items, node{item})
		}
	default:
		items = []node{n}
	}
	return items
}

// texts are the items of a list of texts.
func (n node) texts() (texts []string) {
	for _, item := range n.list() {
		texts = append(texts, item.text())
	}
	return texts
}

// fields are the names and values of an object.
func (n node) fields() (fields []field) {
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fields = append(fields, field{n.Content[i].Value, node{n.Content[i+1]}})
	}
	return fields
}

type field struct {
	name  string
	value node
}
