// Package region finds the region of an address, such as its country, in a
// table of address ranges.
//
// A table is made of files with lines
//
//	1.0.0.0,1.0.0.255,AU
//	2001:200::,2001:200:ffff:ffff:ffff:ffff:ffff:ffff,JP
//
// plain or compressed by gzip. They are read strictly: a line that cannot be
// read, or a range that overlaps another, is an error that names it.
//
// In memory a table is where regions begin, in order, one array for each
// family: 6 bytes for a range of IPv4 and 18 for one of IPv6, and as many for a
// gap. A look-up bisects, and allocates nothing. A Table never changes: to
// replace one, load another and swap the pointer.
package region

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"unsafe"
)

// Unknown is the region of addresses that no range holds. Private, loopback and
// link-local addresses mean something else in every network, so that a range of
// the public Internet says nothing about them: they are in a region only where a
// range lies in such a network alone.
const Unknown = ""

// Table is the regions of addresses. It may be used concurrently.
type Table struct {
	names  []string // by code; code 0 is Unknown
	ranges int

	// Where each region begins, in ascending order, and which it is.
	start4   []uint32
	region4  []uint16
	start6hi []uint64
	start6lo []uint64
	region6  []uint16

	own []ownRange // in networks that mean something else elsewhere, in order
}

// ownRange is a range in a network of the operator's own.
type ownRange struct {
	first, last netip.Addr
	region      uint16
}

// ownNetworks are those that netip calls private, loopback or link-local.
var ownNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::1/128"),
}

// isOwn reports whether a range lies in one of ownNetworks.
func isOwn(first, last netip.Addr) bool {
	return slices.ContainsFunc(ownNetworks, func(p netip.Prefix) bool { return p.Contains(first) && p.Contains(last) })
}

// Own returns how many ranges are of private, loopback and link-local networks,
// those whose region is Unknown not counted.
func (t *Table) Own() int { return len(t.own) }

func (t *Table) findOwn(a netip.Addr) uint16 {
	a = a.WithZone("")
	after, _ := slices.BinarySearchFunc(t.own, a, func(o ownRange, a netip.Addr) int {
		if o.first.Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	if after == 0 || t.own[after-1].last.Compare(a) < 0 {
		return 0
	}
	return t.own[after-1].region
}

// Region returns the region of an address, or Unknown. IPv4-mapped addresses
// are IPv4 addresses.
func (t *Table) Region(a netip.Addr) string {
	a = a.Unmap()
	switch {
	case !a.IsValid(), a.IsUnspecified():
		return Unknown
	case a.IsPrivate(), a.IsLoopback(), a.IsLinkLocalUnicast():
		return t.names[t.findOwn(a)]
	case a.Is4():
		b := a.As4()
		return t.names[t.find4(binary.BigEndian.Uint32(b[:]))]
	}
	b := a.As16()
	return t.names[t.find6(binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]))]
}

// find4 returns the code of the last region that begins at or before w.
func (t *Table) find4(w uint32) uint16 {
	low, high := 0, len(t.start4) // all before low begin at or before w, none from high on does
	for low < high {
		if mid := int(uint(low+high) / 2); t.start4[mid] <= w {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return t.region4[low-1]
}

func (t *Table) find6(hi, lo uint64) uint16 {
	low, high := 0, len(t.start6hi)
	for low < high {
		mid := int(uint(low+high) / 2)
		// Few ranges are finer than /64, so the second array is rarely read.
		if h := t.start6hi[mid]; h < hi || h == hi && t.start6lo[mid] <= lo {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return t.region6[low-1]
}

// Len returns how many ranges the files had.
func (t *Table) Len() int { return t.ranges }

// Regions returns how many different regions there are, Unknown not counted.
func (t *Table) Regions() int { return len(t.names) - 1 }

// Bytes returns the memory of the arrays.
func (t *Table) Bytes() int {
	return 4*cap(t.start4) + 2*cap(t.region4) + 8*cap(t.start6hi) + 8*cap(t.start6lo) + 2*cap(t.region6) +
		cap(t.own)*int(unsafe.Sizeof(ownRange{}))
}

// row is one range of a file.
type row struct {
	first, last netip.Addr
	region      uint16
	file        uint16
	line        uint32
}

// compile makes the arrays of rows, which it sorts. It returns the first two
// rows that overlap, if any do.
func (t *Table) compile(rows []row) (a, b row, overlap bool) {
	byFirst := func(a, b row) int { return cmp.Or(a.first.Compare(b.first), cmp.Compare(a.line, b.line)) }
	if !slices.IsSortedFunc(rows, byFirst) {
		slices.SortFunc(rows, byFirst) // netip orders IPv4 before IPv6
	}
	for i := 1; i < len(rows); i++ {
		if rows[i].first.Compare(rows[i-1].last) <= 0 && rows[i].first.Is4() == rows[i-1].last.Is4() {
			return rows[i-1], rows[i], true
		}
	}
	for i, r := range rows {
		if r.region != 0 && isOwn(r.first, r.last) {
			t.own = append(t.own, ownRange{r.first, r.last, r.region})
		}
		t.begin(r.first, r.region)
		// What follows is a gap, unless the next range begins there.
		if after := r.last.Next(); after.IsValid() && (i+1 == len(rows) || rows[i+1].first != after) {
			t.begin(after, 0)
		}
	}
	t.ranges = len(rows)
	t.start4, t.region4 = slices.Clip(t.start4), slices.Clip(t.region4)
	t.start6hi, t.start6lo, t.region6 = slices.Clip(t.start6hi), slices.Clip(t.start6lo), slices.Clip(t.region6)
	return row{}, row{}, false
}

// begin notes that a region begins at an address, above all noted before.
func (t *Table) begin(a netip.Addr, region uint16) {
	if a.Is4() {
		if n := len(t.region4); n > 0 && t.region4[n-1] == region {
			return
		}
		b := a.As4()
		t.start4, t.region4 = append(t.start4, binary.BigEndian.Uint32(b[:])), append(t.region4, region)
		return
	}
	if n := len(t.region6); n > 0 && t.region6[n-1] == region {
		return
	}
	b := a.As16()
	t.start6hi = append(t.start6hi, binary.BigEndian.Uint64(b[:8]))
	t.start6lo = append(t.start6lo, binary.BigEndian.Uint64(b[8:]))
	t.region6 = append(t.region6, region)
}
