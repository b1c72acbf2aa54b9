package rate

// leastAside is how many tokens a part that is set aside holds at least. One that holds a single
// token denies the second of two requests that come together, however seldom they come.
const leastAside = 2

// SetAside divides s in two: so many percent of its rate and its burst, in equal parts for so many
// holders, and the rest. All parts and the rest together hold no more than s does, and drain no
// faster. It reports false, and s for the rest, where each part would hold fewer than two tokens,
// or percent is not 1 to 99, or s counts in windows.
func (s Shape) SetAside(percent, parts int) (each, rest Shape, ok bool) {
	if percent < 1 || percent > 99 || parts < 1 || parts > MaxParts || s.Unit < 1 || s.Drain < 1 ||
		!s.Algorithm.Drains() {
		return Shape{}, s, false
	}
	aside := s.Burst()/100*int64(percent) + s.Burst()%100*int64(percent)/100
	burst := aside / int64(parts)
	if burst < leastAside {
		return Shape{}, s, false
	}
	return s.fraction(int64(percent), 100*int64(parts), burst),
		s.fraction(int64(100-percent), 100, s.Burst()-aside), true
}
