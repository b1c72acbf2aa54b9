// Package body finds one named value in the body of a request: the login name
// that a caller tries, which rules with subject "identifier" count by.
//
// What decides whose budget an attempt uses must be read as the server behind
// reads it, or an attacker sends what the two read differently. So a body has
// one reading here, or none: whatever another parser might take for something
// else (a name twice, a name that differs only in case, an encoding of its own)
// is a Fault, and the request goes the strict way. Nothing is ever guessed.
//
// A Finder is immutable and safe for concurrent use. It works on bytes that
// were read already, allocates nothing while dst has room, keeps nothing, and
// takes time linear in the body whatever it holds.
package body
