package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AutoRevert says when a change of the rules is taken back that turns away the
// callers of an endpoint; see docs/auto-revert.md.
type AutoRevert struct {
	// Share is the part of an endpoint's requests above which its 429s are the
	// change's fault, such as 50%. Default none: nothing is taken back.
	Share Percent `yaml:"share"`

	// For is how long they must be above it. Default 30s.
	For time.Duration `yaml:"for"`

	// MinRequests is how many requests must have come in that time. Default 100.
	MinRequests int64 `yaml:"min_requests"`

	// MinCallers is how many callers must be turned away: the share is taken
	// without the requests of the others, those that are turned away most.
	// Default 2.
	MinCallers int `yaml:"min_callers"`

	// Watch is how long after a change its endpoints are looked at. Default 10m.
	Watch time.Duration `yaml:"watch"`
}

// On reports whether changes are taken back.
func (a AutoRevert) On() bool { return a.Share != 0 }

func defaultAutoRevert() AutoRevert {
	return AutoRevert{For: 30 * time.Second, MinRequests: 100, MinCallers: 2, Watch: 10 * time.Minute}
}

// maxCallers is fewer than the callers that package revert tells apart.
const maxCallers = 32

func (c *checker) autoRevert(conf *Config) {
	a := conf.AutoRevert
	c.duration("auto_revert.for", a.For, 500*time.Millisecond, time.Hour)
	c.between("auto_revert.min_requests", a.MinRequests, 1, 1_000_000_000)
	c.between("auto_revert.min_callers", int64(a.MinCallers), 1, maxCallers)
	c.duration("auto_revert.watch", a.Watch, time.Second, 24*time.Hour)
	if a.Watch < 2*a.For {
		c.wrong("auto_revert.watch", a.Watch.String(),
			fmt.Sprintf("twice auto_revert.for, %v, or more: else the time is over before anything is known", 2*a.For))
	}
	if !a.On() && a != defaultAutoRevert() {
		c.wrong("auto_revert.share", "",
			"a share such as 50%, or auto_revert left out: without one nothing is taken back")
	}
	if a.On() && conf.RulesElsewhere() {
		c.wrong("auto_revert.share", a.Share.String(),
			"none with db_table: rules that are only read cannot be taken back")
	}
}

// The least that is not warned of.
const (
	fewestCallers  = 2
	fewestRequests = 20
	smallestShare  = 20
)

// warn says what is dangerous about values that are allowed.
func (a AutoRevert) warn(warn func(field string, value any, format string, args ...any)) {
	if !a.On() {
		return
	}
	if a.MinCallers < fewestCallers {
		warn("auto_revert.min_callers", a.MinCallers,
			"one client that sends too much takes back a stricter rule for everybody")
	}
	if a.MinRequests < fewestRequests {
		warn("auto_revert.min_requests", a.MinRequests, "so few requests are chance: a harmless change may be reverted")
	}
	if a.Share < smallestShare {
		warn("auto_revert.share", a.Share, "a rule that turns away what it was written against is taken back")
	}
}

// Percent is a share as people write it: "50%".
type Percent int64

// MarshalText writes the share as it is read; none as the empty text.
func (p Percent) MarshalText() ([]byte, error) {
	if p == 0 {
		return nil, nil
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads a whole number from 1 to 99 and the sign, or nothing.
func (p *Percent) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = 0
		return nil
	}
	digits, ok := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || n > 99 || digits != strconv.FormatInt(n, 10) {
		return fmt.Errorf("%q is no share, want a whole number from 1 to 99 and %%, such as 50%%", text)
	}
	*p = Percent(n)
	return nil
}

// String writes the share as it is read.
func (p Percent) String() string { return strconv.FormatInt(int64(p), 10) + "%" }
