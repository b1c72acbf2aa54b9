package config

import _ "embed"

// Schema is a JSON Schema (draft 2020-12) of the file that Read reads, by which editors complete
// settings, explain them, and mark what cannot be right. What only holds between settings, or needs
// a look at a file, Complete alone knows. TestSchemaIsOfTheCode makes it from the code.
//
//go:embed schema.json
var Schema []byte
