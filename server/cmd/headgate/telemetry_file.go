package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/server/config"
)

// telemetrySettings are the flags of "headgate telemetry" that a file may give, by their names there.
var telemetrySettings = map[string]string{
	"quotas": "quota", "origins": "origin", "secret_file": "secret-file", "udp": "udp", "http": "http",
	"admin": "admin", "tls_cert": "tls-cert",
	"tls_key": "tls-key", "window": "window", "max_clients": "max-clients", "per_source": "per-source",
}

// readTelemetryFile gives flags the values that a YAML file has, unless the command line gave them.
func readTelemetryFile(path string, flags *pflag.FlagSet) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--config %s: no such file", path)
	}
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	read, err := config.ToJSON(text) // every value on its line
	if err != nil {
		return fmt.Errorf("--config %s: %w", path, err)
	}
	if string(read) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(read))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("--config %s: want settings, such as secret_file: telemetry.secret", path)
	}
	var wrong []error
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fmt.Errorf("--config %s: %w", path, err)
		}
		name := fmt.Sprint(key)
		where := fmt.Sprintf("%s:%d: %s", path, 1+bytes.Count(read[:d.InputOffset()], []byte("\n")), name)
		var value any
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		flag := flags.Lookup(telemetrySettings[name])
		switch {
		case flag == nil:
			wrong = append(wrong, fmt.Errorf("%s is no setting, want one of %s", where,
				strings.Join(telemetryNames(), ", ")))
		case seen[name]:
			wrong = append(wrong, fmt.Errorf("%s is given twice", where))
		case flag.Changed:
		default:
			if err := setFlag(flag, value); err != nil {
				wrong = append(wrong, fmt.Errorf("%s is %v, want %w", where, value, err))
			}
		}
		seen[name] = true
	}
	return errors.Join(wrong...)
}

func telemetryNames() (names []string) {
	for name := range telemetrySettings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// setFlag gives a flag a value of a file: a list where the flag can be repeated. Its error says what is wanted.
func setFlag(flag *pflag.Flag, value any) error {
	list, isList := value.([]any)
	if isList != (flag.Value.Type() == "stringArray") {
		if isList {
			return errors.New("one value")
		}
		return errors.New("a list")
	}
	if !isList {
		list = []any{value}
	}
	for _, one := range list {
		switch v := one.(type) {
		case string:
		case float64:
			if v == float64(int64(v)) {
				one = int64(v)
			}
		default:
			return errors.New("texts and numbers")
		}
		if err := flag.Value.Set(fmt.Sprint(one)); err != nil {
			wants := map[string]string{"duration": "a time such as 30s", "int": "a whole number"}
			return errors.New(wants[flag.Value.Type()])
		}
	}
	return nil
}
