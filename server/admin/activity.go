package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/record"
	"github.com/headgate-io/headgate/server/rules"
	"github.com/headgate-io/headgate/server/warnings"
)

// Trier has rules decide what was asked for in the last hour: those of the database, and then those as each change
// leaves them. There is a result for each, that of the database first.
type Trier func(ctx context.Context, reveal bool, changes []func(*policy.Document)) (*activity.Trial,
	[]activity.Result, error)

// Activity is the answer to GET /v1/activity: what this gateway decided of late.
type Activity struct {
	At            time.Time                  `json:"at"`
	Gateway       string                     `json:"gateway,omitempty"`
	WindowSeconds float64                    `json:"window_seconds"` // of Callers and Endpoints
	Rules         []activity.Rate            `json:"rules"`          // those that deny most first
	Callers       []activity.Denial          `json:"callers"`        // that were denied most often
	Endpoints     []activity.EndpointDenials `json:"endpoints"`
	Warnings      []warnings.Event           `json:"warnings"`       // that are not over, the newest first
	WarningsAll   int                        `json:"warnings_total"` // how many there are of them
}

// Bounds of what an answer about activity lists.
const (
	usualActivity = 20
	mostActivity  = 1000
)

var errNoActivity = fault{notFound, errors.New("Nothing is remembered of decisions here: activity.max_requests is 0.")}

// activityQuery reads how much of the activity somebody wants to see, and whether with the names of callers, which is
// for those who may reset buckets.
func (d *Door) activityQuery(r *http.Request) (most int, reveal bool, err error) {
	if d.Activity == nil {
		return 0, false, errNoActivity
	}
	return listing(r)
}

// listing reads how many callers somebody wants to see at most, and whether with their names.
func listing(r *http.Request) (most int, reveal bool, err error) {
	most = usualActivity
	if text := r.URL.Query().Get("limit"); text != "" {
		if most, err = strconv.Atoi(text); err != nil || most < 1 || most > mostActivity {
			return 0, false, fault{invalidRequest, fmt.Errorf("limit is %q, want 1 to %d", asSent(text), mostActivity)}
		}
	}
	reveal, err = revealed(r)
	return most, reveal, err
}

// revealed reads whether somebody wants to see the names of callers.
func revealed(r *http.Request) (bool, error) {
	switch text := r.URL.Query().Get("reveal"); text {
	case "", "false":
		return false, nil
	case "true":
		return true, mayReveal(r)
	default:
		return false, fault{invalidRequest, fmt.Errorf("reveal is %q, want true or false", asSent(text))}
	}
}

// mayReveal is why whoever makes a call may not see the names of callers, or nil.
func mayReveal(r *http.Request) error {
	if who := callerOf(r); !who.may(record.RoleGrant) {
		return fault{roleMissing,
			fmt.Errorf("Names of callers are for tokens with the role %s, which %s lacks: leave reveal out.",
				record.RoleGrant, who.actor)}
	}
	return nil
}

func (d *Door) activityNow(most int, reveal bool) Activity {
	callers, endpoints := d.Activity.Denied(most, reveal)
	rates := d.Activity.Rates()
	now := Activity{
		At: d.Now().UTC(), Gateway: d.Gateway, WindowSeconds: activity.DeniedWindow.Seconds(),
		Rules: rates[:min(len(rates), most)], Callers: callers, Endpoints: endpoints, Warnings: []warnings.Event{},
	}
	if d.ActiveWarnings != nil {
		active, all := d.ActiveWarnings(most)
		now.Warnings, now.WarningsAll = append(now.Warnings, active...), all // [] where nothing is watched
		for i := range now.Warnings {
			if !reveal {
				now.Warnings[i].Project = ""
			}
		}
	}
	return now
}

func (d *Door) activity(w http.ResponseWriter, r *http.Request) {
	most, reveal, err := d.activityQuery(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	answer(w, http.StatusOK, d.activityNow(most, reveal))
}

func (d *Door) activitySeries(w http.ResponseWriter, r *http.Request) {
	if d.Activity == nil {
		refuseError(w, r, notFound, errNoActivity)
		return
	}
	answer(w, http.StatusOK, d.Activity.Series(r.URL.Query()["rule"]...))
}

// Try is the body of POST /v1/try.
type Try struct {
	// Rules are tried one after the other, each in the place of the rule in force for the same
	// endpoint, project, tier and subject. A rule in shadow is tried as if it were enforced.
	Rules json.RawMessage `json:"rules"`

	Reveal bool `json:"reveal,omitempty"`
}

// mostTries is how many rules are tried for one call.
const mostTries = 24

// Tried is the answer to POST /v1/try.
type Tried struct {
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Part     float64   `json:"part"`     // of the callers, that the numbers were found by
	Callers  int64     `json:"callers"`  // in all
	Requests int64     `json:"requests"` // in all
	Skipped  int64     `json:"skipped"`  // for endpoints that there are no more; not in requests

	// Notes are sentences about what is not remembered of the requests and the tried rules go by,
	// so that they may have decided otherwise.
	Notes []string `json:"notes"`

	Asked   []int64           `json:"asked"`    // requests in each of 60 equal spans of time
	InForce activity.Result   `json:"in_force"` // what the rules of the database would deny
	Tried   []activity.Result `json:"tried"`    // for each of the rules that were tried, in their order
}

// try says what other limits would have denied of what was asked for in the last hour.
func (d *Door) try(w http.ResponseWriter, r *http.Request) {
	var body Try
	err := decode(w, r, &body)
	var list []policy.Rule
	switch {
	case d.Activity == nil || d.Try == nil:
		err = errNoActivity
	case err == nil:
		list, err = readRules(string(body.Rules), "rules")
	}
	if err == nil && (len(list) == 0 || len(list) > mostTries) {
		err = fault{unacceptable, fmt.Errorf("rules has %d entries, want 1 to %d", len(list), mostTries)}
	}
	for i := range list {
		if err == nil {
			err = rules.Check(policy.Document{}, list[i], d.Compile())
		}
	}
	if err == nil && body.Reveal {
		err = mayReveal(r)
	}
	if err != nil {
		k := invalidRequest
		if errors.As(err, new(policy.Problem)) {
			k = unacceptable
		}
		refuseError(w, r, k, err)
		return
	}
	done, err := d.looks.wait(r.Context())
	if err != nil {
		refuseError(w, r, unavailable, err)
		return
	}
	changes := make([]func(*policy.Document), len(list))
	for i, rule := range list {
		changes[i] = func(doc *policy.Document) { putRule(doc, rule) }
	}
	trial, results, err := d.Try(r.Context(), body.Reveal, changes)
	done()
	var wrong policy.Problem
	switch {
	case errors.As(err, &wrong):
		refuse(w, r, unacceptable, err)
		return
	case err != nil:
		refuse(w, r, unavailable, err)
		return
	}
	since, until, part, callers := trial.About()
	answer(w, http.StatusOK, Tried{
		Since: since, Until: until, Part: part, Callers: callers, Requests: trial.Requests(), Skipped: trial.Skipped(),
		Asked: trial.Asked(), InForce: results[0], Tried: results[1:],
		Notes: notes(list, d.Compile().ScoreTiers),
	})
}

// notes says what a trial of rules cannot know.
func notes(list []policy.Rule, scored []string) []string {
	texts := []string{}
	for _, r := range list {
		var text string
		switch of, _ := r.Subject.Counts(); of {
		case policy.SubjectPath:
			text = "Values in paths are not remembered: all that a caller asked for meets one bucket, where the " +
				"rule counts by " + r.SubjectText() + "."
		case policy.SubjectClaim:
			text =
				"Claims of tokens are not remembered: each caller has a bucket of its own, where the rule counts " +
					"by " + r.SubjectText() + "."
		case policy.SubjectIdentifier, policy.SubjectIdentifierIP:
			text = "What callers tried to log in as is not remembered: each address has a bucket of its own, where " +
				"the rule counts by " + r.SubjectText() + "."
		}
		unscored := ""
		if r.Tier != "" && slices.Contains(scored, r.Tier) {
			unscored = "Scores are not remembered: only those who are in tier " + r.Tier +
				" anyway meet the rule, and nobody because of a score."
		}
		for _, text := range []string{text, uncounted(r), unscored} {
			if text != "" && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// uncounted says that answers are not remembered, of a rule that counts some of them.
func uncounted(r policy.Rule) string {
	if r.CountWhen == "" {
		return ""
	}
	return "What the API answered is not remembered: every request counts, where the rule counts answers of " +
		string(r.CountWhen) + " alone, so fewer would be denied than is said here."
}

// putRule puts a rule in the place of the one with its key, enforced.
func putRule(doc *policy.Document, rule policy.Rule) {
	if rule.Mode == policy.Shadow {
		rule.Mode = policy.Enforce
	}
	key := record.KeyOf(rule)
	for i := range doc.Rules {
		if record.KeyOf(doc.Rules[i]) == key {
			doc.Rules[i] = rule
			return
		}
	}
	doc.Rules = append(doc.Rules, rule)
}
