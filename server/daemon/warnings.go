package daemon

import "fmt"

// warnings are what /readyz tells besides that the process is ready.
func (p *parts) warnings() []string {
	list := p.pressure.warnings()
	s := p.rules.Status()
	if s.StandingWords != "" {
		list = append(list, s.StandingWords)
	}
	if s.Emptied {
		list = append(list, fmt.Sprintf("the database has no rules, which is taken for an accident: the last good %d stay in force", s.Rules))
	}
	if s := p.keys.status(); s.Emptied {
		list = append(list, fmt.Sprintf("the database has no API keys, which is taken for an accident: the last good %d stay in force", s.Keys))
	}
	return list
}
