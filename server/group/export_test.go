package group

import "github.com/hashicorp/memberlist"

// Hear has a group hear of a node, as it does from others.
func (g *Group) Hear(n *memberlist.Node) { events{g}.NotifyJoin(n) }

// Node is how others know the group's process.
func (g *Group) Node() *memberlist.Node { return g.list.LocalNode() }
