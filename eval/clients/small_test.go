//go:build !long

package main

// smallProblems are so many that the optimum is looked for of; `make long` has more.
const smallProblems = 60
