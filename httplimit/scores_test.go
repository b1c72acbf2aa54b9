package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// TestAnswersForScores: each answer of the API counts once, on whatever way it goes; what others answer in its place,
// and what is cut off, does not.
func TestAnswersForScores(t *testing.T) {
	found := map[string]*policy.Statuses{"GET /a": statuses(t, "404")}
	for name, way := range map[string]struct {
		rule    policy.Rule
		options httplimit.Options
	}{
		"plain":            {policy.Rule{}, httplimit.Options{}},
		"count_when":       {policy.Rule{CountWhen: "404"}, httplimit.Options{}},
		"all rules":        {policy.Rule{}, httplimit.Options{CountWhen: found}},
		"paid afterwards":  {policy.Rule{}, httplimit.Options{Reserve: &httplimit.Reserve{BytesPerToken: 10}}},
		"another endpoint": {policy.Rule{Endpoint: "GET /b", CountWhen: "404"}, httplimit.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			table := anomaly.New(512)
			table.Use(&anomaly.Settings{Window: time.Hour, Weights: anomaly.DefaultWeights})
			way.rule.Limit = 30
			if way.rule.Endpoint == "" {
				way.rule.Endpoint = policy.Default
			}
			b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{way.rule,
				{Endpoint: policy.All, Limit: 30, Per: time.Hour}},
				func(o *headgate.Options) { o.Scores, o.Unknown = table, headgate.LimitUnknown })
			h := httplimit.Handler(b.Limiter, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch text := r.URL.Query().Get("answer"); text {
				case "cut":
					panic(http.ErrAbortHandler)
				case "instead":
					httplimit.Unanswered(w)
					w.WriteHeader(400)
				case "":
				default:
					status, _ := strconv.Atoi(text)
					w.WriteHeader(status)
				}
			}), way.options)
			ask := func(target string) {
				defer func() { _ = recover() }()
				r := httptest.NewRequest("GET", target, nil)
				r.RemoteAddr = trial.Client.String() + ":1"
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			for _, answer := range []string{"", "404", "403", "429", "500", "cut", "instead"} {
				ask("/a?answer=" + answer)
			}
			ask("/nowhere?answer=404") // is of the part unknown
			for range 60 {
				ask("/a?answer=204") // of which most are denied
			}
			a, _, _ := b.Account(&identity.Principal{Prefix: netip.PrefixFrom(trial.Client, 32)})
			if a.Sent != 68 || a.Asked != 31 || a.Errors != 2 || a.Answers != 28 || a.Unknown != 1 {
				t.Errorf("%+v, want 68 requests, 31 of them let through, 28 answers, 2 of them errors", a)
			}
		})
	}
}
