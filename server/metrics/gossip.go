package metrics

import "github.com/prometheus/client_golang/prometheus"

// GossipStatus is how this gateway and others keep limits of scope gossip in step.
type GossipStatus struct {
	Replicas int // gateways that count, this one among them
	Silent   int // of them, those that are not heard of
	Unheard  bool
	Joining  bool
	Buckets  int // that it remembers
	Waiting  int // of them, those that are still to be told of

	Admitted       uint64 // tokens
	Denied         uint64 // takes
	Crowded        uint64 // takes and tellings for whose bucket there was no room
	Sent, Received uint64 // messages
	Bytes          uint64 // sent
	Refused        uint64 // messages that could not be read, or came from no member
}

var (
	descGossipReplicas = describe("gossip_replicas",
		"Gateways that keep limits of scope gossip in step, this one among them.")
	descGossipSilent = describe("gossip_silent_replicas",
		"Of those, the gateways that are not heard of, and are presumed to use their part.")
	descGossipUnheard = describe("gossip_unheard",
		"1 while another gateway says that it does not hear this one, else 0.")
	descGossipJoining = describe("gossip_joining",
		"1 while this gateway's buckets begin empty, as no other has told it yet what they hold, else 0.")
	descGossipBuckets = describe("gossip_buckets", "Buckets of scope gossip that this gateway remembers.")
	descGossipWaiting = describe("gossip_waiting_buckets", "Of those, the buckets that are still to be told of.")
	descGossipTokens  = describe("gossip_tokens_total", "Tokens of limits of scope gossip that this gateway admitted.")
	descGossipDenied  = describe("gossip_denied_takes_total", "Takes from buckets of scope gossip that were denied.")
	descGossipCrowded = describe("gossip_crowded_total",
		"Takes from buckets of scope gossip, and messages about them, for which there was no room in the table.")
	descGossipMessages = describe("gossip_messages_total", "Messages between gateways that were sent, received, or "+
		"refused as they could not be read or came from no member.", "what")
	descGossipBytes = describe("gossip_sent_bytes_total",
		"Bytes of messages that were sent to other gateways, before encryption.")
)

// gossipGauges tells of gossip between gateways; without it there are no series.
type gossipGauges struct{ status func() GossipStatus }

func (g *gossipGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descGossipReplicas, descGossipSilent, descGossipUnheard, descGossipJoining, descGossipBuckets,
		descGossipWaiting,
		descGossipTokens, descGossipDenied, descGossipCrowded, descGossipMessages, descGossipBytes,
	} {
		out <- d
	}
}

func (g *gossipGauges) Collect(out chan<- prometheus.Metric) {
	if g.status == nil {
		return
	}
	s := g.status()
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(descGossipReplicas, float64(s.Replicas))
	gauge(descGossipSilent, float64(s.Silent))
	gauge(descGossipUnheard, truth(s.Unheard))
	gauge(descGossipJoining, truth(s.Joining))
	gauge(descGossipBuckets, float64(s.Buckets))
	gauge(descGossipWaiting, float64(s.Waiting))
	count(descGossipTokens, s.Admitted)
	count(descGossipDenied, s.Denied)
	count(descGossipCrowded, s.Crowded)
	count(descGossipMessages, s.Sent, "sent")
	count(descGossipMessages, s.Received, "received")
	count(descGossipMessages, s.Refused, "refused")
	count(descGossipBytes, s.Bytes)
}
