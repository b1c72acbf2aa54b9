package metrics

import (
	"strconv"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/policy"
)

// gauges tells the state of policies and buckets.
type gauges struct{ options Options }

var (
	descBuild     = describe("build_info", "The version of the program, as a label.", "version")
	descVersion   = describe("policy_info", "The version of the rules in force, as a label.", "version")
	descRules     = describe("policy_rules", "Rules in force.")
	descStaleness = describe("policy_staleness_seconds", "Time since the rules were last known to be current.")
	descStanding  = describe("policy_fallback", "1 at what happens to requests: none while the rules can be "+
		"relied on; else keep, limit or deny, because they are stale or there is none.", "mode")
	descFailures = describe("policy_reload_failures_total",
		"Reloads that failed and left the last good rules in force.")
	descHealthy = describe("policy_reload_ok",
		"1 if the newest reload succeeded, 0 if the last good rules are in force.")
	descFromDisk = describe("policy_from_disk", "1 while the rules in force come from the copy on disk.")
	descEmptied  = describe("policy_emptied",
		"1 while the database has no rules, which is taken for an accident: the last good ones are in force.")
	descCopy = describe("policy_copy_ok",
		"1 if the last good rules could be written to disk, 0 if a start without the database would find old ones.")
	descKeys        = describe("api_keys", "API keys in force.")
	descKeyFailures = describe("api_key_reload_failures_total",
		"Reloads of the API keys that failed and left the last good ones in force.")
	descKeysStale   = describe("api_keys_staleness_seconds", "Time since the API keys were last known to be current.")
	descKeysEmptied = describe("api_keys_emptied",
		"1 while the database has no API keys, which is taken for an accident: the last good ones are in force.")
	descBuckets   = describe("buckets", "Live buckets: those that are not full.")
	descCapacity  = describe("buckets_capacity", "Slots of the bucket table.")
	descCreated   = describe("buckets_created_total", "Buckets created.")
	descOccupancy = describe("buckets_occupancy_ratio", "Part of the slots whose bucket is not full.")
	descDenials   = describe("buckets_false_denials_ratio", "Estimated part of the new clients of a rule that is "+
		"denied because the table is crowded, for the rule that suffers most.")
	descTooSmall = describe("buckets_table_too_small",
		"1 while the table is too small: give it more by max_buckets or max_bytes.")
	descNewcomers = describe("buckets_refused_total",
		"Look-ups of new clients that found no room, under refuse_newcomers.")
	descBytes   = describe("buckets_bytes", "Memory of the bucket table.")
	descShapes  = describe("buckets_shapes", "Different limits that buckets of the table have.")
	descLogs    = describe("logs", "Sliding logs in use: those that are not full.")
	descLogRoom = describe("logs_capacity", "Sliding logs that there is room for.")
	descWaiters = describe("waiters",
		"Requests that wait for their turn under rules with algorithm leaky_bucket, or may have to.")
	descMaxWaiters = describe("waiters_capacity", "Requests that may wait at once.")
	descNoPlace    = describe("waiters_without_place_total", "Requests that found no place to wait, by whether none "+
		"was left, others of their caller had its share, or the rest was for higher classes. Refused, unless it was "+
		"their turn.", "reason")
	descOutstanding = describe("reservations", "Reservations that are neither settled nor expired.")
	descPlaces      = describe("reservations_capacity", "Reservations that may be outstanding at once.")
	descWarned      = describe("warnings_total", "Warnings that began, by kind.", "kind")
	descWarning     = describe("warnings", "Warnings that are not over, by kind.", "kind")
	descUnwarned    = describe("warnings_lost_total", "Warnings of callers that were not given, as too many were.")
	descSent        = describe("warning_events_total", "Events sent to the webhook, by what became of them.", "outcome")
	descPenalties   = describe("penalties_total",
		"Times that a caller was blocked for a time, because a rule had denied it again and again.")
	descUncounted = describe("penalties_uncounted_total",
		"Denials that were not counted towards a penalty, because there was no room for the caller.")
	descScored = describe("anomalous_callers",
		"Callers whose score is so much or more, of those that anomalies.tiers names.", "at_least")
	descCounted  = describe("anomaly_callers", "Callers that are remembered for their scores.")
	descScores   = describe("anomaly_callers_capacity", "Callers that there is room for.")
	descUnscored = describe("anomaly_uncounted_total",
		"Requests that count for nobody's score, because there was no room for the caller.")
	descSlots   = describe("slots", "Times that refused callers have for themselves.")
	descSlotted = describe("slots_total",
		"Times given to callers, by what they are and what became of reserved ones.", "outcome")
	descDecisions = describe("decision_log_lines_total",
		"Lines of the decision log, by what became of them.", "outcome")
	descSpans = describe("trace_spans_total",
		"Spans of traces, by what became of them: sent, or lost as the collector did not take them.", "outcome")
	descInFlight = describe("in_flight_requests",
		"Requests under way at this gateway, by the rules that limit how many may be.", "rule")
	descReserved = describe("reservations_total", "Reservations by what became of them.", "outcome")
	descRejected = describe("credentials_rejected_total",
		"Credentials presented that failed validation and were ignored.", "reason")
	descRequests    = describe("limit_requests_open", "Requests for a higher limit that wait for a decision.")
	descRegions     = describe("region_ranges", "Ranges of the table of regions in force.")
	descRegionBytes = describe("region_bytes", "Memory of the table of regions.")
	descRegionsOK   = describe("region_reload_ok",
		"1 if the newest region files are in force, 0 if the last good ones are.")

	descRegionFailures = describe("region_reload_failures_total",
		"Reloads of the region files that failed and left the last good table in force.")

	descLimits   = describe("descriptor_limits", "Limits of descriptors in force.")
	descLimitsOK = describe("descriptor_reload_ok",
		"1 if the newest files of descriptors are in force, 0 if the last good ones are.")
	descQuotaBorrowers   = describe("quota_streams", "Envoys that decide by themselves, by what they are lent.")
	descQuotaBuckets     = describe("quota_buckets", "Buckets that they know, of all of them.")
	descQuotaAssignments = describe("quota_assignments_total", "What they were told to do, by kind.", "kind")
	descQuotaTokens      = describe("quota_tokens_total",
		"Tokens that they were lent, that came back unused, and that were charged afterwards.", "kind")
	descQuotaFaults = describe("quota_faults_total",
		"Reports of buckets beyond a bound, and those for which the store could not be asked.", "reason")

	descLimitFailures = describe("descriptor_reload_failures_total",
		"Reloads of the files of descriptors that failed and left the last good limits in force.")

	descProxyHeaders = describe("proxy_protocol_connections_total", "Connections whose PROXY header was believed.")
	descProxyRefused = describe("proxy_protocol_refused_total",
		"Connections closed for their PROXY header, or for having none.", "reason")

	descEvicted = describe("buckets_evicted_total",
		"Buckets evicted to make room: full ones lose nothing, the debt of the others is remembered.", "state")
	descIdentifiers = describe("identifiers_total",
		"Requests to endpoints whose bodies are read, by whether an identifier was found: none is no fault.", "fault")
	descCalls = describe("calls_total",
		"Requests to endpoints whose bodies hold requests, by whether these could be counted: none is no fault.",
		"fault")
	descEnded = describe("bodies_ended_total",
		"Bodies that were cut off or refused since their caller's budget ended before them.")
)

func (g *gauges) write(out series) {
	rules, keys, table := g.options.Policies(), g.options.Keys(), g.options.Buckets()
	out.gauge(descBuild, 1, g.options.Version)
	out.gauge(descVersion, 1, rules.Version)
	out.gauge(descRules, float64(rules.Rules))
	out.gauge(descStaleness, rules.Stale.Seconds())
	for _, mode := range []string{"none", "keep", "limit", "deny"} {
		out.gauge(descStanding, truth(mode == fallback(rules.Standing)), mode)
	}
	out.count(descFailures, rules.Failures)
	out.gauge(descHealthy, truth(rules.LastError == ""))
	out.gauge(descFromDisk, truth(rules.FromDisk))
	out.gauge(descEmptied, truth(rules.Emptied))
	out.gauge(descCopy, truth(rules.CopyError == ""))
	out.gauge(descKeys, float64(keys.Keys))
	out.count(descKeyFailures, keys.Failures)
	out.gauge(descKeysStale, keys.Stale.Seconds())
	out.gauge(descKeysEmptied, truth(keys.Emptied))
	out.gauge(descBuckets, float64(table.Live))
	out.gauge(descCapacity, float64(table.Capacity))
	out.count(descCreated, uint64(table.Created))
	out.count(descEvicted, uint64(table.EvictedFull), "full")
	out.count(descEvicted, uint64(table.EvictedInDebt), "in_debt")
	out.gauge(descOccupancy, table.Occupancy)
	out.gauge(descDenials, g.options.FalseDenials(table))
	out.gauge(descTooSmall, truth(g.options.TooSmall()))
	out.count(descNewcomers, table.Refused)
	out.gauge(descBytes, float64(table.Bytes))
	out.gauge(descShapes, float64(table.Shapes))
	out.gauge(descLogs, float64(table.Logs))
	out.gauge(descLogRoom, float64(table.MaxLogs))
	out.gauge(descRequests, float64(g.options.OpenRequests()))
	waiting, most := g.options.Waiters()
	out.gauge(descWaiters, float64(waiting))
	out.gauge(descMaxWaiters, float64(most))
	full, beyondShare, lowerClass := g.options.WithoutPlace()
	out.count(descNoPlace, full, "full")
	out.count(descNoPlace, beyondShare, "caller")
	out.count(descNoPlace, lowerClass, "class")
	slots := g.options.Slots()
	out.gauge(descSlots, float64(slots.Slots))
	out.count(descSlotted, slots.Spaced, "spaced")
	out.count(descSlotted, slots.Reserved, "reserved")
	out.count(descSlotted, slots.Kept, "kept")
	out.count(descSlotted, slots.NoShows, "no_show")
	out.count(descSlotted, slots.HeldBack, "held_back")
	penalties := g.options.Penalties()
	out.count(descPenalties, penalties.Begun)
	out.count(descUncounted, penalties.Lost)
	g.tellScores(out)
	reserved := g.options.Reservations()
	out.gauge(descOutstanding, float64(reserved.Outstanding))
	out.gauge(descPlaces, float64(reserved.Capacity))
	if g.options.Places != nil {
		for rule, n := range g.options.Places() {
			out.gauge(descInFlight, float64(n), rule)
		}
	}
	out.count(descReserved, reserved.Made, "made")
	out.count(descReserved, reserved.Settled, "settled")
	out.count(descReserved, reserved.Expired, "expired")
	out.count(descReserved, reserved.Refused, "refused")
	if w, on := g.options.Warnings(); on {
		for kind, n := range w.Begun {
			out.count(descWarned, n, kind)
			out.gauge(descWarning, float64(w.Active[kind]), kind)
		}
		out.count(descUnwarned, w.Lost)
		for outcome, n := range w.Sent {
			out.count(descSent, n, outcome)
		}
	}
	if s, on := g.options.DecisionLog(); on {
		out.count(descDecisions, s.Lines, "written")
		out.count(descDecisions, s.Skipped, "skipped")
		out.count(descDecisions, s.Lost, "lost")
	}
	if s, on := g.options.Traces(); on {
		out.count(descSpans, s.Sent, "sent")
		out.count(descSpans, s.Lost, "lost")
	}
	g.addresses(out)
	g.adapted(out)
	for fault := range body.Fault(body.Faults) {
		out.count(descIdentifiers, g.options.Identifiers(fault), fault.String())
		out.count(descCalls, g.options.Calls(fault), fault.String())
	}
	out.count(descEnded, g.options.Ended())
	for reason, n := range g.options.Rejections() {
		out.count(descRejected, n, reason.Code())
	}
}

// addresses tells what is known of where requests come from.
func (g *gauges) addresses(out series) {
	if s, on := g.options.Regions(); on {
		out.gauge(descRegions, float64(s.Ranges))
		out.gauge(descRegionBytes, float64(s.Bytes))
		out.gauge(descRegionsOK, truth(s.OK))
		out.count(descRegionFailures, s.Failures)
	}
	if g.options.Descriptors != nil {
		s := g.options.Descriptors()
		out.gauge(descLimits, float64(s.Limits))
		out.gauge(descLimitsOK, truth(s.OK))
		out.count(descLimitFailures, s.Failures)
	}
	if g.options.Quotas != nil {
		s := g.options.Quotas()
		out.gauge(descQuotaBorrowers, float64(s.Borrowers))
		out.gauge(descQuotaBuckets, float64(s.Buckets))
		for kind, n := range map[string]uint64{"tokens": s.Grants, "deny": s.Denials, "abandon": s.Abandoned} {
			out.count(descQuotaAssignments, n, kind)
		}
		for kind, n := range map[string]uint64{"lent": s.Lent, "returned": s.Returned, "charged_late": s.Late} {
			out.count(descQuotaTokens, n, kind)
		}
		for kind, n := range map[string]uint64{"bounds": s.Refused, "store": s.Failed} {
			out.count(descQuotaFaults, n, kind)
		}
	}
	if g.options.Balancer != nil {
		accepted, refused := g.options.Balancer()
		out.count(descProxyHeaders, accepted)
		for reason, n := range refused {
			out.count(descProxyRefused, n, reason)
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

// tellScores tells of callers that are scored.
func (g *gauges) tellScores(out series) {
	if g.options.Scores == nil {
		return
	}
	scores, on := g.options.Scores()
	if !on {
		return
	}
	for from, n := range scores.AtLeast {
		out.gauge(descScored, float64(n), strconv.Itoa(from))
	}
	out.gauge(descCounted, float64(scores.Used))
	out.gauge(descScores, float64(scores.Callers))
	out.count(descUnscored, scores.Uncounted)
}
