// Package proofs holds no Go. Beside it lie the machine-checked proofs of what package bucket
// promises, and the test that compares the Go code with the program that Coq extracts from them:
// see README.md.
package proofs
