package config

import (
	"encoding/json"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ToJSON returns YAML as JSON, and JSON as it is, so that one strict reader
// serves both.
func ToJSON(text []byte) ([]byte, error) {
	if json.Valid(text) || strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		return text, nil // broken JSON is reported better by the reader of JSON
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, errors.New(oneLine(err))
	}
	return json.Marshal(value)
}
