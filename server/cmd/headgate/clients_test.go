package main

import (
	"strings"
	"testing"
)

const clientsLog = `192.0.2.1 - - [22/Nov/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"
192.0.2.2 - - [22/Nov/2026:12:00:02 +0000] "GET /a HTTP/1.1" 200 1 "-" "-"
192.0.2.1 - - [22/Nov/2026:12:00:17 +0000] "GET /b HTTP/1.1" 429 1 "-" "-"
192.0.2.1 - - [22/Nov/2026:12:07:00 +0000] "GET /b HTTP/1.1" 200 1 "-" "-"
`

// A log becomes lines of callers and times, which name nobody.
func TestClientsFromLog(t *testing.T) {
	for args, want := range map[string]string{
		"":               "0\t3\t0,17,420\n1\t1\t2\n",
		"--for 5m":       "0\t2\t0,17\n1\t1\t2\n",
		"--requests 2":   "0\t1\t0\n1\t1\t2\n",
		"--at-least 2":   "0\t3\t0,17,420\n",
		"--format json ": "",
		"--for -5m":      "",
		"--at-least 9":   "",
		"--over 42s":     "0\t3\t0,1.7,42\n1\t1\t0.2\n",
		"--over -1s":     "",
	} {
		var out, told strings.Builder
		root := newRoot(&out, &told)
		root.SetArgs(append([]string{"clients", "from-log", "-"}, strings.Fields(args)...))
		root.SetIn(strings.NewReader(clientsLog))
		err := root.Execute()
		if (err != nil) != (want == "") || out.String() != want {
			t.Errorf("%q: %q, %v (%s), want %q", args, out.String(), err, told.String(), want)
		}
		if strings.Contains(out.String()+told.String(), "192.0.2") {
			t.Errorf("%q names a caller: %s", args, out.String())
		}
	}
}
