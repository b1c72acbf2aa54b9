package main

import (
	"os"
	"strings"
)

// machineLoad is how many processes wanted to run in the last minute, on average.
func machineLoad() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load, err
}
