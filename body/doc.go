// Package body finds one named value in the body of a request, the login name
// that a caller tries, which rules with subject "identifier" count by, how
// many requests the body holds, or which method a message of JSON-RPC calls.
//
// What decides whose budget an attempt uses must be read as the server behind
// reads it, or an attacker sends what the two read differently. So a body has
// one reading here, or none: whatever another parser might take for something
// else (a name twice, a name that differs only in case, an encoding of its own)
// is a Fault, and the request goes the strict way. Nothing is ever guessed.
//
// A Counter counts the parts of a body that holds many requests, by the same
// rules: a batch of which nobody is sure how many it holds is not one.
//
// A Finder is immutable and safe for concurrent use. It works on bytes that
// were read already, allocates nothing while dst has room, keeps nothing, and
// takes time linear in the body whatever it holds.
package body
