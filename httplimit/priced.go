package httplimit

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/body"
)

// Priced is one endpoint whose requests say what they cost before they are decided, in their bodies or in the
// query of their targets: operations of GraphQL. One whose price cannot be told is refused, and reaches nobody.
// Endpoint and Price are required; every other zero value is a safe default.
type Priced struct {
	// Endpoint is a template that the table has, "POST /graphql".
	Endpoint string

	// Price tells what a request costs. target is its target in origin form, as it is charged and sent on, and text its
	// body, which is whole, JSON by its header and not compressed; nil for none.
	Price func(r *http.Request, target string, text []byte) Price

	// Portions says what of a request costs how much, for whoever explains requests, also where that is too much: the
	// dearest first, some at most. Default nil.
	Portions func(r *http.Request, target string, text []byte) []Portion

	// Refuse answers a request that Price found a fault of, and reports false to leave that to problem details. Default
	// nil.
	Refuse func(w http.ResponseWriter, r *http.Request, p Price) bool

	// MaxBytes is the longest body that is read, up to 64 MiB. Each request under way holds so much.
	// Default 1 MiB.
	MaxBytes int

	// ReadTimeout is how long a body may take to arrive, as Login.ReadTimeout. Default 10 s.
	ReadTimeout time.Duration
}

// Price is what a request costs.
type Price struct {
	// Cost is that of all its parts together, in tokens; rounded up to the same for each. 0 is what the endpoint costs.
	Cost int64

	// Parts is how many requests it holds; 0 is one.
	Parts int

	// Many says that its one answer speaks for several things that were asked for, so that it counts whatever its
	// status, where only some answers count.
	Many bool

	// Fault says why it has no price; none if it has one. Why says it to the client.
	Fault body.Fault
	Why   string
}

func (c *Calls) price(p Priced) (*called, error) {
	var errPrice error
	if p.Price == nil {
		errPrice = errors.New("Price is nil, want what prices requests")
	}
	made, err := c.reads(body.Batch{MaxBytes: p.MaxBytes}, p.ReadTimeout)
	if err = errors.Join(errPrice, err); err != nil {
		return nil, err
	}
	made.priced = &p
	return made, nil
}

// answers reports whether a request with a fault is answered as its endpoint does.
func (p *Priced) answers(w http.ResponseWriter, r *http.Request, price Price) bool {
	return p.Refuse != nil && p.Refuse(w, r, price)
}
