package record

import "time"

// Reload is what came of reading a configuration and the documents that it names again.
type Reload struct {
	At        time.Time `json:"at"`
	Endpoints int       `json:"endpoints"` // in force
	Added     int       `json:"added"`     // of those
	Removed   int       `json:"removed"`

	Changed []string `json:"changed,omitempty"` // settings, such as headers.legacy
	Restart []string `json:"restart,omitempty"` // settings that changed and wait for a restart
}
