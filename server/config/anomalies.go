package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/anomaly"
)

// Anomalies says how callers are scored by what they do, and what follows; see docs/anomalies.md.
type Anomalies struct {
	// Window is the time by which requests and answers are counted, 1s to 24h; what counts is up to two of them.
	// Default 0: nobody is scored.
	Window time.Duration `yaml:"window"`

	// Callers is how many callers are told apart, 512 to 1048576, at about 170 bytes each. Default 65536.
	Callers int `yaml:"callers"`

	// Weights are the most points of each part.
	Weights Weights `yaml:"weights"`

	// Tiers has callers with a score pay by the rules of a tier as well, beside those that hold for them anyway.
	// Default none: scores are told, and nothing follows.
	Tiers []ScoreTier `yaml:"tiers"`
}

// Weights are the most points of each part of a score, 0 to 100; 0 leaves the part out.
type Weights struct {
	// Rate is for more requests than the caller usually makes. Default 40.
	Rate int `yaml:"rate"`
	// Endpoints is for requests to endpoints that are new to it. Default 20.
	Endpoints int `yaml:"endpoints"`
	// Errors is for answers of 4xx. Default 40.
	Errors int `yaml:"errors"`
	// Unknown is for requests that match no endpoint. Default 40.
	Unknown int `yaml:"unknown"`
	// Spellings is for targets that are spelled as no client needs to. Default 40.
	Spellings int `yaml:"spellings"`
}

// ScoreTier is what follows from a score.
type ScoreTier struct {
	// Score is the least, 1 to 100.
	Score int `yaml:"score"`

	// Tier is by whose rules the caller pays as well.
	Tier string `yaml:"tier"`

	// Addresses has it follow for callers without a verified credential too, who may be many behind one address.
	// Default false.
	Addresses bool `yaml:"addresses"`
}

func defaultAnomalies() Anomalies {
	w := anomaly.DefaultWeights
	return Anomalies{Callers: anomaly.DefaultCallers, Weights: Weights{
		Rate: int(w[anomaly.Rate]), Endpoints: int(w[anomaly.Endpoints]), Errors: int(w[anomaly.Errors]),
		Unknown: int(w[anomaly.Unknown]), Spellings: int(w[anomaly.Spellings]),
	}}
}

// parts are the weights with their names, in the order of anomaly.Part.
func (w Weights) parts() [anomaly.Parts]int {
	return [...]int{w.Rate, w.Endpoints, w.Errors, w.Unknown, w.Spellings}
}

// Settings are what scores are made by, nil where nobody is scored.
func (a Anomalies) Settings() *anomaly.Settings {
	if a.Window == 0 {
		return nil
	}
	s := &anomaly.Settings{Window: a.Window}
	for part, points := range a.Weights.parts() {
		s.Weights[part] = uint8(points)
	}
	for _, t := range a.Tiers {
		s.Tiers = append(s.Tiers, anomaly.Tier{From: uint8(t.Score), Name: t.Tier, Addresses: t.Addresses})
	}
	return s
}

// TierNames are the tiers by whose rules callers pay for their scores.
func (a Anomalies) TierNames() (names []string) {
	if a.Window == 0 {
		return nil
	}
	for _, t := range a.Tiers {
		names = append(names, t.Tier)
	}
	return names
}

func (c *checker) anomalies(a Anomalies) {
	if a.Window != 0 {
		c.duration("anomalies.window", a.Window, time.Second, 24*time.Hour)
	}
	c.between("anomalies.callers", int64(a.Callers), 512, 1<<20)
	for part, points := range a.Weights.parts() {
		c.between("anomalies.weights."+anomaly.Part(part).String(), int64(points), 0, 100)
	}
	if len(a.Tiers) > anomaly.MaxTiers {
		c.wrong("anomalies.tiers", fmt.Sprintf("%d tiers", len(a.Tiers)), fmt.Sprintf("%d at most", anomaly.MaxTiers))
	}
	most := 0
	for _, points := range a.Weights.parts() {
		most += points
	}
	before := 0
	for i, t := range a.Tiers {
		at := fmt.Sprintf("anomalies.tiers[%d]", i)
		c.between(at+".score", int64(t.Score), 1, 100)
		switch {
		case i > 0 && t.Score <= before:
			c.wrong(at+".score", fmt.Sprint(t.Score), fmt.Sprintf("more than %d, that of the tier before", before))
		case t.Score > most && t.Score <= 100:
			c.wrong(at+".score", fmt.Sprint(t.Score),
				fmt.Sprintf("%d at most, which is the sum of anomalies.weights: nobody has more", most))
		}
		before = max(before, t.Score)
		if t.Tier == "" || strings.TrimSpace(t.Tier) != t.Tier {
			c.wrong(at+".tier", t.Tier, "the name of a tier that rules have")
		}
	}
	if len(a.Tiers) > 0 && a.Window == 0 {
		c.wrong("anomalies.tiers", "set", "anomalies.window too, such as 5m, as nobody is scored without")
	}
}
