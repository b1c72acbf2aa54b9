package config

import (
	"time"

	"github.com/headgate-io/headgate/server/developers"
	"github.com/headgate-io/headgate/server/record"
)

// Developers says what those who call the API may ask the gateway; see
// docs/developers.md.
type Developers struct {
	// Path is where they ask, on the gateway's own listener, such as
	// /.headgate. Requests under it never reach the API. Default none: they
	// cannot ask.
	Path string `yaml:"path"`

	// MaxRequests is how many requests for a higher limit a project may have
	// open. Default 5; with 0 none can be filed.
	MaxRequests int `yaml:"max_requests"`

	// KeepRequests is how long a request is kept after it was decided, withdrawn
	// or expired. Default 8760h (a year).
	KeepRequests time.Duration `yaml:"keep_requests"`
}

// Usage says how much is remembered of the last hour.
type Usage struct {
	// MaxCallers is how many callers with a verified credential are remembered,
	// at about 2 KiB each once they come. Default 10000; with 0 nothing is
	// counted.
	MaxCallers int `yaml:"max_callers"`

	// File is where what callers did by the day is kept over a restart. It names them. Default none: it is forgotten.
	File string `yaml:"file"`

	// Interval is how often it is written, besides at the end, 1s to 1h. Default 1m.
	Interval time.Duration `yaml:"interval"`
}

// Activity says how much is remembered of decisions, for people who look; see docs/page.md.
type Activity struct {
	// MaxRequests is how many lines of the last hour's requests are remembered, 1024 to 16777216, at 24 bytes each:
	// other limits can be tried on them. A line is what one caller asked of one endpoint within a second. Where they
	// are too few for everybody, they are those of some callers. Default 131072; with 0 nothing is remembered.
	MaxRequests int `yaml:"max_requests"`

	// MaxCallers is how many callers that were denied of late are told apart, 64 to 65536, at some 350 bytes each.
	// Default 2048.
	MaxCallers int `yaml:"max_callers"`
}

// Bounds and defaults.
const (
	maxRequests = 1000
	mostCallers = 1_000_000

	defaultMaxRequests = 5
	defaultKeep        = 365 * 24 * time.Hour
	defaultMaxCallers  = 10_000
)

func (c *checker) activity(a Activity) {
	if a.MaxRequests != 0 {
		c.between("activity.max_requests", int64(a.MaxRequests), 1<<10, 1<<24)
	}
	c.between("activity.max_callers", int64(a.MaxCallers), 64, 1<<16)
}

func (c *checker) developers(d Developers, u Usage) {
	if d.Path != "" {
		if err := developers.CheckPath(d.Path); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	c.between("developers.max_requests", int64(d.MaxRequests), 0, maxRequests)
	c.duration("developers.keep_requests", d.KeepRequests, record.KeepRequests, 10*365*24*time.Hour)
	c.between("usage.max_callers", int64(u.MaxCallers), 0, mostCallers)
	c.duration("usage.interval", u.Interval, time.Second, time.Hour)
	if u.File != "" && u.MaxCallers == 0 {
		c.wrong("usage.file", u.File, "usage.max_callers above 0 too, as nothing is counted without")
	}
}
