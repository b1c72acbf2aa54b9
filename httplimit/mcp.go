package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/rate"
)

// MCP is one endpoint that takes messages of the Model Context Protocol by its Streamable HTTP
// transport. One whose method, or whose tool, has a template of its own is a request for that instead
// of Endpoint: with "MCP /mcp/tools/call/search" in the table, a call of the tool search at POST /mcp.
// A body that is not exactly one message is refused, and reaches nobody. Endpoint is required; every
// other zero value is a safe default.
type MCP struct {
	// Endpoint is a template that the table has, without parameters: "POST /mcp".
	Endpoint string

	// MaxBytes is the longest body that is read, up to 64 MiB. Each request under way holds so much.
	// Default 1 MiB.
	MaxBytes int

	// ReadTimeout is how long a body may take to arrive, as Login.ReadTimeout. Default 10 s.
	ReadTimeout time.Duration
}

// Models is one endpoint that takes requests to language models, each of which names its model in the field "model" of
// its body. One whose model has a template of its own is a request for that instead of Endpoint: with "MODEL
// /v1/messages/large" in the table, a request for the model large at POST /v1/messages. A body that does not name one
// model for sure is refused, and reaches nobody. The fields are those of MCP.
type Models MCP

// messagePrefix is what templates of the messages at an endpoint begin with.
func messagePrefix(of string) (string, error) {
	path, ok := strings.CutPrefix(of, http.MethodPost+" ")
	if !ok || strings.ContainsAny(path, "{?") || strings.HasSuffix(path, "/") {
		return "", fmt.Errorf("Endpoint is %q, want POST and a path without parameters, such as POST /mcp", of)
	}
	return path + "/", nil
}

// messages makes what reads the messages at one endpoint, whose templates have a method of their own.
func (c *Calls) messages(table *endpoint.Table, e MCP, method string) (*called, error) {
	prefix, errPrefix := messagePrefix(e.Endpoint)
	made, err := c.reads(body.Batch{MaxBytes: e.MaxBytes}, e.ReadTimeout)
	if err = errors.Join(errPrefix, err); err != nil {
		return nil, err
	}
	made.messages = &messages{table, method, prefix}
	return made, nil
}

// messages says which endpoints messages are for.
type messages struct {
	table          *endpoint.Table
	method, prefix string
}

// count has request ask for the endpoint that a message is for, if it has one of its own. It returns by what its
// answer is known, if that is JSON-RPC.
func (m *messages) count(text []byte, request *headgate.Request) (id []byte, fault body.Fault) {
	target := []byte(m.prefix)
	if m.method == endpoint.Model {
		model, fault := body.ReadText(text, "model")
		if fault != body.None {
			return nil, fault
		}
		target = appendSegments(target, model, false)
	} else {
		message, fault := body.ReadMessage(text)
		if fault != body.None || message.Method == "" {
			return message.ID, fault
		}
		target = appendSegments(target, message.Method, true)
		if message.Method == "tools/call" {
			target = appendSegments(append(target, '/'), message.Name, false)
		}
		id = message.ID
	}
	if to := string(target); m.table.Match(m.method, to).Status == endpoint.Known {
		request.Line = headgate.Line{Method: request.Method, Target: request.Target}
		request.Method, request.Target, request.Message = m.method, to, true
	}
	return id, body.None
}

// appendSegments appends what a client wrote as segments of a target that no reading of targets changes: what stands
// for something there is ~, and so is a whole segment of one or two dots, or of nothing.
func appendSegments(b []byte, text string, slashes bool) []byte {
	from := len(b)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '/' && slashes:
			b = plain(b, from)
			b = append(b, '/')
			from = len(b)
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '$':
			b = append(b, c)
		default:
			b = append(b, '~')
		}
	}
	return plain(b, from)
}

func plain(b []byte, from int) []byte {
	switch string(b[from:]) {
	case "", ".", "..":
		return append(b[:from], '~')
	}
	return b
}

// refuseMessage answers a message in its own protocol, so that who sent it learns why; false if it is not one that is
// answered. The status is 200: clients hand no other on to the model.
func refuseMessage(w http.ResponseWriter, r *http.Request, why *refusal.Refusal) bool {
	b, ok := r.Body.(*replay)
	if !ok || b.id == nil || why.Status != http.StatusTooManyRequests && why.Status != http.StatusServiceUnavailable {
		return false
	}
	text := why.Title + ". " + why.Detail
	data := `{"status":` + strconv.Itoa(why.Status)
	if why.RetryAfter > 0 {
		seconds := strconv.FormatInt(max(1, rate.Seconds(why.RetryAfter)), 10)
		if why.Status == http.StatusServiceUnavailable { // else Detail says it
			text += " Retry in " + seconds + "s."
		}
		data += `,"retryAfterSeconds":` + seconds
	}
	for i, name := range why.Violated {
		separator := `,`
		if i == 0 {
			separator = `,"violatedPolicies":[`
		}
		data += separator + problem.Quote(name)
	}
	if len(why.Violated) > 0 {
		data += `]`
	}
	problem.Write(w, r, problem.Details{Status: http.StatusOK, ContentType: "application/json", Body: []byte(
		`{"jsonrpc":"2.0","id":` + string(b.id) + `,"error":{"code":` + strconv.Itoa(overLimitCode) +
			`,"message":` + problem.Quote(text) + `,"data":` + data + "}}}\n")})
	return true
}

// overLimitCode is of those that JSON-RPC 2.0 section 5.1 leaves to servers.
const overLimitCode = -32029
