package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/sfv"
	"github.com/headgate-io/headgate/internal/values"
)

// maxFields is how many fields Options.names lists at most.
const maxFields = 8

// maxForeign is how much of another server's fields of one name is read, in bytes. One that
// sends more is not describing quotas.
const maxForeign = 4 << 10

// merging is the ResponseWriter of a handler that passes answers on, under Options.Merge. Before
// the header is sent, it makes one statement of the fields that this door has set and those that
// came with the answer, which stand behind them: handlers that pass answers on add to what there
// is, as httputil.ReverseProxy does.
type merging struct {
	http.ResponseWriter
	h      *handler
	own    [maxFields][]string // by h.names
	expose bool                // to scripts of browsers
	wrote  bool                // the header is sent, or nothing is to be merged
}

// pass calls next, which may add fields of another server.
func (h *handler) pass(w http.ResponseWriter, r *http.Request, as Charged) {
	if !h.options.Merge {
		h.next(w, r, as)
		return
	}
	m := mergings.Get().(*merging)
	*m = merging{ResponseWriter: w, h: h}
	if m.remember() {
		w = m
	}
	h.next(w, r, as)
	m.merge() // of an answer without a body that nobody has begun
	*m = merging{}
	mergings.Put(m) // not after a panic, as somebody may hold it still
}

var mergings = sync.Pool{New: func() any { return new(merging) }}

// remember notes what this door has set, and reports whether it has set anything.
func (m *merging) remember() (set bool) {
	header := m.Header()
	for i, name := range m.h.names {
		m.own[i] = header[name]
		set = set || m.own[i] != nil
	}
	m.expose, m.wrote = slices.Contains(header[fieldExpose], m.h.exposed), !set
	return set
}

// Values is room for those of the header.
func (m *merging) Values() *values.Room { return values.Of(m.ResponseWriter) }

// Unwrap is for http.ResponseController.
func (m *merging) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *merging) WriteHeader(status int) {
	switch {
	case m.wrote:
	case status < 200 && status != http.StatusSwitchingProtocols:
		// An early answer. The one to come has the fields, whatever becomes of the header in
		// between: httputil.ReverseProxy empties it.
		header := m.Header()
		for i, name := range m.h.names {
			replace(header, name, m.foreign(i, header[name]))
		}
	default:
		m.merge()
	}
	m.ResponseWriter.WriteHeader(status)
}

func (m *merging) Write(body []byte) (int, error) {
	m.merge()
	return m.ResponseWriter.Write(body)
}

// FlushError sends what there is, the header first.
func (m *merging) FlushError() error {
	m.merge()
	return http.NewResponseController(m.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that know no http.ResponseController.
func (m *merging) Flush() { _ = m.FlushError() }

// foreign are the lines of a field that this door has not set.
func (m *merging) foreign(i int, lines []string) []string {
	if own := m.own[i]; len(own) > 0 && len(lines) > 0 && lines[0] == own[0] {
		return lines[1:]
	}
	return lines
}

// merge is called where the header is sent.
func (m *merging) merge() {
	if m.wrote {
		return
	}
	m.wrote = true
	header := m.Header()
	var theirs http.Header
	for i, name := range m.h.names {
		if lines := m.foreign(i, header[name]); len(lines) > 0 {
			if theirs == nil {
				theirs = make(http.Header, maxFields)
			}
			theirs[name] = lines
		}
		replace(header, name, m.own[i])
	}
	if m.expose && !slices.Contains(header[fieldExpose], m.h.exposed) {
		header.Add(fieldExpose, m.h.exposed)
	}
	if theirs == nil {
		return
	}
	if m.h.options.Draft >= Draft07 {
		m.h.mergeEarly(header, theirs)
	} else {
		m.h.mergeLists(header, theirs)
	}
	m.h.mergeLegacy(header, theirs)
}

// replace sets the lines of a field, or deletes it.
func replace(header http.Header, name string, lines []string) {
	if len(lines) == 0 {
		delete(header, name)
		return
	}
	header[name] = lines
}

// quota is what the fields of a server say of one limit.
type quota struct {
	name string
	// members of RateLimit, RateLimit-Policy and RateLimit-Partition; empty if there is none
	item, policy, partition string
	left, until             int64 // until: in seconds, 0 if it is not said
}

// tighter reports whether a client has to know of q rather than of other.
func (q *quota) tighter(other *quota) bool {
	return q.left < other.left || q.left == other.left && q.until > other.until
}

// mergeLists joins what two servers say by -08 and later. Of two limits with one name the tighter one is told, under
// BindingOnly of all.
func (h *handler) mergeLists(header, theirs http.Header) {
	kept := h.quotas(header)
	for _, q := range h.quotas(theirs) {
		switch at := slices.IndexFunc(kept, func(k quota) bool { return h.options.BindingOnly || k.name == q.name }); {
		case at < 0:
			kept = append(kept, q)
		case q.item != "" && q.tighter(&kept[at]):
			if q.name == kept[at].name && q.policy == "" { // then it is described already
				q.policy, q.partition = kept[at].policy, kept[at].partition
			}
			kept[at] = q
		}
	}
	var items, policies, partitions []string
	for i := range kept {
		items, policies, partitions = appendMember(items, kept[i].item), appendMember(policies, kept[i].policy),
			appendMember(partitions, kept[i].partition)
	}
	for name, members := range map[string][]string{fieldRateLimit: items, fieldPolicy: policies,
		fieldPartition: partitions} {
		delete(header, name)
		if len(members) > 0 {
			header[name] = []string{strings.Join(members, ", ")}
		}
	}
}

func appendMember(to []string, member string) []string {
	if member == "" {
		return to
	}
	return append(to, member)
}

// quotas reads Lists of limits, in the words of either version, and writes them in those of this door's.
func (h *handler) quotas(header http.Header) (all []quota) {
	items, policies, partitions := members(header, fieldRateLimit), members(header, fieldPolicy),
		members(header, fieldPartition)
	for _, item := range items {
		q := quota{name: item.Name}
		var said, renamed bool
		if q.left, renamed = item.Integer("a"); renamed {
			q.until, _ = item.Integer("w")
		} else if q.left, said = item.Integer("r"); said {
			q.until, _ = item.Integer("t")
		}
		if !said && !renamed || q.left < 0 || q.until < 0 || q.until >= smallestEpoch {
			continue // malformed, which is to be ignored (-10 §6)
		}
		if q.item = written(&item); renamed != (h.options.Draft == Proposal166) {
			left, until := h.options.Draft.keys()
			q.item = string(appendName(nil, q.name)) + left + strconv.FormatInt(q.left, 10)
			if q.until > 0 {
				q.item += until + strconv.FormatInt(q.until, 10)
			}
		}
		q.policy, q.partition = memberOf(policies, q.name), memberOf(partitions, q.name)
		all = append(all, q)
	}
	for i := range policies { // that are described, and nothing said of what is left
		if name := policies[i].Name; !slices.ContainsFunc(items,
			func(item sfv.Item) bool { return item.Name == name }) {
			all = append(all, quota{name: name, policy: written(&policies[i]), left: math.MaxInt64})
		}
	}
	return all
}

// members reads a List; none of what is not one, or no List that describes quotas.
func members(header http.Header, name string) []sfv.Item {
	value := strings.Join(header[name], ", ")
	if len(value) > maxForeign {
		return nil
	}
	items, _ := sfv.ParseList(value)
	return items
}

// memberOf is the member of a name, as it stands there; empty if there is none.
func memberOf(list []sfv.Item, name string) string {
	at := slices.IndexFunc(list, func(item sfv.Item) bool { return item.Name == name })
	if at < 0 {
		return ""
	}
	return written(&list[at])
}

// written is a member with its name as a String, which some servers write as a Token.
func written(item *sfv.Item) string {
	if strings.HasPrefix(item.Text, `"`) {
		return item.Text
	}
	return string(appendName(nil, item.Name)) + strings.TrimPrefix(item.Text, item.Name)
}

// mergeEarly takes the fields of -07 and before from the server whose limit is tighter.
func (h *handler) mergeEarly(header, theirs http.Header) {
	own, theirOwn := h.early(header), h.early(theirs)
	if theirOwn == nil || own != nil && !theirOwn.tighter(own) {
		return
	}
	for _, name := range h.names {
		if strings.HasPrefix(name, fieldRateLimit) {
			replace(header, name, theirs[name])
		}
	}
}

// early reads one limit as Options.Draft has it; nil if none is said.
func (h *handler) early(header http.Header) *quota {
	left, until := header.Get(fieldRemaining), header.Get(fieldReset)
	if h.options.Draft == Draft07 {
		left, until = "", ""
		for part := range strings.SplitSeq(header.Get(fieldRateLimit), ",") {
			switch key, value, _ := strings.Cut(strings.TrimSpace(part), "="); key {
			case "remaining":
				left = value
			case "reset":
				until = value
			}
		}
	}
	return single(left, until)
}

// single reads a limit by numbers that stand alone.
func single(left, until string) *quota {
	var q quota
	var errs [2]error
	q.left, errs[0] = strconv.ParseInt(left, 10, 64)
	q.until, errs[1] = strconv.ParseInt(until, 10, 64)
	if errs != [2]error{} || q.left < 0 || q.until < 0 || q.until >= smallestEpoch {
		return nil
	}
	return &q
}

// smallestEpoch is above every number of seconds to wait: what is more is a time of day (since 2001).
const smallestEpoch = 1e9

// mergeLegacy takes X-RateLimit-* from the server whose limit is tighter, with its reset in this door's dialect,
// whichever it came in.
func (h *handler) mergeLegacy(header, theirs http.Header) {
	left := theirs.Get(legacyRemaining)
	after, ok := h.until(theirs.Get(legacyReset))
	if !ok {
		return
	}
	q := single(left, strconv.FormatInt(after, 10))
	if q == nil {
		return
	}
	if ours := header.Get(legacyRemaining); ours != "" {
		own, _ := h.until(header.Get(legacyReset))
		if o := single(ours, strconv.FormatInt(own, 10)); o != nil && !q.tighter(o) {
			return
		}
	}
	for _, name := range []string{legacyLimit, legacyRemaining, legacyStrategy} {
		replace(header, name, theirs[name])
	}
	header[legacyReset] = []string{h.options.reset(time.Duration(after) * time.Second)}
}

// until reads X-RateLimit-Reset in any dialect, in seconds from now.
func (h *handler) until(reset string) (seconds int64, ok bool) {
	now := h.options.Now()
	if at, err := time.Parse(time.RFC3339, reset); err == nil {
		return max(0, int64(math.Ceil(at.Sub(now).Seconds()))), true
	}
	n, err := strconv.ParseFloat(reset, 64)
	switch {
	case err != nil || n < 0 || n > 1e15 || n != n:
		return 0, false
	case n >= 1000*smallestEpoch: // milliseconds
		n = n/1000 - float64(now.UnixNano())/1e9
	case n >= smallestEpoch:
		n -= float64(now.UnixNano()) / 1e9
	}
	return max(0, int64(math.Ceil(n))), true
}
