package config

// DecisionLog says which decisions are written down, and where; see docs/decision-log.md.
type DecisionLog struct {
	// File is where, or stderr, beside the process's own log. Default none: no decision is written down.
	File string `yaml:"file"`

	// PerSecond is how many lines a second are written at most, 1 to 100000. Default 100; the number of those beyond is
	// written down.
	PerSecond int `yaml:"per_second"`

	// AdmittedOneIn has one in so many of the admitted requests written down, drawn at random, 1 to 1000000. Default 0:
	// none but those that a rule in shadow would have denied.
	AdmittedOneIn int `yaml:"admitted_one_in"`

	// MaxSize is how large the file may become before it is put aside and begun anew. Default 100MiB.
	MaxSize Bytes `yaml:"max_size"`

	// Keep is how many files that were put aside are kept, packed by gzip, 1 to 1000. Default 5.
	Keep int `yaml:"keep"`
}

// On reports whether decisions are written down.
func (d DecisionLog) On() bool { return d.File != "" }

func (c *checker) decisionLog(d DecisionLog) {
	c.between("decision_log.per_second", int64(d.PerSecond), 1, 100_000)
	c.between("decision_log.keep", int64(d.Keep), 1, 1000)
	c.between("decision_log.admitted_one_in", int64(d.AdmittedOneIn), 0, 1_000_000)
	c.size("decision_log.max_size", d.MaxSize, 1<<20, 1<<40)
}
