// Package dsn reads the names of databases, as users of the command write them.
package dsn

import (
	"net/url"
	"strings"
)

// Kind reports what kind of database a DSN names: sqlite, postgres or mysql,
// or "" for none that is known.
func Kind(dsn string) string {
	scheme, _, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "sqlite", "postgres", "mysql":
		return scheme
	case "postgresql":
		return "postgres"
	case "mariadb":
		return "mysql"
	}
	return ""
}

// Redact returns a DSN as it may be shown: without the password, and without
// parameters, where more secrets may stand.
func Redact(dsn string) string {
	if Kind(dsn) == "sqlite" {
		return dsn
	}
	shown, _, _ := strings.Cut(dsn, "?")
	if u, err := url.Parse(shown); err == nil && u.Opaque == "" && u.Host != "" {
		return u.Redacted()
	}
	if at := strings.LastIndexByte(shown, '@'); at >= 0 { // user:password@tcp(host)/name, or a URL that is none
		return "…" + shown[at:]
	}
	return shown
}
