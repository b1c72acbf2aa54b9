// Package doctor judges a configuration: whether it would start, and whether
// its canonical form reads targets as the server behind does.
package doctor

// Level is how much a finding matters.
type Level string

const (
	OK       Level = "ok"
	Note     Level = "note"     // worth knowing or doubtful: the gateway starts, and does what it was told
	Mismatch Level = "mismatch" // one resource may get two budgets, or another endpoint's
	Failure  Level = "failure"  // the gateway would not start, or not be safe
)

// Report is what was found.
type Report struct {
	Upstream string    `json:"upstream,omitempty"`
	Source   string    `json:"source,omitempty"` // where the facts about it are from
	Findings []Finding `json:"findings"`
}

// Finding is one setting, or one part of the configuration.
type Finding struct {
	Setting string `json:"setting"`
	Value   string `json:"value,omitempty"`
	Level   Level  `json:"level"`
	Server  string `json:"server,omitempty"` // what the server does
	Target  string `json:"target,omitempty"` // an example
	Wrong   string `json:"wrong,omitempty"`  // what could go wrong with it
	Set     string `json:"set,omitempty"`    // what to set
}

func (r *Report) add(f Finding) { r.Findings = append(r.Findings, f) }

// Count returns how many findings are of a level.
func (r Report) Count(level Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

// Healthy reports whether nothing found can cost a budget or the start.
func (r Report) Healthy() bool { return r.Count(Mismatch)+r.Count(Failure) == 0 }
