// Package redistest runs Redis servers for tests: real ones, each in a folder of its own.
package redistest
