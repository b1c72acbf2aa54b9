package identity

import (
	"context"
	"errors"
)

// MaxTokenLength is the longest bearer token that is given to a
// TokenVerifier, in bytes. Longer ones are refused before any work.
const MaxTokenLength = 8 << 10

// Claims is what a verified token says about its holder.
type Claims struct {
	// Subject is the stable name of the holder within Project. Required.
	Subject string
	Project string // the tenant; empty if there are none
	Tier    string // the tenant's tier; empty if the policy says
}

// TokenVerifier verifies bearer tokens. It alone answers for the signature,
// the algorithm, the times, the audience and the issuer: whatever it returns
// without an error is believed. Verify must be safe for concurrent use. Errors
// other than these two mean that the token is not valid:
//
//   - ErrTokenExpired: the token was valid once;
//   - ErrUnavailable: it could not find out, say because no key was fetched.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (Claims, error)
}

// Errors that a TokenVerifier returns, possibly wrapped.
var (
	ErrTokenExpired = errors.New("bearer token has expired")
	ErrUnavailable  = errors.New("bearer tokens cannot be verified at present")
)

// refusal turns a verifier's error into why the token is not used.
func refusal(err error) Rejection {
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return LookupFailed
	case errors.Is(err, ErrTokenExpired):
		return TokenExpired
	}
	return TokenRefused
}

// isToken reports whether s is a b64token (RFC 6750 §2.1), so that neither
// garbage nor a list of tokens reaches a verifier.
func isToken(s string) bool {
	for s != "" && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	for i := range len(s) {
		switch c := s[i]; {
		case alphanumeric(c), c == '-', c == '.', c == '_', c == '~', c == '+', c == '/':
		default:
			return false
		}
	}
	return s != ""
}
