package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// ActionRequest is that of a version that approved a request.
const ActionRequest = "request"

// Actions of the audit about requests for a higher limit.
const (
	ActionFile     = "request"
	ActionWithdraw = "withdraw"
	ActionApprove  = "approve"
	ActionDecline  = "decline"
)

// DecidedError is returned about a request that is not open any more: somebody
// else was faster, or it ran out.
type DecidedError struct{ Request LimitRequest }

func (e *DecidedError) Error() string {
	text := fmt.Sprintf("request %s is %s already", e.Request.ID, e.Request.State)
	if e.Request.DecidedBy != "" {
		text += ", by " + e.Request.DecidedBy
	}
	return text
}

// Grant is what an operator makes of a request.
type Grant struct {
	Actor, Claimed string // who decides
	Note           string

	// Rule is the temporary rule that the request becomes. It is asked for the
	// request and the rules as they are when they cannot change any more.
	Rule func(LimitRequest, policy.Document) (policy.Rule, error)

	// Check is that of an Edit; nil accepts the rule.
	Check func(before, after policy.Document) error
}

// RequestState is what became of a request for a higher limit.
type RequestState string

// The states. Only an open request goes over into another one.
const (
	RequestOpen      RequestState = "open"
	RequestApproved  RequestState = "approved"
	RequestDeclined  RequestState = "declined"
	RequestWithdrawn RequestState = "withdrawn"
	RequestExpired   RequestState = "expired" // nobody decided before it was of no use any more
)

// RequestStates are all of them.
var RequestStates = []RequestState{RequestOpen, RequestApproved, RequestDeclined, RequestWithdrawn, RequestExpired}

// Asked is the limit that a caller asks for.
type Asked struct {
	Endpoint string
	Subject  policy.Subject
	Limit    int64
	Per      time.Duration
	Burst    int64 // 0 leaves it to the operator's default

	// Until is when the limit is to end, or For how long it is to last from the
	// approval on. One of the two.
	Until time.Time
	For   time.Duration
}

// LimitRequest is a request for a higher limit, and what became of it. Times are
// whole seconds.
type LimitRequest struct {
	ID      string
	Filed   time.Time
	Actor   string // who filed it, as far as proven: "api_key k_…", or a digest of a token's subject
	Claimed string // who they say they are
	Project string
	Asked
	Reason string

	State          RequestState
	Decided        time.Time
	DecidedBy      string
	DecidedClaimed string
	Note           string

	// Granted is what an approval made of it, with Until and without For, and
	// Version the version of the rules that it is in.
	Granted Asked
	Version int64
}

// Bounds of what is kept of requests.
const (
	// RequestsADay is how many requests a project may file in 24 hours, whatever
	// became of them.
	RequestsADay = 20

	// RequestLife is after how long an open request expires.
	RequestLife = 90 * 24 * time.Hour
)

// ErrTooManyRequests is what File returns when a project has filed too many
// requests to file another one now.
var ErrTooManyRequests = errors.New("too many requests for a higher limit")

// RequestQuery says which requests are meant. Empty fields are any.
type RequestQuery struct {
	Project string
	State   RequestState
	Before  string // the ID of a request: those filed before it
	Most    int    // 1 or more
}

// IsOver reports whether a request that is open can be of no use any more.
func (q *LimitRequest) IsOver(now time.Time) bool {
	return !q.Until.IsZero() && !q.Until.After(now) || !q.Filed.Add(RequestLife).After(now)
}

// KeepRequests is the least time for which a request for a higher limit that was
// decided is kept. The database refuses to give it up earlier, to whomever.
const KeepRequests = 30 * 24 * time.Hour
