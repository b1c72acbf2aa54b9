package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/config"
)

// TestSignedOperations: what an operation of GraphQL costs is what the agent pays that has signed it, beside whoever
// else it is of, all or nothing; what is refused for its price spends no signature; what the API says that it cost in
// the end, and which answers count, holds for agents too; and a request whose body is still coming when schema and
// agents are loaded anew is priced by the schema that it came under, and counted for whom it is of by then.
func TestSignedOperations(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(engine, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if cost := r.Header.Get("Really"); cost != "" {
					w.Header().Set("X-Cost", cost)
				}
			}))
			t.Cleanup(api.Close)
			schema := filepath.Join(t.TempDir(), "people.graphql")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(schema, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(people)
			first, second, third := newSigningAgent(t), newSigningAgent(t), newSigningAgent(t)
			r := newReloading(t, []policy.Rule{
				{Endpoint: policy.Default, Limit: 30, Per: time.Hour},
				{Endpoint: policy.Default, Tier: "signed_agent", Limit: 100, Per: time.Hour},
			}, withSecret(t), withAgents(first, second, third), func(c *config.Config) {
				c.Upstream, c.Engine, c.Settle.Header = api.URL, engine, "X-Cost"
				c.GraphQL = []config.GraphQL{{Schema: schema, MaxCost: 60, Endpoints: []string{"POST /v1/items"}}}
			})
			type step struct {
				document string
				want     int
				header   []string
			}
			do := func(steps ...step) {
				t.Helper()
				for i, s := range steps {
					status, text := call(t, "POST", r.gate+"/v1/items", fmt.Sprintf(`{"query":%q}`, s.document),
						append(s.header, "Content-Type", asJSON)...)
					if status != s.want {
						t.Errorf("step %d, %s: %d %s, want %d", i, s.document, status, text, s.want)
					}
				}
			}
			of := func(n int) string { return fmt.Sprintf("{people(first:%d){name}}", n-1) } // what costs n
			alice := []string{"Authorization", "Bearer " +
				signed(tokenSecret, `{"iss":"me","aud":"api","sub":"alice","exp":%d}`, time.Now().Unix()+300)}
			nonce := first.once()
			do(
				step{of(61), 400, nonce}, step{of(50), 200, nonce}, // which the refusal did not spend
				step{of(50), 429, nonce}, // more than the address ever has
				step{of(20), 200, append(alice, first.once()...)}, step{of(20), 429, append(alice, first.once()...)},
				step{of(30), 200, first.once()}, // all that is left: the refusal took nothing
				step{of(2), 429, first.once()},
			)
			really := func() []string { return append(third.once(), "Really", "5") }
			do(step{of(50), 200, really()}, step{of(50), 200, really()}, step{of(50), 200, really()},
				step{of(50), 200, really()}, step{of(50), 200, third.once()}, step{of(50), 429, third.once()})

			r.reloadsTo(t, "count_when", func(c *config.Config) {
				c.CountWhen = map[string][]config.Status{"POST /v1/items": {"404"}}
			})
			const two = "{a:people(first:24){name} b:people(first:24){name}}" // 49, whatever the answer's status
			do(step{of(60), 200, second.once()}, step{of(60), 200, second.once()}, step{two, 200, second.once()},
				step{two, 200, second.once()}, step{two, 429, second.once()}, step{of(50), 429, second.once()})

			conn, err := net.Dial("tcp", strings.TrimPrefix(r.gate, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			text := fmt.Sprintf(`{"query":%q}`, "{a:people(first:10){name} b:people(first:9){name}}") // 20
			s := first.once()
			fmt.Fprintf(conn, "POST /v1/items HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\nExpect: 100-continue\r\n%s: %s\r\n%s: %s\r\n%s: %s\r\n\r\n", len(text),
				s[0], s[1], s[2], s[3], s[4], s[5])
			in := bufio.NewReader(conn)
			line, err := in.ReadString('\n')
			if blank, err2 := in.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" || blank != "\r\n" {
				t.Fatal(line, blank, err, err2)
			}
			write(strings.Replace(people, "people", "everybody", 1))
			r.reloadsTo(t, "signed_agents.directories", func(c *config.Config) { c.SignedAgents.Directories = nil })
			_, _ = io.WriteString(conn, text)
			answer, err := http.ReadResponse(in, nil)
			if err != nil || answer.StatusCode != 200 {
				t.Errorf("what came before the reload: %v, %v, want 200", answer, err)
			}
			do(step{of(2), 400, nil}, step{"{a:everybody(first:10){name} b:everybody(first:9){name}}", 429, nil})
		})
	}
}

// TestAgentChangesItsKey: a signature that is remembered counts no longer once its key is replaced.
func TestAgentChangesItsKey(t *testing.T) {
	a, next := newSigningAgent(t), newSigningAgent(t)
	p := newProcess(t, []policy.Rule{{Endpoint: policy.Default, Limit: 1, Per: time.Hour},
		{Endpoint: policy.Default, Tier: "signed_agent", Limit: 99, Per: time.Hour}}, withAgents(a))
	get := func(header ...string) int {
		status, _ := call(t, "GET", p.gate+"/v1/items/1", "", header...)
		return status
	}
	remembered := a.sign("", "", "")
	for i, header := range [][]string{remembered, remembered, nil} { // the last is the one of the address
		if got := get(header...); got != 200 {
			t.Errorf("request %d: %d, want 200", i, got)
		}
	}
	a.publish(next.serves)
	a.key, a.thumbprint = next.key, next.thumbprint
	eventually(t, "the new key counts", func() bool { return get(a.once()...) == 200 })
	if got := get(remembered...); got != 429 {
		t.Errorf("under the old key: %d, want 429, as the address has none left", got)
	}
	if got := get(a.sign("", "", "")...); got != 200 {
		t.Errorf("under the new key: %d, want 200", got)
	}
}
