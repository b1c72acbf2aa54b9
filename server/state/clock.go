package state

// Clock tells the wall clock's time in Unix nanoseconds, and how long the machine has been on, which no step of the
// wall clock changes; 0 if that is not known.
type Clock func() (wall, boot int64)

// elapsed is how much time has passed since the file was written, or less: what drains in more than has passed was
// never there.
//
// While the machine stays on, that is what its clock since the start has counted, however the wall clock was set
// meanwhile. Whether it did is not asked, as the name of a start is not to be had everywhere: the clock of another
// start is most often behind, and if it is not, the wall clock bounds it.
func elapsed(now Clock, h *header) int64 {
	wall, boot := now()
	passed := max(0, wall-h.Wall)
	if h.Boot > 0 && boot >= h.Boot {
		return min(passed, boot-h.Boot)
	}
	return passed
}
