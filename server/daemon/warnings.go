package daemon

import (
	"fmt"
	"slices"
	"strings"
)

// warnings are what /readyz tells besides that the process is ready.
func (d *Daemon) warnings() []string {
	list := d.parts.warnings()
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	if d.reloads.failed != "" {
		list = append(list, "the last reload failed, and what was in force before it stays: "+d.reloads.failed)
	}
	if wait := d.reloads.last.Restart; len(wait) > 0 {
		list = append(list, "settings that wait for a restart: "+strings.Join(wait, ", "))
	}
	return list
}

// warnings are what /readyz tells besides that the process is ready.
func (p *parts) warnings() []string {
	list := slices.Concat(p.kept.warnings(), p.keptUsage.warnings(), p.pressure.warnings())
	s := p.rules.Status()
	if s.StandingWords != "" {
		list = append(list, s.StandingWords)
	}
	if s.Emptied {
		list = append(list,
			fmt.Sprintf("the database has no rules, which is taken for an accident: the last good %d stay in force",
				s.Rules))
	}
	if s := p.keys.status(); s.Emptied {
		list = append(list,
			fmt.Sprintf("the database has no API keys, which is taken for an accident: the last good %d stay in force",
				s.Keys))
	}
	return list
}
