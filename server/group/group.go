// Package group has gateways find each other without a server in between, and carries between them
// what each admitted.
//
//	bucket/gossip.Store ──Send──▶ Group ──UDP, AES-GCM──▶ Group ──Receive──▶ bucket/gossip.Store
//	                                └── who is there: SWIM, by hashicorp/memberlist
//
// Who is a member is memberlist's affair; whose word counts is this package's: one who left is a
// member no more, and one who fell silent stays one for a time, since its network may be parted and
// it may admit requests all the same.
package group

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/headgate-io/headgate/bucket/gossip"
)

// Options configures a Group.
type Options struct {
	// Listen is the address, HOST:PORT, on which others are heard by UDP and TCP; port 0 takes any.
	Listen string

	// Advertise is the address that others are told. Default the one of Listen, or of this machine
	// where that is every address.
	Advertise string

	// Join are addresses of others, HOST:PORT; of a name, all addresses are tried. One that is this
	// process does no harm.
	Join []string

	// Secret is what all members share. What a message says is encrypted and authenticated under it.
	Secret []byte

	// Forget is how long one that fell silent counts as a member: with a part of every limit, which
	// nobody else uses meanwhile. Default 10 minutes.
	Forget time.Duration

	Gossip gossip.Options // without its Transport
	Log    *slog.Logger
}

// Group is this process among others. It is safe for concurrent use.
type Group struct {
	o     Options
	store *gossip.Store
	list  *memberlist.Memberlist

	began uint64 // Unix milliseconds

	mu      sync.Mutex
	own     string             // guarded by mu; the address that others know this process by
	members map[uint64]*member // guarded by mu; others, by their names

	reach atomic.Pointer[map[uint64]*memberlist.Node] // members that can be sent to

	unread atomic.Bool // one of those that were called last knows something that could not be read

	complaints complaints
	closed     atomic.Bool
}

// member is another process.
type member struct {
	address string
	began   uint64 // Unix milliseconds, by its own clock
	node    *memberlist.Node
	silent  time.Time // since when it is not heard of; zero while it is
}

// New begins to listen, and calls nobody yet. Buckets of one that has whom to join are empty from now
// on: its first request may come before Run does.
func New(o Options) (*Group, error) {
	if o.Forget == 0 {
		o.Forget = 10 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Group{
		o: o, began: uint64(time.Now().UnixMilli()), members: map[uint64]*member{}, complaints: complaints{log: o.Log},
	}
	g.reach.Store(&map[uint64]*memberlist.Node{})
	o.Gossip.Transport = g
	var err error
	if g.store, err = gossip.New(o.Gossip); err != nil {
		return nil, err
	}
	if len(o.Join) > 0 {
		g.store.Join()
	}
	conf, err := g.config()
	if err != nil {
		return nil, err
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		return nil, fmt.Errorf("gossip.listen is %q: %w", o.Listen, err)
	}
	return g, nil
}

// packet is how long what memberlist sends in one packet is: it fits where the smallest frames are 1,500 bytes.
const packet = 1400

func (g *Group) config() (*memberlist.Config, error) {
	host, port, err := hostPort(g.o.Listen)
	if err != nil {
		return nil, fmt.Errorf("gossip.listen is %q, want HOST:PORT: %w", g.o.Listen, err)
	}
	key, err := hkdf.Key(sha256.New, g.o.Secret, nil, "headgate gossip 1", 32)
	if err != nil {
		return nil, err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = strconv.FormatUint(g.store.Self(), 16)
	c.BindAddr, c.BindPort, c.AdvertisePort = host, port, port
	if g.o.Advertise != "" {
		if c.AdvertiseAddr, c.AdvertisePort, err = hostPort(g.o.Advertise); err != nil {
			return nil, fmt.Errorf("gossip.advertise is %q, want HOST:PORT: %w", g.o.Advertise, err)
		}
	}
	c.SecretKey, c.GossipVerifyIncoming, c.GossipVerifyOutgoing = key, true, true
	c.UDPBufferSize, c.EnableCompression = packet, false
	c.Delegate, c.Events = delegate{g}, events{g}
	c.Logger = log.New(&g.complaints, "", 0)
	return c, nil
}

func hostPort(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if host == "" {
		host = "0.0.0.0"
	}
	return host, int(n), err
}

// Store decides over buckets of scope gossip.
func (g *Group) Store() *gossip.Store { return g.store }

// Address is where others are heard, HOST:PORT.
func (g *Group) Address() string { return g.list.LocalNode().Address() }

// again is how often those who should be members and are not are called.
const again = 5 * time.Second

// Run joins the others, and tells them until ctx ends; then it takes leave of them.
func (g *Group) Run(ctx context.Context) {
	g.call()
	tick, call := time.NewTicker(g.store.Interval()), time.NewTicker(again)
	defer tick.Stop()
	defer call.Stop()
	var calling sync.WaitGroup
	defer calling.Wait()
	busy := make(chan struct{}, 1)
	for {
		select {
		case <-ctx.Done():
			g.leave()
			return
		case <-tick.C:
			g.store.Tick()
		case <-call.C:
			g.forget(time.Now())
			select {
			case busy <- struct{}{}: // names may take their time, and telling must not wait for that
				calling.Go(func() { g.call(); <-busy })
			default:
			}
		}
	}
}

// leave tells the others that this process admits nothing more.
func (g *Group) leave() {
	if g.closed.Load() {
		return
	}
	g.store.Tick()
	farewell := binary.BigEndian.AppendUint64([]byte{leaving}, g.store.Self())
	var saying sync.WaitGroup
	for _, node := range *g.reach.Load() {
		saying.Go(func() {
			if err := g.list.SendReliable(node, farewell); err != nil {
				g.o.Log.Warn("a gateway did not hear that this one leaves, and counts it until gossip.forget",
					"address", node.Address(), "error", err)
			}
		})
	}
	saying.Wait()
	if err := g.list.Leave(time.Second); err != nil {
		g.o.Log.Warn("not all gateways heard in time that this one leaves", "error", err)
	}
	if err := g.list.Shutdown(); err != nil {
		g.o.Log.Warn("gossip did not end in order", "error", err)
	}
}

// Close ends what New began at once, without a word to anybody.
func (g *Group) Close() {
	g.closed.Store(true)
	_ = g.list.Shutdown()
}

// call joins those who are configured and those who fell silent, if any of them is no member. Who
// meets nobody that knows anything is the first, or one of those that begin together.
func (g *Group) call() {
	var missing []string
	joining := g.store.Status().Joining
	if joining || g.list.NumMembers() <= 1 {
		missing = append(missing, g.o.Join...)
	}
	g.mu.Lock()
	for _, m := range g.members {
		if !m.silent.IsZero() {
			missing = append(missing, m.address)
		}
	}
	if len(missing) > 0 && len(g.members) > 0 && !joining {
		missing = append(missing, g.o.Join...)
	}
	g.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	g.unread.Store(false)
	if _, err := g.list.Join(missing); err != nil {
		g.complaints.say(slog.LevelWarn, "some other gateways cannot be reached by gossip", "error", err.Error())
	}
	if joining && !g.unread.Load() {
		g.store.First() // nobody is there that knows anything
	}
}

// What the first byte of a message says it is.
const (
	told    = 0 // a message of a gossip.Store
	leaving = 1 // its sender, whose name follows, admits nothing more
)

// Send implements gossip.Transport.
func (g *Group) Send(to uint64, message []byte) {
	if node := (*g.reach.Load())[to]; node != nil {
		_ = g.list.SendBestEffort(node, append([]byte{told}, message...)) // what is lost is told again
	}
}

// forget drops members that were silent for too long.
func (g *Group) forget(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	dropped := false
	for name, m := range g.members {
		if !m.silent.IsZero() && now.Sub(m.silent) > g.o.Forget {
			delete(g.members, name)
			dropped = true
			g.o.Log.Warn("a gateway was silent for too long and counts no more", "address", m.address, "silent_since",
				m.silent.UTC())
		}
	}
	if dropped {
		g.changed()
	}
}

// changed tells the store who is a member. It is called with mu held.
func (g *Group) changed() {
	names, reach := make([]uint64, 0, len(g.members)), make(map[uint64]*memberlist.Node, len(g.members))
	for name, m := range g.members {
		names = append(names, name)
		reach[name] = m.node
	}
	g.reach.Store(&reach)
	if err := g.store.SetMembers(names); err != nil {
		g.complaints.say(slog.LevelError, "limits of scope gossip go on with those gateways that were there before",
			"error", err.Error())
	}
}

// describe is what a node says of itself: its store's name, and when it began; 0 if it says nothing.
func describe(n *memberlist.Node) (name, began uint64) {
	if len(n.Meta) != 16 {
		return 0, 0
	}
	return binary.BigEndian.Uint64(n.Meta), binary.BigEndian.Uint64(n.Meta[8:])
}

// events hears who comes and goes.
type events struct{ g *Group }

// NotifyJoin hears of a node. Of a process that was killed, others say for some seconds that it is
// there, to who begins in its place as well: at one address, the one that began last counts.
func (e events) NotifyJoin(n *memberlist.Node) {
	g := e.g
	name, began := describe(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	if name == g.store.Self() {
		g.own = n.Address()
		return
	}
	if name == 0 || n.Address() == g.own {
		return
	}
	for other, m := range g.members {
		if m.address != n.Address() || other == name {
			continue
		}
		if m.began > began {
			return
		}
		delete(g.members, other)
	}
	if g.members[name] == nil {
		g.o.Log.Info("a gateway joined", "address", n.Address())
	}
	copied := *n
	g.members[name] = &member{address: n.Address(), began: began, node: &copied}
	g.changed()
}

func (e events) NotifyLeave(n *memberlist.Node) {
	g := e.g
	name, _ := describe(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[name]
	if m == nil {
		return // it said that it ends, or another is in its place
	}
	g.o.Log.Warn("a gateway is not heard of; its part of every limit of scope gossip is left to it", "address",
		m.address, "forgotten_after", g.o.Forget)
	m.silent = time.Now()
	g.changed()
}

// left takes leave of a member that said that it ends.
func (g *Group) left(name uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.members[name]; m != nil {
		g.o.Log.Info("a gateway left", "address", m.address)
		delete(g.members, name)
		g.changed()
	}
}

func (e events) NotifyUpdate(n *memberlist.Node) { e.NotifyJoin(n) }

// delegate carries messages.
type delegate struct{ g *Group }

func (d delegate) NodeMeta(int) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, d.g.store.Self()), d.g.began)
}

func (d delegate) NotifyMsg(message []byte) {
	if len(message) == 9 && message[0] == leaving {
		d.g.left(binary.BigEndian.Uint64(message[1:]))
		return
	}
	err := errCut
	if len(message) > 0 && message[0] == told {
		err = d.g.store.Receive(message[1:])
	}
	if err != nil {
		d.g.complaints.say(slog.LevelWarn, "a gateway sent a message that cannot be read", "error", err.Error())
	}
}

func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// copied is how long one message of a copy is.
const copied = 32 << 10

// LocalState is what one that joins gets: messages of a copy, the length before each. It is nothing
// from one that waits for a copy itself: who took that for one would have full buckets. A process that
// is among the addresses it joins is such a one.
func (d delegate) LocalState(join bool) (all []byte) {
	if !join || d.g.store.Status().Joining {
		return nil
	}
	for _, m := range d.g.store.Copy(copied) {
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(m))), m...)
	}
	return all
}

func (d delegate) MergeRemoteState(all []byte, join bool) {
	if !join || len(all) == 0 || !d.g.store.Status().Joining {
		return
	}
	if err := d.adopt(all); err != nil {
		d.g.unread.Store(true)
		d.g.complaints.say(slog.LevelWarn, "what another gateway knows could not be read; it is asked again, and "+
			"buckets begin empty meanwhile", "error", err.Error())
	}
}

var errCut = errors.New("it ends early")

func (d delegate) adopt(all []byte) error {
	for len(all) > 0 {
		if len(all) < 4 {
			return errCut
		}
		n := binary.BigEndian.Uint32(all)
		if all = all[4:]; uint64(n) > uint64(len(all)) {
			return errCut
		}
		if err := d.g.store.Adopt(all[:n], int(n) == len(all)); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// complaints writes what goes wrong to the log, but not more often than each few seconds: who is no
// member can cause some of it.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // Unix nanoseconds
	more atomic.Uint64
}

const seldom = 10 * time.Second

func (c *complaints) say(level slog.Level, message string, args ...any) {
	now, last := time.Now().UnixNano(), c.last.Load()
	if now-last < int64(seldom) || !c.last.CompareAndSwap(last, now) {
		c.more.Add(1)
		return
	}
	c.log.Log(context.Background(), level, message, append(args, "others", c.more.Swap(0))...)
}

// Write takes what memberlist says. Addresses are in it, and never what a packet holds.
func (c *complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line[:min(len(line), 200)]))
	if strings.HasPrefix(text, "[ERR]") || strings.HasPrefix(text, "[WARN]") {
		c.say(slog.LevelWarn, "gossip between gateways", "what", text)
	}
	return len(line), nil
}
