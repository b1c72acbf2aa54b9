package metrics

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

func (g *gossipGauges) write(out series) {
	if g.status == nil {
		return
	}
	s := g.status()
	out.gauge(descGossipReplicas, float64(s.Replicas))
	out.gauge(descGossipSilent, float64(s.Silent))
	out.gauge(descGossipUnheard, truth(s.Unheard))
	out.gauge(descGossipJoining, truth(s.Joining))
	out.gauge(descGossipBuckets, float64(s.Buckets))
	out.gauge(descGossipWaiting, float64(s.Waiting))
	out.count(descGossipTokens, s.Admitted)
	out.count(descGossipDenied, s.Denied)
	out.count(descGossipCrowded, s.Crowded)
	out.count(descGossipMessages, s.Sent, "sent")
	out.count(descGossipMessages, s.Received, "received")
	out.count(descGossipMessages, s.Refused, "refused")
	out.count(descGossipBytes, s.Bytes)
}
