package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Cause says why the store could not answer.
type Cause uint8

// The causes. They are few and fixed, so that they can be counted.
const (
	Unreachable  Cause = iota // no connection, or it broke
	TimedOut                  // no answer before the deadline of the context, or the caller left
	OutOfMemory               // the server has no room and may evict nothing
	ReadOnly                  // the server is a replica
	Busy                      // the server is loading its data, is being failed over, or runs somebody's script
	Forbidden                 // wrong user or password, or not allowed to run scripts
	ForeignValue              // something else is kept under the name of a bucket
	NoScripts                 // the server cannot run the script, or runs another
	Refused                   // any other error that the server answered
)

var causes = [...]string{"unreachable", "timed_out", "out_of_memory", "read_only", "busy", "forbidden", "foreign_value",
	"no_scripts", "refused"}

func (c Cause) String() string { return causes[c] }

// Error says that the store could not answer, and why. Nothing was admitted.
type Error struct {
	Cause Cause
	Err   error // as the server or the client of the store said it
}

func (e *Error) Error() string {
	return fmt.Sprintf("the bucket store cannot answer: %s: %v", strings.ReplaceAll(e.Cause.String(), "_", " "), e.Err)
}

// Unwrap leads to what the client said.
func (e *Error) Unwrap() error { return e.Err }

// codes are how servers begin their errors. What is not listed is Refused.
var codes = map[string]Cause{
	"OOM": OutOfMemory, "READONLY": ReadOnly, "MISCONF": ReadOnly, "NOREPLICAS": ReadOnly,
	"LOADING": Busy, "BUSY": Busy, "MASTERDOWN": Busy, "CLUSTERDOWN": Busy, "TRYAGAIN": Busy,
	"NOAUTH": Forbidden, "WRONGPASS": Forbidden, "NOPERM": Forbidden,
	"WRONGTYPE": ForeignValue, "NOSCRIPT": NoScripts,
}

// fault is err as an *Error.
func fault(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{TimedOut, err}
	}
	code, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "-"), " ")
	if cause, ok := codes[code]; ok {
		return &Error{cause, err}
	}
	// Servers say in which script it was, and behind it what.
	for code, cause := range codes {
		if strings.Contains(err.Error(), "-"+code+" ") {
			return &Error{cause, err}
		}
	}
	switch {
	case strings.Contains(err.Error(), "unknown command"):
		return &Error{NoScripts, err}
	case strings.Contains(err.Error(), "The user executing the script can't"): // run a command, or reach a key
		return &Error{Forbidden, err}
	case code == "ERR" || code == "CROSSSLOT" || code == "MOVED" || code == "ASK":
		return &Error{Refused, err}
	}
	return &Error{Unreachable, err}
}

// foreign says that a name is taken by something that is no bucket. It does not tell what, and the
// name holds no secret.
func foreign(key string) error {
	return &Error{ForeignValue, fmt.Errorf("what is kept under %q is no bucket of this version", key)}
}
