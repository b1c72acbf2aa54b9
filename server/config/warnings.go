package config

import (
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Warnings says of what people are told, and where; see docs/warnings.md.
type Warnings struct {
	// CallerPercent tells of callers with a verified credential who have so much of a rule's burst
	// in use, in percent, 1 to 100. Default 0: of none.
	CallerPercent int `yaml:"caller_percent"`

	// CallerFill is how long an empty bucket takes to fill, at least, for its callers to be told of. Default 1m.
	CallerFill time.Duration `yaml:"caller_fill"`

	// DeniedPercent tells when so many of all requests are denied by limits, in percent, 1 to 100, for DeniedFor.
	// Default 0: never.
	DeniedPercent int `yaml:"denied_percent"`

	// DeniedFor is for how long. Default 10m.
	DeniedFor time.Duration `yaml:"denied_for"`

	// SlowerPercent tells of endpoints that the API answers more slowly since more is admitted of them: when the 99th
	// percentile of a minute is above the usual one by so much, in percent, 1 to 10000, and a fifth more requests are
	// admitted than usual, for SlowerFor. Default 0: of none.
	SlowerPercent int `yaml:"slower_percent"`

	// SlowerFor is for how long. Default 5m.
	SlowerFor time.Duration `yaml:"slower_for"`

	// URL is where events are sent, by POST over https, or over http to this machine. Default none: they are in the log
	// and the metrics.
	URL string `yaml:"url"`

	// SecretFile holds the secret that signs them, 16 bytes or more. It is read again for each of them.
	SecretFile string `yaml:"secret_file"`
}

// On reports whether anything is watched.
func (w Warnings) On() bool { return w.CallerPercent > 0 || w.DeniedPercent > 0 || w.SlowerPercent > 0 }

func (c *checker) warnings(conf *Config) {
	w := conf.Warn
	if w.SlowerPercent > 0 && !conf.Gateway() {
		c.wrong("warnings.slower_percent", strconv.Itoa(w.SlowerPercent),
			"0: with listen none, the API answers elsewhere, and nobody sees how long it takes")
	}
	c.between("warnings.caller_percent", int64(w.CallerPercent), 0, 100)
	c.between("warnings.denied_percent", int64(w.DeniedPercent), 0, 100)
	c.duration("warnings.caller_fill", w.CallerFill, time.Second, 30*24*time.Hour)
	c.duration("warnings.denied_for", w.DeniedFor, time.Minute, 24*time.Hour)
	c.between("warnings.slower_percent", int64(w.SlowerPercent), 0, 10_000)
	c.duration("warnings.slower_for", w.SlowerFor, time.Minute, 24*time.Hour)
	switch {
	case w.URL == "" && w.SecretFile != "":
		c.wrong("warnings.secret_file", w.SecretFile, "warnings.url set too, as nothing is sent without")
	case w.URL == "":
	case !hookURL(w.URL):
		c.wrong("warnings.url", "set to another", "an https URL without a user in it, or an http one of an address "+
			"of this machine, such as http://127.0.0.1:9090/hook")
	case w.SecretFile == "":
		c.wrong("warnings.secret_file", "missing", "a file with the secret that signs what is sent to warnings.url")
	case !w.On():
		c.wrong("warnings.url", "set",
			"warnings.caller_percent, warnings.denied_percent or warnings.slower_percent too, as nothing is told "+
				"without")
	}
}

// hookURL reports whether a URL is one that events may be sent to. It is not repeated in messages:
// its path or query may be a secret.
func hookURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	loopback := err == nil && address.IsLoopback() || u.Hostname() == "localhost"
	return u.Scheme == "https" || u.Scheme == "http" && loopback
}
