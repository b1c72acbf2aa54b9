package policy

// Level is a place in the order of precedence. A subject is ruled by the first
// level, from LevelEndpointProject to LevelUnknown, that has a live rule for
// it, and besides by the first from LevelAllProject to LevelAll. Requests that
// match no endpoint see LevelUnknown alone. A rule in shadow that is met on the
// way applies too, the first of each way, and the search goes on: it counts
// beside the rule that holds and never in its place.
//
// Without tiers this is the chain of the paper, section 6.2. Tiers come from
// the request or from Document.Projects.
type Level uint8

// The levels, the most specific first.
const (
	LevelEndpointProject Level = iota // this endpoint, this project
	LevelEndpointTier                 // this endpoint, the project's tier
	LevelEndpoint                     // this endpoint
	LevelDefaultProject               // Default, this project
	LevelDefaultTier                  // Default, the project's tier
	LevelDefault                      // Default
	LevelUnknown                      // UnknownEndpoint
	LevelAllProject                   // All, this project
	LevelAllTier                      // All, the project's tier
	LevelAll                          // All

	// LevelFallback is beside the order: the rule that applies while the rules cannot be relied on. See Set.Fallback.
	LevelFallback

	levels = 10 // that a look-up goes through
)

var levelTexts = [levels + 1]string{
	"(endpoint, project)", "(endpoint, tier)", "(endpoint)",
	"(default, project)", "(default, tier)", "(default)",
	"(UNKNOWN)",
	"(*, project)", "(*, tier)", "(*)",
	"(fallback)",
}

// String reports the level as the documentation writes it: "(default, tier)".
func (l Level) String() string { return enumString(uint8(l), "level", levelTexts[:]) }

// EveryEndpoint reports whether rules of this level have one bucket for all
// endpoints together.
func (l Level) EveryEndpoint() bool { return l >= LevelAllProject }

// ofProject and ofTier report which part of the request a level asks for.
func (l Level) ofProject() bool {
	return l == LevelEndpointProject || l == LevelDefaultProject || l == LevelAllProject
}

func (l Level) ofTier() bool {
	return l == LevelEndpointTier || l == LevelDefaultTier || l == LevelAllTier
}
