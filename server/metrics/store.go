package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreStatus is how the store of shared buckets is.
type StoreStatus struct {
	Answers   bool
	Since     time.Time // when it began to answer, or ceased to
	Replicas  int       // gateways on it, as last heard; 0 if it never answered
	Divisor   int       // by how many split limits are divided; 0 for no part yet
	Strangers int       // of the replicas, those that name buckets in another way

	Lost      bool                   // decisions are made without it, or without a member of it
	LostSince time.Time              // if so, since when the first is
	Losses    uint64                 // how often that began
	Servers   map[string]StoreServer // by address: each member of a cluster, or the one server
	Without   map[string]uint64      // what became of requests then, by failed, denied, share and open
	Spared    uint64                 // requests denied without a call, as it had denied the same shortly before
	Undone    uint64                 // requests that gave back what they took there, as another bucket denied
	Replayed  uint64                 // buckets that were charged afterwards with what was admitted without it
	Missed    uint64                 // those that could not be

	Evicting  int    // servers that throw away buckets
	Unguarded int    // primaries that a replica may replace without their noticing
	Mended    uint64 // buckets that were put in order, as they could not be read or were dated ahead

	Watched        bool          // what follows is known
	Offset, Within time.Duration // how far this machine's clock is ahead of the server's, and how far that may be wrong
	Trip           time.Duration // that a server takes to answer

	Leases LeaseStatus
	Syncs  SyncStatus

	Calls  map[float64]uint64 // by seconds that they took at most
	Count  uint64             // of calls
	Sum    time.Duration      // that they took together
	Failed uint64             // of them
}

// StoreServer is how one server of the store is.
type StoreServer struct {
	Lost  bool
	Since time.Time // if so
}

// LeaseStatus is how limits of scope lease were spent.
type LeaseStatus struct {
	Free      uint64 // takes admitted out of the gateway's own part
	Buckets   int    // that it remembers what it holds of
	Messages  uint64 // to the store
	Questions uint64 // in them, a bucket each
	Short     uint64 // of those, that gave less than was wanted
	Failed    uint64 // of those, that got no answer
	Granted   uint64 // tokens; and of them
	Returned  uint64 // that came back for another request
	Expired   uint64 // that were not used in time
}

// SyncStatus is how limits of scope sync were spent.
type SyncStatus struct {
	Buckets  int    // that it remembers what it knows of
	Pending  int64  // tokens that it admitted, and the store has not confirmed
	Messages uint64 // to the store
	Reports  uint64 // in them, a bucket each
	Failed   uint64 // of those, that got no answer
	Admitted uint64 // tokens, by what it knew
	Charged  uint64 // tokens that the store confirmed
	Returned uint64 // tokens that came back before they were reported, as another rule denied the request
	Denied   uint64 // takes, by what it knew
	Asked    uint64 // takes that the store was asked about
}

var (
	descStoreUp    = describe("store_up", "1 if the store of shared buckets answers, else 0.")
	descStoreSince = describe("store_state_since_timestamp_seconds",
		"When the store of shared buckets began to answer, or ceased to, as Unix time.")
	descStoreReplicas = describe("store_replicas",
		"Gateways that share buckets, as last heard; 0 if the store never answered.")
	descStoreDivisor = describe("store_split_divisor",
		"By how many gateways split limits are divided; 0 while this one has no part yet.")
	descStoreStrangers = describe("store_strangers",
		"Gateways on the store that name buckets under another secret, so share none with this one.")
	descStoreLost = describe("store_lost",
		"1 while requests are decided without the store of shared buckets, as their rules say, else 0.")
	descStoreLostSince = describe("store_lost_since_timestamp_seconds",
		"Since when requests are decided without the store, as Unix time; 0 while they are not.")
	descStoreServer = describe("store_server_lost", "1 while requests are decided without this server of the "+
		"store, else 0: each member of a cluster, or the one server.", "server")
	descStoreServerAt = describe("store_server_lost_since_timestamp_seconds",
		"Since when requests are decided without this server, as Unix time; 0 while they are not.", "server")
	descStoreLosses  = describe("store_losses_total", "How often requests began to be decided without the store.")
	descStoreWithout = describe("store_without_total", "What was decided without the store: requests denied as "+
		"it did not answer (failed) or as rules say (denied), and takes admitted by a share of the limit (share) "+
		"or because rules say so (open).", "outcome")
	descStoreSpared = describe("store_spared_total",
		"Requests denied without a call, as the store had denied the same shortly before.")
	descStoreUndone = describe("store_undone_total",
		"Requests that gave back what they took from the store, as another bucket denied them.")
	descStoreReplayed = describe("store_replayed_total",
		"Buckets of the store that were charged with what was admitted without it.")
	descStoreMissed = describe("store_missed_total",
		"Takes and buckets that could not be charged to the store afterwards.")
	descLeaseFree = describe("lease_free_takes_total", "Takes under rules of scope lease that this gateway "+
		"admitted out of its own part of the limit, without the store.")
	descLeaseBuckets   = describe("lease_buckets", "Buckets of the store that this gateway remembers what it holds of.")
	descLeaseMessages  = describe("lease_messages_total", "Scripts that asked the store for tokens.")
	descLeaseQuestions = describe("lease_questions_total", "Buckets that tokens were asked for of, by what was "+
		"given: all that was wanted (full), less (short), or no answer (failed).", "answer")
	descLeaseTokens = describe("lease_tokens_total", "Tokens that the store gave (granted), of which some came "+
		"back as another rule denied the request (returned), and some were not used in time (expired).", "what")
	descSyncBuckets = describe("sync_buckets",
		"Buckets of the store that this gateway remembers what it knows of, under rules of scope sync.")
	descSyncPending = describe("sync_pending_tokens",
		"Tokens that this gateway admitted under rules of scope sync, and the store has not confirmed.")
	descSyncMessages = describe("sync_messages_total", "Scripts that reported to the store what was admitted.")
	descSyncReports  = describe("sync_reports_total", "Buckets that were reported to the store, by whether it "+
		"answered (charged) or the report is repeated (failed).", "answer")
	descSyncTokens = describe("sync_tokens_total", "Tokens that were admitted without the store (admitted), of "+
		"which it has confirmed some (charged), and some came back before, as another rule denied the request "+
		"(returned).", "what")
	descSyncTakes = describe("sync_takes_total", "Takes under rules of scope sync that were denied by what "+
		"the gateway knew (denied), and that the store was asked about (asked).", "what")
	descStoreEvicting = describe("store_evicting_servers",
		"Servers of the store whose maxmemory-policy throws away buckets, which fills them.")
	descStoreUnguarded = describe("store_unguarded_primaries",
		"Primaries of the store that go on alone while a replica is promoted, as they have no min-replicas-to-write.")
	descStoreMended = describe("store_mended_total", "Buckets that were put in order, as what was under their "+
		"names was none or was dated ahead of the server's clock.")
	descStoreOffset = describe("store_clock_offset_seconds",
		"By how much the clock of this machine is ahead of the store's.")
	descStoreWithin = describe("store_clock_offset_uncertainty_seconds",
		"How far store_clock_offset_seconds may be wrong.")
	descStoreTrip = describe("store_round_trip_seconds",
		"Time that the slowest server of the store took to answer when it was last asked by itself.")
	descStoreCalls    = describe("store_call_seconds", "Time that scripts on the store of shared buckets took.")
	descStoreFailures = describe("store_call_failures_total",
		"Scripts on the store of shared buckets that got no answer.")
)

// storeGauges tells of the store; without one there are no series.
type storeGauges struct{ status func() StoreStatus }

func (g *storeGauges) write(out series) {
	if g.status == nil {
		return
	}
	s := g.status()
	out.gauge(descStoreUp, truth(s.Answers))
	out.gauge(descStoreSince, float64(s.Since.UnixMilli())/1000)
	out.gauge(descStoreReplicas, float64(s.Replicas))
	out.gauge(descStoreDivisor, float64(s.Divisor))
	out.gauge(descStoreStrangers, float64(s.Strangers))
	out.gauge(descStoreLost, truth(s.Lost))
	out.gauge(descStoreLostSince, sinceIf(s.Lost, s.LostSince))
	for name, one := range s.Servers {
		out.gauge(descStoreServer, truth(one.Lost), name)
		out.gauge(descStoreServerAt, sinceIf(one.Lost, one.Since), name)
	}
	out.count(descStoreLosses, s.Losses)
	for outcome, n := range s.Without {
		out.count(descStoreWithout, n, outcome)
	}
	out.count(descStoreSpared, s.Spared)
	out.count(descStoreUndone, s.Undone)
	out.count(descStoreReplayed, s.Replayed)
	out.count(descStoreMissed, s.Missed)
	out.gauge(descStoreEvicting, float64(s.Evicting))
	out.gauge(descStoreUnguarded, float64(s.Unguarded))
	out.count(descStoreMended, s.Mended)
	if s.Watched {
		out.gauge(descStoreOffset, s.Offset.Seconds())
		out.gauge(descStoreWithin, s.Within.Seconds())
		out.gauge(descStoreTrip, s.Trip.Seconds())
	}
	l := s.Leases
	out.gauge(descLeaseBuckets, float64(l.Buckets))
	out.count(descLeaseFree, l.Free)
	out.count(descLeaseMessages, l.Messages)
	out.count(descLeaseQuestions, l.Questions-min(l.Questions, l.Short+l.Failed), "full")
	out.count(descLeaseQuestions, l.Short, "short")
	out.count(descLeaseQuestions, l.Failed, "failed")
	out.count(descLeaseTokens, l.Granted, "granted")
	out.count(descLeaseTokens, l.Returned, "returned")
	out.count(descLeaseTokens, l.Expired, "expired")
	y := s.Syncs
	out.gauge(descSyncBuckets, float64(y.Buckets))
	out.gauge(descSyncPending, float64(y.Pending))
	out.count(descSyncMessages, y.Messages)
	out.count(descSyncReports, y.Reports-min(y.Reports, y.Failed), "charged")
	out.count(descSyncReports, y.Failed, "failed")
	out.count(descSyncTokens, y.Admitted, "admitted")
	out.count(descSyncTokens, y.Charged, "charged")
	out.count(descSyncTokens, y.Returned, "returned")
	out.count(descSyncTakes, y.Denied, "denied")
	out.count(descSyncTakes, y.Asked, "asked")
	out <- prometheus.MustNewConstHistogram(descStoreCalls, s.Count, s.Sum.Seconds(), s.Calls)
	out.count(descStoreFailures, s.Failed)
}

// sinceIf is a time, or 0 where nothing has happened.
func sinceIf(lost bool, at time.Time) float64 {
	if !lost {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}
