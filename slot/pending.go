package slot

import "strconv"

// FieldPending is the request field by which a caller says how many more of its requests
// wait, as an Integer. It shows that the caller understands slots.
const FieldPending = "Headgate-Pending"

// maxPending bounds FieldPending. It is worth one slot, whatever it says.
const maxPending = 1000

// ReadPending reads FieldPending. understood is whether there is one; h may be nil.
func ReadPending(h interface{ Values(name string) []string }) (requests int, understood bool) {
	if h == nil {
		return 0, false
	}
	values := h.Values(FieldPending)
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return int(min(n, maxPending)), err == nil
}
