package token

import (
	"context"
	"errors"
	"strings"

	"github.com/headgate-io/headgate/identity"
)

// Result is what became of one check of a token.
type Result struct {
	Check  string // one of Checks
	Passed bool
	Detail string // why it failed
}

// Inspect verifies a token and tells of every check up to the first that
// fails. It says nothing of the token that Verify would not say.
func (v *Verifier) Inspect(token string) ([]Result, identity.Claims, error) {
	claims, err := v.Verify(context.Background(), strings.TrimSpace(token))
	var refusal *Refusal
	if err != nil && !errors.As(err, &refusal) {
		return nil, claims, err
	}
	var results []Result
	for _, check := range Checks {
		if refusal != nil && refusal.Check == check {
			results = append(results, Result{Check: check, Detail: refusal.Detail})
			break
		}
		results = append(results, Result{Check: check, Passed: true})
	}
	return results, claims, err
}
