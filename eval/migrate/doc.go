// Package migrate runs the limiters that docs/coming-over.md tells how to come over from, and Headgate as the page
// says, by one trace, and compares who was admitted.
package migrate
