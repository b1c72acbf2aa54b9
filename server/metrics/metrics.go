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

	// Waiters tells how many requests wait for their turn, and how many may.
	Waiters func() (waiting, most int)

	// Rejections tells how many credentials were ignored, by reason.
	Rejections func() iter.Seq2[identity.Rejection, uint64]

	// Regions tells of the table of regions, Balancer of connections by the
	// PROXY protocol. Either may be nil: there is none.
	Regions  func() RegionStatus
	Balancer func() (accepted uint64, refused map[string]uint64)
	// Identifiers tells how many bodies had a fault, and how many none. Where no
	// body was read it says 0 of all.
	Identifiers func(body.Fault) uint64

	// Holds tells what clients hold of each listener. Nil: nothing listens.
	Holds func() map[string]hold.Stats

	// Tokens and TLS tell of what is not always in use; nil where it is not.
	Tokens func() TokenStatus
	TLS    func() TLSStatus

	// OpenRequests tells how many requests for a higher limit wait for a decision.
	OpenRequests func() int

	// Reverts tells of auto_revert; nil if it is off.
	Reverts func() RevertStatus

	// Kept tells of the file that keeps buckets over a restart; nil where there is none.
	Kept func() KeptStatus

	// Reloads tells of reloads of the configuration; nil where nothing reloads.
	Reloads func() ReloadStatus

	// Fleet tells whether others can see this replica, and how often telling
	// them failed; nil if it is not to be seen.
	Fleet func() (ok bool, failures uint64)

	// AdminTokens tells of the tokens of the admin listener. Nil: none is kept.
	AdminTokens func() AdminTokenStatus

	// Store tells of the store of shared buckets; nil if there is none.
	Store func() StoreStatus

	// Envelopes tells of at most MaxEnvelopes rules, each title and scope once.
	// Nil tells of none.
	Envelopes func() []Envelope

	// Warnings tells of those that people were given; nil if nothing is watched.
	Warnings func() Warnings

	// DecisionLog tells of the decision log; nil if there is none.
	DecisionLog func() decisionlog.Stats
	// Traces tells of spans; nil if there are none.
	Traces func() trace.Stats

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
	upstream    *prometheus.CounterVec
	questions   *prometheus.CounterVec
	descriptors *prometheus.CounterVec
	overrides   *prometheus.CounterVec
	quotas      *prometheus.CounterVec
	early       *prometheus.CounterVec
	stages      *prometheus.HistogramVec
	callers     [identity.LoggedIn + 1]prometheus.Counter
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
	allowed, overLimit, aboveBurst, inPenalty, shadowed, early prometheus.Counter

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
				Admitted: valueOf(c.allowed), Denied: valueOf(c.overLimit) + valueOf(c.aboveBurst) + valueOf(c.inPenalty), Shadow: valueOf(c.shadowed),
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
		registry:    prometheus.NewRegistry(),
		allowed:     counter("allowed_total", "Requests allowed, by the rule that came closest to denying.", "rule"),
		denied:      counter("denied_total", "Requests denied, by the rule that denied and the reason.", "rule", "reason"),
		shadowed:    counter("shadow_denied_total", "Requests that a rule in shadow mode would have denied.", "rule"),
		upstream:    counter("upstream_failures_total", "Answers given in the API's place.", "status"),
		questions:   counter("questions_refused_total", "Questions of proxies that were not answered by a decision, by the reason.", "reason"),
		descriptors: counter("descriptors_total", "Descriptors of Envoy that met a limit, by the limit and what became of them.", "limit", "result"),
		overrides:   counter("descriptor_overrides_total", "Limits that questions of Envoy set themselves, by whether they were obeyed.", "result"),
		quotas:      counter("quota_requests_total", "Requests that Envoys decided by themselves and reported, by the limit and what became of them.", "limit", "result"),
		early:       counter("early_retries_total", "Requests denied whose caller had been denied by the same rule, and came back before it was told to.", "rule"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_stage_seconds", Help: "Time that a stage of a decision took, of one decision in many.", Buckets: stageBuckets,
		}, []string{"stage"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_unchecked_total", Help: "Requests allowed unchecked because the buckets could not answer and their rules say open.",
		}),
		calls: counter("admin_calls_total", "Calls of the admin listener, by operation and class of status.", "operation", "status"),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_admin_calls_unrecorded_total", Help: "Calls of the admin listener that changed nothing and could not be written down.",
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
	callers := counter("callers_total", "Decisions about callers that were told apart, by how: address is of those who proved nothing.", "kind")
	for kind := range m.callers {
		m.callers[kind] = callers.WithLabelValues(identity.Kind(kind).String())
	}
	for _, status := range []int{http.StatusBadGateway, http.StatusGatewayTimeout} {
		m.upstream.WithLabelValues(strconv.Itoa(status)) // there from the start, so that a rate shows the first one
	}
	for _, stage := range []string{"endpoint", "identity", "policy", "bucket"} {
		m.stages.WithLabelValues(stage)
	}
	m.registry.MustRegister(callers, m.early, m.stages, &useGauges{meter: m}, m.allowed, m.denied, m.shadowed, m.upstream, m.questions, m.descriptors, m.overrides, m.quotas, m.lost, m.calls, m.unrecorded,
		&gauges{o}, &holdGauges{o.Holds}, &fleetGauges{o.Fleet}, &revertGauges{o.Reverts}, &reloadGauges{o.Reloads}, &keptGauges{o.Kept}, &storeGauges{o.Store}, &envelopeGauges{o.Envelopes}, &credentialGauges{o.Tokens, o.TLS}, &adminGauges{o.AdminTokens}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
func (m *Meter) Observe(_ *headgate.Request, d *headgate.Decision) {
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
	switch {
	case ruled:
		m.countRuled(d, binding)
	case d.Reason == headgate.Exempt:
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
		counters.use.note(d.Policies().Terms(v.Rule).Shape.Burst(), &v.Outcome, d)
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.Shadow && !v.Outcome.Allowed {
			m.rule(d.Policies(), v.Rule).shadowed.Inc()
		}
	}
}

// CameEarly counts a denied request whose caller had been told to come later. It fits activity.Options.Early.
func (m *Meter) CameEarly(d *headgate.Decision) {
	if binding, ruled := d.Binding(); ruled {
		m.rule(d.Policies(), binding.Rule).early.Inc()
	}
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
		overLimit:  m.denied.WithLabelValues(title, headgate.OverLimit.String()),
		aboveBurst: m.denied.WithLabelValues(title, headgate.CostAboveBurst.String()),
		inPenalty:  m.denied.WithLabelValues(title, headgate.InPenalty.String()),
		shadowed:   m.shadowed.WithLabelValues(title),
		early:      m.early.WithLabelValues(title),
	}
	m.titles[title] = counters
	return counters
}

// gauges reads the state of policies and buckets when the page is asked for.
type gauges struct{ options Options }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headgate_"+name, help, labels, nil)
}

var (
	descBuild       = describe("build_info", "The version of the program, as a label.", "version")
	descVersion     = describe("policy_info", "The version of the rules in force, as a label.", "version")
	descRules       = describe("policy_rules", "Rules in force.")
	descStaleness   = describe("policy_staleness_seconds", "Time since the rules were last known to be current.")
	descStanding    = describe("policy_fallback", "1 at what happens to requests: none while the rules can be relied on; else keep, limit or deny, because they are stale or there is none.", "mode")
	descFailures    = describe("policy_reload_failures_total", "Reloads that failed and left the last good rules in force.")
	descHealthy     = describe("policy_reload_ok", "1 if the newest reload succeeded, 0 if the last good rules are in force.")
	descFromDisk    = describe("policy_from_disk", "1 while the rules in force come from the copy on disk.")
	descEmptied     = describe("policy_emptied", "1 while the database has no rules, which is taken for an accident: the last good ones are in force.")
	descCopy        = describe("policy_copy_ok", "1 if the last good rules could be written to disk, 0 if a start without the database would find old ones.")
	descKeys        = describe("api_keys", "API keys in force.")
	descKeyFailures = describe("api_key_reload_failures_total", "Reloads of the API keys that failed and left the last good ones in force.")
	descKeysStale   = describe("api_keys_staleness_seconds", "Time since the API keys were last known to be current.")
	descKeysEmptied = describe("api_keys_emptied", "1 while the database has no API keys, which is taken for an accident: the last good ones are in force.")
	descBuckets     = describe("buckets", "Live buckets: those that are not full.")
	descCapacity    = describe("buckets_capacity", "Slots of the bucket table.")
	descCreated     = describe("buckets_created_total", "Buckets created.")
	descOccupancy   = describe("buckets_occupancy_ratio", "Part of the slots whose bucket is not full.")
	descDenials     = describe("buckets_false_denials_ratio", "Estimated part of the new clients of a rule that is denied because the table is crowded, for the rule that suffers most.")
	descTooSmall    = describe("buckets_table_too_small", "1 while the table is too small: give it more by max_buckets or max_bytes.")
	descNewcomers   = describe("buckets_refused_total", "Look-ups of new clients that found no room, under refuse_newcomers.")
	descBytes       = describe("buckets_bytes", "Memory of the bucket table.")
	descShapes      = describe("buckets_shapes", "Different limits that buckets of the table have.")
	descLogs        = describe("logs", "Sliding logs in use: those that are not full.")
	descLogRoom     = describe("logs_capacity", "Sliding logs that there is room for.")
	descWaiters     = describe("waiters", "Requests that wait for their turn under rules with algorithm leaky_bucket, or may have to.")
	descMaxWaiters  = describe("waiters_capacity", "Requests that may wait at once.")
	descOutstanding = describe("reservations", "Reservations that are neither settled nor expired.")
	descPlaces      = describe("reservations_capacity", "Reservations that may be outstanding at once.")
	descWarned      = describe("warnings_total", "Warnings that began, by kind.", "kind")
	descWarning     = describe("warnings", "Warnings that are not over, by kind.", "kind")
	descUnwarned    = describe("warnings_lost_total", "Warnings of callers that were not given, as too many were.")
	descSent        = describe("warning_events_total", "Events sent to the webhook, by what became of them.", "outcome")
	descPenalties   = describe("penalties_total", "Times that a caller was blocked for a time, because a rule had denied it again and again.")
	descUncounted   = describe("penalties_uncounted_total", "Denials that were not counted towards a penalty, because there was no room for the caller.")
	descSlots       = describe("slots", "Times that refused callers have for themselves.")
	descSlotted     = describe("slots_total", "Times given to callers, by what they are and what became of reserved ones.", "outcome")
	descDecisions   = describe("decision_log_lines_total", "Lines of the decision log, by what became of them.", "outcome")
	descSpans       = describe("trace_spans_total", "Spans of traces, by what became of them: sent, or lost as the collector did not take them.", "outcome")
	descReserved    = describe("reservations_total", "Reservations by what became of them.", "outcome")
	descRejected    = describe("credentials_rejected_total", "Credentials presented that failed validation and were ignored.", "reason")
	descRequests    = describe("limit_requests_open", "Requests for a higher limit that wait for a decision.")
	descRegions     = describe("region_ranges", "Ranges of the table of regions in force.")
	descRegionBytes = describe("region_bytes", "Memory of the table of regions.")
	descRegionsOK   = describe("region_reload_ok", "1 if the newest region files are in force, 0 if the last good ones are.")

	descRegionFailures = describe("region_reload_failures_total", "Reloads of the region files that failed and left the last good table in force.")

	descLimits           = describe("descriptor_limits", "Limits of descriptors in force.")
	descLimitsOK         = describe("descriptor_reload_ok", "1 if the newest files of descriptors are in force, 0 if the last good ones are.")
	descQuotaBorrowers   = describe("quota_streams", "Envoys that decide by themselves, by what they are lent.")
	descQuotaBuckets     = describe("quota_buckets", "Buckets that they know, of all of them.")
	descQuotaAssignments = describe("quota_assignments_total", "What they were told to do, by kind.", "kind")
	descQuotaTokens      = describe("quota_tokens_total", "Tokens that they were lent, that came back unused, and that were charged afterwards.", "kind")
	descQuotaFaults      = describe("quota_faults_total", "Reports of buckets beyond a bound, and those for which the store could not be asked.", "reason")

	descLimitFailures = describe("descriptor_reload_failures_total", "Reloads of the files of descriptors that failed and left the last good limits in force.")

	descProxyHeaders = describe("proxy_protocol_connections_total", "Connections whose PROXY header was believed.")
	descProxyRefused = describe("proxy_protocol_refused_total", "Connections closed for their PROXY header, or for having none.", "reason")

	descEvicted     = describe("buckets_evicted_total", "Buckets evicted to make room: full ones lose nothing, the debt of the others is remembered.", "state")
	descIdentifiers = describe("identifiers_total", "Requests to endpoints whose bodies are read, by whether an identifier was found: none is no fault.", "fault")
)

func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descBuild, descVersion, descRules, descStaleness, descStanding, descFailures, descHealthy,
		descFromDisk, descEmptied, descCopy, descKeys, descKeyFailures, descKeysStale, descKeysEmptied, descBuckets, descCapacity, descCreated, descEvicted, descRejected,
		descRegions, descRegionBytes, descRegionsOK, descRegionFailures, descLimits, descLimitsOK, descLimitFailures, descProxyHeaders, descProxyRefused,
		descOccupancy, descDenials, descTooSmall, descRequests, descNewcomers, descBytes, descShapes, descLogs, descLogRoom, descWaiters, descMaxWaiters, descOutstanding, descPlaces, descReserved, descSlots, descSlotted, descWarned, descWarning, descUnwarned, descSent, descPenalties, descUncounted, descIdentifiers,
		descSpans, descDecisions, descQuotaBorrowers, descQuotaBuckets, descQuotaAssignments, descQuotaTokens, descQuotaFaults} {
		out <- d
	}
}

func (g *gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	rules, keys, table := g.options.Policies(), g.options.Keys(), g.options.Buckets()
	gauge(descBuild, 1, g.options.Version)
	gauge(descVersion, 1, rules.Version)
	gauge(descRules, float64(rules.Rules))
	gauge(descStaleness, rules.Stale.Seconds())
	for _, mode := range []string{"none", "keep", "limit", "deny"} {
		gauge(descStanding, truth(mode == fallback(rules.Standing)), mode)
	}
	count(descFailures, rules.Failures)
	gauge(descHealthy, truth(rules.LastError == ""))
	gauge(descFromDisk, truth(rules.FromDisk))
	gauge(descEmptied, truth(rules.Emptied))
	gauge(descCopy, truth(rules.CopyError == ""))
	gauge(descKeys, float64(keys.Keys))
	count(descKeyFailures, keys.Failures)
	gauge(descKeysStale, keys.Stale.Seconds())
	gauge(descKeysEmptied, truth(keys.Emptied))
	gauge(descBuckets, float64(table.Live))
	gauge(descCapacity, float64(table.Capacity))
	count(descCreated, uint64(table.Created))
	count(descEvicted, uint64(table.EvictedFull), "full")
	count(descEvicted, uint64(table.EvictedInDebt), "in_debt")
	gauge(descOccupancy, table.Occupancy)
	gauge(descDenials, g.options.FalseDenials(table))
	gauge(descTooSmall, truth(g.options.TooSmall()))
	count(descNewcomers, table.Refused)
	gauge(descBytes, float64(table.Bytes))
	gauge(descShapes, float64(table.Shapes))
	gauge(descLogs, float64(table.Logs))
	gauge(descLogRoom, float64(table.MaxLogs))
	gauge(descRequests, float64(g.options.OpenRequests()))
	waiting, most := g.options.Waiters()
	gauge(descWaiters, float64(waiting))
	gauge(descMaxWaiters, float64(most))
	slots := g.options.Slots()
	gauge(descSlots, float64(slots.Slots))
	count(descSlotted, slots.Spaced, "spaced")
	count(descSlotted, slots.Reserved, "reserved")
	count(descSlotted, slots.Kept, "kept")
	count(descSlotted, slots.NoShows, "no_show")
	count(descSlotted, slots.HeldBack, "held_back")
	penalties := g.options.Penalties()
	count(descPenalties, penalties.Begun)
	count(descUncounted, penalties.Lost)
	reserved := g.options.Reservations()
	gauge(descOutstanding, float64(reserved.Outstanding))
	gauge(descPlaces, float64(reserved.Capacity))
	count(descReserved, reserved.Made, "made")
	count(descReserved, reserved.Settled, "settled")
	count(descReserved, reserved.Expired, "expired")
	count(descReserved, reserved.Refused, "refused")
	if g.options.Warnings != nil {
		w := g.options.Warnings()
		for kind, n := range w.Begun {
			count(descWarned, n, kind)
			gauge(descWarning, float64(w.Active[kind]), kind)
		}
		count(descUnwarned, w.Lost)
		for outcome, n := range w.Sent {
			count(descSent, n, outcome)
		}
	}
	if g.options.DecisionLog != nil {
		s := g.options.DecisionLog()
		count(descDecisions, s.Lines, "written")
		count(descDecisions, s.Skipped, "skipped")
		count(descDecisions, s.Lost, "lost")
	}
	if g.options.Traces != nil {
		s := g.options.Traces()
		count(descSpans, s.Sent, "sent")
		count(descSpans, s.Lost, "lost")
	}
	g.addresses(gauge, count)
	for fault := range body.Fault(body.Faults) {
		count(descIdentifiers, g.options.Identifiers(fault), fault.String())
	}
	for reason, n := range g.options.Rejections() {
		count(descRejected, n, reason.Code())
	}
}

// addresses tells what is known of where requests come from.
func (g *gauges) addresses(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	if g.options.Regions != nil {
		s := g.options.Regions()
		gauge(descRegions, float64(s.Ranges))
		gauge(descRegionBytes, float64(s.Bytes))
		gauge(descRegionsOK, truth(s.OK))
		count(descRegionFailures, s.Failures)
	}
	if g.options.Descriptors != nil {
		s := g.options.Descriptors()
		gauge(descLimits, float64(s.Limits))
		gauge(descLimitsOK, truth(s.OK))
		count(descLimitFailures, s.Failures)
	}
	if g.options.Quotas != nil {
		s := g.options.Quotas()
		gauge(descQuotaBorrowers, float64(s.Borrowers))
		gauge(descQuotaBuckets, float64(s.Buckets))
		for kind, n := range map[string]uint64{"tokens": s.Grants, "deny": s.Denials, "abandon": s.Abandoned} {
			count(descQuotaAssignments, n, kind)
		}
		for kind, n := range map[string]uint64{"lent": s.Lent, "returned": s.Returned, "charged_late": s.Late} {
			count(descQuotaTokens, n, kind)
		}
		for kind, n := range map[string]uint64{"bounds": s.Refused, "store": s.Failed} {
			count(descQuotaFaults, n, kind)
		}
	}
	if g.options.Balancer != nil {
		accepted, refused := g.options.Balancer()
		count(descProxyHeaders, accepted)
		for reason, n := range refused {
			count(descProxyRefused, n, reason)
		}
	}
}

func fallback(s policy.Standing) string {
	if s.OK() {
		return "none"
	}
	return s.Fallback.String()
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
