package record

import "strconv"

// Quote writes a text into a message, not more than a line of it.
func Quote(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}
