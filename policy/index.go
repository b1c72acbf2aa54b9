package policy

import (
	"math/bits"

	"github.com/headgate-io/headgate/endpoint"
)

// index finds the rules for a request.
//
// The rules that share an endpoint and a project or tier are neighbours in
// rows: a group. A group is found by array index, except for those of one
// endpoint and one project or tier, which slots finds by hash:
//
//	request GET /v1/x of acme, tier gold     group in
//	(GET /v1/x, acme), (GET /v1/x, gold)     slots
//	(GET /v1/x)                              byEndpoint[3]
//	(default, acme), (*, acme)               byProject[17]
//	(default, gold), (*, gold)               byTier[1]
//	(default), (UNKNOWN), (*)                fixed
//
// So a look-up costs one probe for the project's name and at most two for the
// groups, whatever the number of rules.
type index struct {
	rules

	projects, tiers names

	byEndpoint []endpointGroup // by endpoint.ID
	byProject  []tenantGroups  // by number in projects
	byTier     []tenantGroups  // by number in tiers
	fallback   tenantGroups    // rules for neither a project nor a tier
	unknown    group

	slots    []uint32 // tag in the high bits, group in the low tagShift
	tagShift uint8
}

// group is where a group starts in rows, plus 1; 0 is no group.
type group uint32

// who is nobody in particular (0), a project or a tier.
type who uint32

func ofProject(n uint32) who {
	if n == 0 {
		return 0
	}
	return who(n << 1)
}

func ofTier(n uint32) who {
	if n == 0 {
		return 0
	}
	return who(n<<1 | 1)
}

func (w who) isTier() bool   { return w&1 != 0 }
func (w who) number() uint32 { return uint32(w >> 1) }

// endpointGroup is what one endpoint has: the group for everybody, and the
// subjects of its rules for projects and tiers, which spare vain probes.
type endpointGroup struct {
	group    group
	projects subjectSet
	tiers    subjectSet
}

// tenantGroups is what one project or tier has besides its rules for single
// endpoints.
type tenantGroups struct {
	byDefault group
	all       group
	tier      uint32 // of a project, by Document.Projects
}

// locate finds the group of every level for a request.
func (x *index) locate(at *[levels]group, m endpoint.Match, project, tier string) {
	p, t := uint32(0), uint32(0)
	if m.Status == endpoint.Known {
		p, t = x.tenant(project, tier)
	}
	x.locateFor(at, m, p, t)
}

// locateFor is locate for a project and a tier by their numbers.
func (x *index) locateFor(at *[levels]group, m endpoint.Match, p, t uint32) {
	at[LevelUnknown] = x.unknown
	if m.Status != endpoint.Known {
		return
	}
	at[LevelDefault], at[LevelAll] = x.fallback.byDefault, x.fallback.all
	var own endpointGroup
	if int(m.ID) < len(x.byEndpoint) {
		own = x.byEndpoint[m.ID]
		at[LevelEndpoint] = own.group
	}
	if p != 0 {
		has := &x.byProject[p]
		at[LevelDefaultProject], at[LevelAllProject] = has.byDefault, has.all
		if own.projects != 0 {
			at[LevelEndpointProject] = x.find(uint32(m.ID), ofProject(p))
		}
	}
	if t != 0 {
		has := &x.byTier[t]
		at[LevelDefaultTier], at[LevelAllTier] = has.byDefault, has.all
		if own.tiers != 0 {
			at[LevelEndpointTier] = x.find(uint32(m.ID), ofTier(t))
		}
	}
}

// tenant reports the numbers of a request's project and tier, 0 where no rule
// and no project of the document has the name.
func (x *index) tenant(project, tier string) (p, t uint32) {
	p = x.projects.find(project)
	if tier != "" {
		return p, x.tiers.find(tier)
	}
	return p, x.byProject[p].tier
}

// find reports the group of one endpoint and one project or tier.
func (x *index) find(ep uint32, w who) group {
	h := mix(ep, w)
	mask, low := len(x.slots)-1, uint32(1)<<x.tagShift-1
	for i := int(uint32(h)) & mask; ; i = (i + 1) & mask {
		slot := x.slots[i]
		if slot == 0 {
			return 0
		}
		if slot&^low != tag(h)&^low {
			continue // saves a look at a row elsewhere in memory
		}
		g := group(slot & low)
		if r := &x.rows[g-1]; r.endpoint == ep && r.who == w {
			return g
		}
	}
}

// group finds the group of any endpoint and tenant.
func (x *index) group(ep uint32, w who) group {
	if ep != rowUnknown && ep != rowDefault && ep != rowAll {
		switch {
		case w != 0:
			return x.find(ep, w)
		case int(ep) < len(x.byEndpoint):
			return x.byEndpoint[ep].group
		}
		return 0
	}
	has := &x.fallback
	if w.isTier() {
		has = &x.byTier[w.number()]
	} else if w != 0 {
		has = &x.byProject[w.number()]
	}
	switch {
	case ep == rowDefault:
		return has.byDefault
	case ep == rowAll:
		return has.all
	case w == 0:
		return x.unknown
	}
	return 0
}

// groupNear is group for one that probably begins at a row: where it did in a
// Set that differs little.
func (x *index) groupNear(start uint32, ep uint32, w who) group {
	if start < uint32(len(x.rows)) && (start == 0 || x.rows[start-1].last) {
		if r := &x.rows[start]; r.endpoint == ep && r.who == w {
			return group(start + 1)
		}
	}
	return x.group(ep, w)
}

// isProbed reports whether a group is found by hash.
func (x *index) isProbed(g *pendingGroup) bool {
	return g.who != 0 && g.endpoint != rowUnknown && g.endpoint < uint32(len(x.byEndpoint))
}

// mix hashes a pair. The numbers are ours, not a caller's, so it need not be
// keyed.
func mix(ep uint32, w who) uint64 {
	hi, lo := bits.Mul64(uint64(ep)<<32|uint64(w)^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// tag is the part of a hash that does not choose the slot.
func tag(h uint64) uint32 { return uint32(h >> 32) }
