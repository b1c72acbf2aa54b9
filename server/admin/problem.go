package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// Problem is why a request was not served: problem details (RFC 9457).
type Problem struct {
	Type   string `json:"type"` // names the kind; the same for ever
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	// Faults has one text for each thing that is wrong, where there are several.
	Faults []string `json:"faults,omitempty"`
}

// kind is a kind of problem. Programs tell kinds by their names, which are never
// given to another one.
type kind struct {
	name   string
	status int
	title  string
}

// kindPrefix begins the type of every problem.
const kindPrefix = "urn:headgate:problem:"

var (
	invalidRequest   = kind{"invalid-request", http.StatusBadRequest, "The request is not one that the API takes"}
	unauthenticated  = kind{"unauthenticated", http.StatusUnauthorized, "The admin token is missing or wrong"}
	roleMissing      = kind{"role-missing", http.StatusForbidden, "The admin token lacks the role for this"}
	strangeOrigin    = kind{"strange-origin", http.StatusForbidden, "The request comes by way of a web page"}
	noSuchPath       = kind{"no-such-path", http.StatusNotFound, "Nothing is at this path"}
	notFound         = kind{"not-found", http.StatusNotFound, "What the request names is not there"}
	methodNotAllowed = kind{"method-not-allowed", http.StatusMethodNotAllowed, "The path does not take the method"}
	notInForce       = kind{"not-in-force", http.StatusConflict, "The rules in the database are not in force"}
	alreadyDecided   = kind{"already-decided", http.StatusConflict, "Somebody else has decided already"}
	nameTaken        = kind{"name-taken", http.StatusConflict, "The name is taken"}
	keyInUse         = kind{"idempotency-key-in-use", http.StatusConflict, "The same request is being served"}
	versionChanged   = kind{"version-changed", http.StatusPreconditionFailed,
		"Somebody has changed the rules meanwhile"}
	ifMatchMissing = kind{"if-match-missing", http.StatusPreconditionRequired,
		"The request must say which version it changes"}
	pagesMoved   = kind{"pages-moved", http.StatusGone, "What the pages show has changed"}
	tooLarge     = kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large"}
	notJSON      = kind{"not-json", http.StatusUnsupportedMediaType, "The body is not sent as JSON"}
	unacceptable = kind{"unacceptable", http.StatusUnprocessableEntity, "The request makes no sense here"}
	keyReused    = kind{"idempotency-key-reused", http.StatusUnprocessableEntity,
		"The idempotency key belongs to another request"}
	tooManyFailures = kind{"too-many-failures", http.StatusTooManyRequests,
		"Too many wrong tokens came from this address"}
	unavailable = kind{"unavailable", http.StatusServiceUnavailable, "The gateway cannot do that now"}
)

// fault is an error that knows what kind of problem it is.
type fault struct {
	kind
	err error
}

func (f fault) Error() string { return f.err.Error() }
func (f fault) Unwrap() error { return f.err }

// refuse answers with a problem of kind k.
func refuse(w http.ResponseWriter, r *http.Request, k kind, err error) {
	text := err.Error()
	p := Problem{
		Type:   kindPrefix + k.name,
		Title:  k.title,
		Status: k.status,
		Detail: strings.ReplaceAll(text, "\n", "; "),
	}
	if lines := strings.Split(text, "\n"); len(lines) > 1 {
		p.Faults = lines
	}
	writeProblem(w, r, p)
}

// writeProblem answers with p, never to be cached, without a body for HEAD.
func writeProblem(w http.ResponseWriter, r *http.Request, p any) {
	body, err := json.Marshal(p)
	if err != nil {
		panic("a problem is no JSON: " + err.Error()) // ours: it is made of texts and numbers
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(p.(interface{ status() int }).status())
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // the client is gone if this fails
	}
}

func (p Problem) status() int { return p.Status }
