package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

func TestCallsAreFilledIn(t *testing.T) {
	c, err := readText(t, "batches: [{endpoint: POST /rpc}]\nmcp: [{endpoint: POST /mcp}]\n")
	if err != nil {
		t.Fatal(err)
	}
	b := []config.Batch{{Endpoint: "POST /rpc", Batches: "count", MaxParts: 100, MaxBytes: 1 << 20,
		ReadTimeout: 10 * time.Second}}
	if !slices.Equal(c.Batches, b) {
		t.Errorf("batches = %+v, want %+v", c.Batches, b)
	}
	m := []config.MCP{{Endpoint: "POST /mcp", MaxBytes: 1 << 20, ReadTimeout: 10 * time.Second}}
	if !slices.Equal(c.MCP, m) {
		t.Errorf("mcp = %+v, want %+v", c.MCP, m)
	}
	if c.Clients.BodyMemory != 256<<20 {
		t.Errorf("clients.body_memory = %v, want 256MiB", c.Clients.BodyMemory)
	}
}

func TestCallsAreChecked(t *testing.T) {
	_, err := readText(t, `clients: {body_memory: 1KiB}
language_models: [{endpoints: [POST /v1/chat]}]
batches:
  - {field: a..b, batches: pass, max_parts: 10001, max_bytes: 1GiB, read_timeout: 1h}
  - {endpoint: POST /rpc}
  - {endpoint: POST /rpc}
  - {endpoint: POST /v1/chat}
mcp:
  - {max_bytes: 1, read_timeout: 1us}
  - {endpoint: POST /mcp}
  - {endpoint: POST /mcp}
  - {endpoint: POST /rpc}
  - {endpoint: POST /v1/chat}
`)
	for _, want := range []string{
		`clients.body_memory is "1KiB", want 1MiB to`,
		`clients.body_memory is "1KiB", want 2GiB or more, twice the longest max_bytes`,
		`batches[0].endpoint is "", want an endpoint`, `batches[0].field is "a..b", want the name of a field`,
		`batches[0].batches is "pass", want count or refuse`, `batches[0].max_parts is "10001", want 1 to 10000`,
		`batches[0].max_bytes is "1GiB", want 64B to 64MiB`, `batches[0].read_timeout is "1h0m0s"`,
		`batches[2].endpoint is "POST /rpc", want each endpoint once: batches[1].endpoint has it`,
		`batches[3].endpoint is "POST /v1/chat", want each endpoint once: language_models[0].endpoints has it`,
		`mcp[0].endpoint is "", want an endpoint`, `mcp[0].max_bytes is "1B", want 64B to 64MiB`,
		`mcp[0].read_timeout is "1µs"`, `mcp[2].endpoint is "POST /mcp", want each endpoint once: mcp[1].endpoint has it`,
		`mcp[3].endpoint is "POST /rpc", want each endpoint once: batches[1].endpoint has it`,
		`mcp[4].endpoint is "POST /v1/chat", want each endpoint once: language_models[0].endpoints has it`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Complete says\n%v\nwant %s", err, want)
		}
	}
	if _, err := readText(t, "listen: none\ndecisions: {listen: \"127.0.0.1:8082\"}\n"+
		"batches: [{endpoint: POST /rpc}]\nmcp: [{endpoint: POST /mcp}]\n"); err == nil ||
		!strings.Contains(err.Error(), `batches is "1 endpoints"`) ||
		!strings.Contains(err.Error(), `mcp is "1 endpoints"`) {
		t.Errorf("bodies where none are seen: %v", err)
	}
}
