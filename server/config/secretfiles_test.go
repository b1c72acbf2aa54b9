package config_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/server/config"
)

// TestSecretFilesAreAll: every setting that is called as files of secrets are is
// in the list.
func TestSecretFilesAreAll(t *testing.T) {
	secret := regexp.MustCompile(`(^|[_.])(secret|password|token|key)_files?$`)
	noSecret := []string{"tokens.key_files"} // public keys
	c := config.Default()
	var want []config.SecretFile
	walk(reflect.ValueOf(&c).Elem(), "", func(setting string, field reflect.Value) {
		if !secret.MatchString(setting) || slices.Contains(noSecret, setting) {
			return
		}
		path := fmt.Sprintf("/run/%d", len(want))
		want = append(want, config.SecretFile{Setting: setting, Path: path})
		if field.Kind() == reflect.Slice {
			field.Set(reflect.ValueOf([]string{path}))
		} else {
			field.SetString(path)
		}
	})
	if len(want) < 8 {
		t.Fatalf("the configuration has %v, want more files of secrets", want)
	}
	got := c.SecretFiles()
	for _, f := range want {
		if !slices.Contains(got, f) {
			t.Errorf("SecretFiles has no %+v", f)
		}
	}
	if len(got) != len(want) {
		t.Errorf("SecretFiles = %v, want %v", got, want)
	}
	c = config.Default()
	if got := c.SecretFiles(); len(got) != 0 {
		t.Errorf("without any, SecretFiles = %v", got)
	}
}

// walk calls each for every setting with its name in the file.
func walk(v reflect.Value, prefix string, each func(setting string, field reflect.Value)) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		field := v.Field(i)
		switch {
		case field.Kind() == reflect.Struct && name == ",inline":
			walk(field, prefix, each)
		case field.Kind() == reflect.Struct:
			walk(field, prefix+name+".", each)
		default:
			each(prefix+name, field)
		}
	}
}
