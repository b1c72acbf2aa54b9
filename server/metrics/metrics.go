// Package metrics turns decisions into Prometheus series of bounded number:
// nothing a client sends, and no tenant, is ever a label.
package metrics

import (
	"iter"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/perrule"
	"github.com/headgate-io/headgate/penalty"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
	"github.com/headgate-io/headgate/server/activity"
	"github.com/headgate-io/headgate/server/decisionlog"
	"github.com/headgate-io/headgate/server/hold"
	"github.com/headgate-io/headgate/server/quota"
	"github.com/headgate-io/headgate/server/trace"
	"github.com/headgate-io/headgate/server/warnings"
	"github.com/headgate-io/headgate/slot"
)

// maxRules bounds the values of the label "rule". Rules beyond it count
// together under otherRules.
const (
	maxRules   = 1000
	otherRules = "(other rules)"
	noRule     = ""
	exempt     = "(exempt)" // rules of mode allow, whose names may be many networks
)

// Options says where the gauges come from. All are required, but as said.
type Options struct {
	Policies func() policy.Status
	Keys     func() KeyStatus
	Buckets  func() memory.Stats

	// FalseDenials estimates, for the rule that suffers most, the part of its new
	// clients that is denied because of what other buckets left in the table.
	FalseDenials func(memory.Stats) float64

	// TooSmall says whether the bucket table is.
	TooSmall func() bool

	Reservations func() reservation.Stats

	// Slots tells what became of the times that refused callers were given.
	Slots func() slot.Stats

	// Penalties tells what was done to callers who were denied again and again.
	Penalties func() penalty.Stats

	// Scores tells of callers that are scored; false where none is, or nil.
	Scores func() (s anomaly.Stats, on bool)

	// Waiters tells how many requests wait for their turn, and how many may.
	Waiters func() (waiting, most int)

	// WithoutPlace tells how many requests could not wait: as none could, as their caller had its share, or as the
	// rest was for higher classes.
	WithoutPlace func() (full, beyondShare, lowerClass uint64)

	// Rejections tells how many credentials were ignored, by reason.
	Rejections func() iter.Seq2[identity.Rejection, uint64]

	// Regions tells of the table of regions, Balancer of connections by the
	// PROXY protocol; false, or nil: there is none.
	Regions  func() (s RegionStatus, on bool)
	Balancer func() (accepted uint64, refused map[string]uint64)
	// Identifiers tells how many bodies had a fault, and how many none. Where no
	// body was read it says 0 of all.
	Identifiers func(body.Fault) uint64

	// Calls tells the same of bodies that hold requests.
	Calls func(body.Fault) uint64

	// Ended tells how many bodies ended, or were refused, as their callers had no more.
	Ended func() uint64

	// Holds tells what clients hold of each listener. Nil: nothing listens.
	Holds func() map[string]hold.Stats

	// Tokens and TLS tell of what is not always in use: false, or nil, where it is not.
	Tokens func() (s TokenStatus, on bool)
	TLS    func() TLSStatus

	// Agents tells of the keys of each agent that is known by its signatures; none without.
	Agents func() []AgentStatus

	// OpenRequests tells how many requests for a higher limit wait for a decision.
	OpenRequests func() int

	// Reverts tells of auto_revert; nil if it is off.
	Reverts func() RevertStatus

	// Kept tells of the file that keeps buckets over a restart; nil where there is none.
	Kept func() KeptStatus

	// KeptUsage tells when usage.file was written; nil where there is none.
	KeptUsage func() time.Time

	// Reloads tells of reloads of the configuration; nil where nothing reloads.
	Reloads func() ReloadStatus

	// Fleet tells whether others can see this replica, and how often telling
	// them failed; nil if it is not to be seen.
	Fleet func() (ok bool, failures uint64)

	// AdminTokens tells of the tokens of the admin listener. Nil: none is kept.
	AdminTokens func() AdminTokenStatus

	// Store tells of the store of shared buckets; nil if there is none.
	Store func() StoreStatus

	// Gossip tells how gateways keep limits in step without one; nil if they do not.
	Gossip func() GossipStatus

	// Envelopes tells of at most MaxEnvelopes rules, each title and scope once.
	// Nil tells of none.
	Envelopes func() []Envelope

	// Places tells how many requests are under way, by the titles of the rules that limit it, as many as
	// MaxEnvelopes at most. Nil tells of none.
	Places func() map[string]int64

	// Warnings tells of those that people were given; false if nothing is watched.
	Warnings func() (w Warnings, on bool)

	// DecisionLog tells of the decision log; false if there is none.
	DecisionLog func() (s decisionlog.Stats, on bool)
	// Traces tells of spans; false if there are none.
	Traces func() (s trace.Stats, on bool)

	// Adaptive tells of the endpoints whose rates follow the API. Nil tells of none.
	Adaptive func() []adaptive.Status

	// Quotas tells what Envoys were lent. Nil tells of nothing.
	Quotas func() quota.Status

	// Descriptors tells of the limits of descriptors. Nil tells of none.
	Descriptors func() DescriptorStatus

	Version string // of the program

	Now func() time.Time // default time.Now
}

// DescriptorStatus is the state of the limits of descriptors in force.
type DescriptorStatus struct {
	Limits   int
	Failures uint64
	OK       bool // the newest files are in force
}

// RegionStatus is the state of the table of regions in force.
type RegionStatus struct {
	Ranges   int
	Bytes    int
	Failures uint64
	OK       bool // the newest files are in force
}

// KeyStatus is the state of the API keys in force.
type KeyStatus struct {
	Keys     int
	Failures uint64
	Stale    time.Duration // since they were last known to be current
	Emptied  bool          // the database has none, and is not believed
}

// Meter counts decisions and serves the metrics page.
type Meter struct {
	registry    *prometheus.Registry
	allowed     *prometheus.CounterVec
	denied      *prometheus.CounterVec
	shadowed    *prometheus.CounterVec
	abandoned   *prometheus.CounterVec
	upstream    *prometheus.CounterVec
	questions   *prometheus.CounterVec
	descriptors *prometheus.CounterVec
	overrides   *prometheus.CounterVec
	quotas      *prometheus.CounterVec
	early       *prometheus.CounterVec
	classes     *prometheus.CounterVec
	stages      *prometheus.HistogramVec
	callers     [identity.Kinds]prometheus.Counter
	scores      prometheus.Histogram
	lost        prometheus.Counter
	now         func() time.Time

	calls      *prometheus.CounterVec
	unrecorded prometheus.Counter

	refusals [headgate.Reasons]prometheus.Counter // denied without a rule
	byRule   perrule.Values[ruleCounters]

	mu     sync.Mutex
	titles map[string]*ruleCounters // guarded by mu
}

type ruleCounters struct {
	allowed, abandoned, overLimit, aboveBurst, inPenalty, shadowed, early prometheus.Counter

	use use
}

// Rules are what rules have done since the process started, by their titles, as far as the label "rule" tells them
// apart.
func (m *Meter) Rules() iter.Seq2[string, activity.Counters] {
	m.mu.Lock()
	defer m.mu.Unlock()
	titles := maps.Clone(m.titles)
	return func(yield func(string, activity.Counters) bool) {
		for title, c := range titles {
			counters := activity.Counters{
				Admitted: valueOf(c.allowed), Denied: valueOf(c.overLimit) + valueOf(c.aboveBurst) +
					valueOf(c.inPenalty), Shadow: valueOf(c.shadowed), Abandoned: valueOf(c.abandoned),
			}
			if !yield(title, counters) {
				return
			}
		}
	}
}

func valueOf(c prometheus.Counter) uint64 {
	var m dto.Metric
	_ = c.Write(&m) // of a counter of ours it does not fail
	return uint64(m.GetCounter().GetValue())
}

// Warnings are those that people were given.
type Warnings struct {
	warnings.Stats

	// Sent counts events by what became of them; nil if none are sent.
	Sent map[string]uint64
}

// New returns a Meter with a registry of its own.
func New(o Options) *Meter {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headgate_" + name, Help: help}, labels)
	}
	m := &Meter{
		registry: prometheus.NewRegistry(),
		allowed:  counter("allowed_total", "Requests allowed, by the rule that came closest to denying.", "rule"),
		denied: counter("denied_total", "Requests denied, by the rule that denied and the reason.",
			"rule", "reason"),
		abandoned: counter("abandoned_total",
			"Requests allowed whose caller left before their turn, by the rule that counts them as allowed.", "rule"),
		shadowed: counter("shadow_denied_total", "Requests that a rule in shadow mode would have denied.", "rule"),
		upstream: counter("upstream_failures_total", "Answers given in the API's place.", "status"),
		questions: counter("questions_refused_total",
			"Questions of proxies that were not answered by a decision, by the reason.", "reason"),
		descriptors: counter("descriptors_total",
			"Descriptors of Envoy that met a limit, by the limit and what became of them.", "limit", "result"),
		overrides: counter("descriptor_overrides_total",
			"Limits that questions of Envoy set themselves, by whether they were obeyed.", "result"),
		quotas: counter("quota_requests_total",
			"Requests that Envoys decided by themselves and reported, by the limit and what became of them.",
			"limit", "result"),
		early: counter("early_retries_total",
			"Requests denied whose caller had been denied by the same rule, and came back before it was told to.",
			"rule"),
		classes: counter("class_requests_total",
			"Requests that met a limit, by their class, where rules tell classes apart, and what became of them.",
			"class", "result"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_stage_seconds", Help: "Time that a stage of a decision took, of one decision in many.",
			Buckets: stageBuckets,
		}, []string{"stage"}),
		scores: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "headgate_anomaly_score",
			Help:    "Requests of callers that have a score, by the score that they have then.",
			Buckets: prometheus.LinearBuckets(0, 10, 11),
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_unchecked_total",
			Help: "Requests allowed unchecked because the buckets could not answer and their rules say open.",
		}),
		calls: counter("admin_calls_total", "Calls of the admin listener, by operation and class of status.",
			"operation", "status"),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_admin_calls_unrecorded_total",
			Help: "Calls of the admin listener that changed nothing and could not be written down.",
		}),
		titles: map[string]*ruleCounters{}, now: o.Now,
	}
	if m.now == nil {
		m.now = time.Now
	}
	for _, reason := range []headgate.Reason{
		headgate.NoRule, headgate.UnknownEndpoint, headgate.UnknownMethod, headgate.InvalidTarget,
		headgate.StoreFailed, headgate.NoPolicies, headgate.RulesStale, headgate.InvalidCost, headgate.ReservationsFull,
		headgate.TooManyCredentials, headgate.BadCredential, headgate.CredentialUnverified, headgate.Blocked,
	} {
		m.refusals[reason] = m.denied.WithLabelValues(noRule, reason.String())
	}
	callers := counter("callers_total",
		"Decisions about callers that were told apart, by how: address is of those who proved nothing.", "kind")
	for kind := range m.callers {
		m.callers[kind] = callers.WithLabelValues(identity.Kind(kind).String())
	}
	for _, status := range []int{http.StatusBadGateway, http.StatusGatewayTimeout} {
		m.upstream.WithLabelValues(strconv.Itoa(status)) // there from the start, so that a rate shows the first one
	}
	for _, stage := range []string{"endpoint", "identity", "policy", "bucket"} {
		m.stages.WithLabelValues(stage)
	}
	m.registry.MustRegister(callers, m.scores, m.early, m.classes, m.stages, m.allowed, m.denied, m.shadowed,
		m.abandoned, m.upstream, m.questions, m.descriptors, m.overrides, m.quotas, m.lost, m.calls, m.unrecorded,
		sources{&useGauges{meter: m}, &gauges{o}, &holdGauges{o.Holds}, &fleetGauges{o.Fleet},
			&revertGauges{o.Reverts}, &reloadGauges{o.Reloads}, &keptGauges{o.Kept, o.KeptUsage}, &storeGauges{o.Store},
			&gossipGauges{o.Gossip}, &envelopeGauges{o.Envelopes}, &credentialGauges{o.Tokens, o.Agents, o.TLS},
			&adminGauges{o.AdminTokens}},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics page.
func (m *Meter) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// UpstreamFailed counts an answer that the gateway gave in the API's place.
func (m *Meter) UpstreamFailed(status int) {
	m.upstream.WithLabelValues(strconv.Itoa(status)).Inc()
}

// Descriptor counts a descriptor of Envoy that met a limit, which is one of the
// configuration.
func (m *Meter) Descriptor(limit string, over, shadow bool) {
	result := "allowed"
	switch {
	case over && shadow:
		result = "shadow_denied"
	case over:
		result = "denied"
	}
	m.descriptors.WithLabelValues(limit, result).Inc()
}

// Overridden counts a limit that a question of Envoy set itself.
func (m *Meter) Overridden(obeyed bool) {
	result := "ignored"
	if obeyed {
		result = "obeyed"
	}
	m.overrides.WithLabelValues(result).Inc()
}

// Quota counts requests that an Envoy decided by itself, under a limit of the
// configuration.
func (m *Meter) Quota(limit string, allowed, denied uint64) {
	for result, n := range map[string]uint64{"allowed": allowed, "denied": denied} {
		if n > 0 {
			m.quotas.WithLabelValues(limit, result).Add(float64(n))
		}
	}
}

// QuestionRefused counts a question of a proxy that was not answered by a
// decision, by a word of decisions.Fault.
func (m *Meter) QuestionRefused(reason string) {
	m.questions.WithLabelValues(reason).Inc()
}

// Observe counts one decision. It fits headgate.Options.Observe.
func (m *Meter) Observe(r *headgate.Request, d *headgate.Decision) {
	if d.Lost {
		m.lost.Inc()
	}
	if d.Stages != nil {
		m.observeStages(d.Stages)
	}
	if who := &d.Principal; who.Prefix.IsValid() || who.ID != "" {
		m.callers[who.Kind].Inc()
	}
	binding, ruled := d.Binding()
	if ruled && d.Class != policy.Unclassed {
		m.countClass(d)
	}
	switch {
	case ruled && (d.Allowed || d.ByLimit()): // and not by a bad credential, once the rules had let it pass
		m.countRuled(d, binding)
	case d.Reason == headgate.Exempt && d.Allowed:
		m.titled(exempt).allowed.Inc()
	case d.Allowed:
		m.rule(nil, 0).allowed.Inc()
	default:
		m.refusals[d.Reason].Inc()
	}
	verdicts := d.Verdicts()
	for i := range verdicts {
		v := &verdicts[i]
		if v.Outcome.Unknown || v.Earlier || v.Unparsable {
			continue // no bucket was asked, or not the rule's own
		}
		counters := m.rule(d.Policies(), v.Rule)
		took := d.Cost
		switch terms := d.Policies().Terms(v.Rule); {
		case terms.Concurrent: // a place, whatever it costs
			took = min(took, 1)
		case terms.PerRequest:
			took = min(took, max(1, r.Parts))
		}
		counters.use.note(d.Policies().Holds(v.Rule, d.Class, v.Lowered), took, &v.Outcome, d.Allowed)
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.Shadow && !v.Outcome.Allowed {
			m.rule(d.Policies(), v.Rule).shadowed.Inc()
		}
	}
}

// Abandoned counts a request that Observe has counted, whose caller left before its turn. It fits
// headgate.Options.Abandoned.
func (m *Meter) Abandoned(_ *headgate.Request, d *headgate.Decision, _ int64) {
	if binding, ruled := d.Binding(); ruled {
		m.rule(d.Policies(), binding.Rule).abandoned.Inc()
	}
}

// Scored counts a request of a caller that has a score.
func (m *Meter) Scored(score anomaly.Score) { m.scores.Observe(float64(score.Total)) }

// CameEarly counts a denied request whose caller had been told to come later. It fits activity.Options.Early.
func (m *Meter) CameEarly(d *headgate.Decision) {
	if binding, ruled := d.Binding(); ruled {
		m.rule(d.Policies(), binding.Rule).early.Inc()
	}
}

// countClass counts a request by its class, of which there are four.
func (m *Meter) countClass(d *headgate.Decision) {
	result := "denied"
	if d.Allowed {
		result = "allowed"
	}
	m.classes.WithLabelValues(d.Class.String(), result).Inc()
}

func (m *Meter) countRuled(d *headgate.Decision, binding headgate.Verdict) {
	counters := m.rule(d.Policies(), binding.Rule)
	switch {
	case d.Allowed:
		counters.allowed.Inc()
	case d.Reason == headgate.CostAboveBurst:
		counters.aboveBurst.Inc()
	case d.Reason == headgate.InPenalty:
		counters.inPenalty.Inc()
	default:
		counters.overLimit.Inc()
	}
}

// rule returns the counters of a rule.
func (m *Meter) rule(set *policy.Set, id policy.RuleID) *ruleCounters {
	if set == nil {
		return m.titled(noRule)
	}
	return m.byRule.Get(set, id, func(rule policy.Rule) *ruleCounters { return m.titled(rule.Title()) })
}

func (m *Meter) titled(title string) *ruleCounters {
	m.mu.Lock()
	defer m.mu.Unlock()
	counters, ok := m.titles[title]
	if ok {
		return counters
	}
	if len(m.titles) >= maxRules {
		title = otherRules
		if counters, ok = m.titles[title]; ok {
			return counters
		}
	}
	counters = &ruleCounters{
		allowed:    m.allowed.WithLabelValues(title),
		abandoned:  m.abandoned.WithLabelValues(title),
		overLimit:  m.denied.WithLabelValues(title, headgate.OverLimit.String()),
		aboveBurst: m.denied.WithLabelValues(title, headgate.CostAboveBurst.String()),
		inPenalty:  m.denied.WithLabelValues(title, headgate.InPenalty.String()),
		shadowed:   m.shadowed.WithLabelValues(title),
		early:      m.early.WithLabelValues(title),
	}
	m.titles[title] = counters
	return counters
}
