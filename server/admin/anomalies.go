package admin

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/server/activity"
)

// Anomalies is the answer to GET /v1/anomalies: the callers with the highest scores.
type Anomalies struct {
	At            time.Time      `json:"at"`
	Gateway       string         `json:"gateway,omitempty"`
	WindowSeconds float64        `json:"window_seconds"`
	Callers       []ScoredCaller `json:"callers"` // the highest scores first
	Total         int            `json:"total"`   // of those that are told apart
	Counted       int            `json:"counted"` // callers of whom anything is known
	Room          int            `json:"room"`    // callers that there is room for
	Uncounted     uint64         `json:"uncounted"`
}

// ScoredCaller is a caller and its score.
type ScoredCaller struct {
	activity.Caller
	Score int                 `json:"score"`
	Parts []inspect.ScorePart `json:"parts"`
	Tier  string              `json:"tier,omitempty"` // by whose rules it pays as well, as its score is From or more
	From  int                 `json:"from,omitempty"`
}

var errNoScores = fault{notFound, errors.New("Nobody is scored here: anomalies.window is 0.")}

func (d *Door) anomalies(w http.ResponseWriter, r *http.Request) {
	most, reveal, err := listing(r)
	stats, on := d.Limiter.Scores()
	if err == nil && (!on || d.Scored == nil) {
		err = errNoScores
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	told := Anomalies{
		At: d.Now().UTC(), Gateway: d.Gateway, WindowSeconds: stats.Window.Seconds(), Callers: []ScoredCaller{},
		Counted: stats.Used, Room: stats.Callers, Uncounted: stats.Uncounted,
	}
	now := func(who *identity.Principal) uint8 {
		a, _, _ := d.Limiter.Account(who)
		return a.Score.Total
	}
	top, all := d.Scored.Top(most, reveal, now)
	told.Total = all
	for i := range top {
		if score, ok := inspect.ScoreOf(d.Limiter, &top[i].Who); ok {
			told.Callers = append(told.Callers,
				ScoredCaller{top[i].Caller, score.Score, score.Parts, score.Tier, score.From})
		}
	}
	answer(w, http.StatusOK, told)
}
