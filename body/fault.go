package body

// Fault says why a request has no identifier, or why its parts cannot be counted. The
// zero value, None, means that it has one, or that they are.
type Fault uint8

// The faults. None of them says anything of the value itself. The last three are of requests that are priced, in which
// Depth, Twice, Alike, Missing and Many may be of operations too.
const (
	None     Fault = iota
	Media          // the Content-Type is not one that is read, or stands several times
	Charset        // the Content-Type names another charset than UTF-8, or another parameter
	Encoding       // the body is compressed: it is never expanded
	Long           // the body is longer than MaxBytes
	Empty          // there is no body
	Unread         // the body could not be read to its end
	Syntax         // the body is not what its Content-Type says
	Depth          // the body nests deeper than MaxDepth
	Twice          // the field, or an object on the way to it, stands twice
	Alike          // another name, here or in the query, may be taken for the field's
	Missing        // the field is not there
	Kind           // the field is neither a string nor a whole number; of parts, no array
	Text           // the value holds control characters, or is not text
	Length         // the value is empty, or longer than MaxLength
	Many           // there are more parts than MaxParts
	Crowded        // the bodies of other requests leave no room for it
	Schema         // it asks for what the schema of the endpoint does not have
	Costly         // it costs more than a request may
	Stored         // it names a document in place of holding it
	faults         // how many there are
)

// Faults is how many faults there are, None among them; they count from 0.
const Faults = int(faults)

var faultCodes = [faults]string{
	None: "none", Media: "media", Charset: "charset", Encoding: "encoding", Long: "long", Empty: "empty",
	Unread: "unread", Syntax: "syntax", Depth: "depth", Twice: "twice", Alike: "alike", Missing: "missing",
	Kind: "kind", Text: "text", Length: "length", Many: "many", Crowded: "crowded", Schema: "schema",
	Costly: "costly", Stored: "stored",
}

// String returns a word for programs and people: a metric's label.
func (f Fault) String() string {
	if f < faults {
		return faultCodes[f]
	}
	return "unknown"
}
