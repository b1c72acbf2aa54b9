// Package token verifies bearer tokens: JSON Web Tokens (RFC 7519) in the
// compact form of a signature (RFC 7515), under keys that the operator chose.
//
// Whatever stands in a token was written by whoever sent it, so the token
// decides nothing about how it is verified. Which algorithms there are, which
// key has which of them, who the issuer is and which claim is the subject is
// configured; a token that names another key, brings its own, or names a place
// to fetch one is refused.
//
// The cheap checks come first (size, form, algorithm, key, issuer, audience,
// times, subject), each on text that was read strictly: one spelling of base64,
// no name twice in an object, names compared byte by byte. The signature comes
// last and is checked by go-jose, which reads the token on its own.
package token
