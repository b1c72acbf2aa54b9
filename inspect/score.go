package inspect

import (
	"fmt"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/identity"
)

// Score is what a caller did of late, as a number from 0 to 100, and what it is the sum of.
type Score struct {
	Principal string      `json:"principal,omitempty"` // which of Identity.Others has it; absent if the first does
	Score     int         `json:"score"`               // the sum of the points, 100 at most
	Parts     []ScorePart `json:"parts"`               // all that there are, those without points too

	// Tier is the one by whose rules the caller pays as well, as its score is From or more; absent if there is none.
	Tier string `json:"tier,omitempty"`
	From int    `json:"from,omitempty"`
}

// ScorePart is one part of a Score.
type ScorePart struct {
	Part   string `json:"part"` // rate, endpoints, errors, unknown or spellings
	Points int    `json:"points"`
	Why    string `json:"why"` // for people
}

// ScoreOf says what the score of a caller is made of; false if it has none.
func ScoreOf(l *headgate.Limiter, who *identity.Principal) (s Score, ok bool) {
	a, because, known := l.Account(who)
	if !known || !a.Score.Known {
		return s, false
	}
	s = Score{Score: int(a.Score.Total), Tier: because.Name, From: int(because.From)}
	for part, points := range a.Score.Parts {
		of := anomaly.Part(part)
		s.Parts = append(s.Parts, ScorePart{Part: of.String(), Points: int(points), Why: whyScored(of, &a)})
	}
	return s, true
}

// whyScored says what a part of a score was made of.
func whyScored(part anomaly.Part, a *anomaly.Account) string {
	switch part {
	case anomaly.Endpoints:
		return fmt.Sprintf("%.0f of %.0f requests were for endpoints that it had not asked for before", a.Fresh,
			a.Asked)
	case anomaly.Errors:
		return fmt.Sprintf("%.0f of %.0f answers were 4xx", a.Errors, a.Answers)
	case anomaly.Unknown:
		return fmt.Sprintf("%.0f of %.0f requests match no endpoint", a.Unknown, a.Asked)
	case anomaly.Spellings:
		return fmt.Sprintf("%.0f of %.0f requests were spelled as no client needs to", a.Disguised, a.Asked)
	}
	if a.Windows < anomaly.Learning {
		return fmt.Sprintf("%.0f requests; what is usual is known after %d windows, not after %d", a.Sent,
			anomaly.Learning, a.Windows)
	}
	return fmt.Sprintf("%.0f requests, where %.0f are usual", a.Sent, a.Usual)
}

// explainScores tells the scores of all principals that have one.
func (x *Explanation) explainScores(l *headgate.Limiter, d *headgate.Look) {
	for n := range 1 + len(d.Plan.Others) {
		who := d.Plan.Of(n)
		s, ok := ScoreOf(l, who)
		if !ok {
			continue
		}
		if n > 0 {
			s.Principal = otherWords(who)
		}
		x.Scores = append(x.Scores, s)
	}
}

// explainScored tells of the rules that apply because of the score of one of the principals.
func (x *Explanation) explainScored(d *headgate.Look, n int, name string) {
	p := &d.Plan
	for i := range p.Charges {
		c := &p.Charges[i]
		if !c.Scored || int(c.Principal) != n {
			continue
		}
		rule := p.Set.Rule(c.Rule)
		why := "applies in addition, because of its score"
		if c.Shadow {
			why = "in shadow: counts because of its score"
		}
		x.Considered = append(x.Considered, Considered{
			Principal: name, Subject: rule.SubjectText(), Level: c.Level.String(), Rule: rule.Title(),
			Applies: true, Why: why + ", by tier " + rule.Tier,
		})
	}
}
