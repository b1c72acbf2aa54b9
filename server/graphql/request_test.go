package graphql_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/server/graphql"
)

// hashed is what Apollo's clients send beside a document.
func hashed(query string) string {
	return fmt.Sprintf(`{"persistedQuery":{"version":1,"sha256Hash":"%x"}}`, sha256.Sum256([]byte(query)))
}

// TestRequests: what a request costs by its body or its query, and which have two readings.
func TestRequests(t *testing.T) {
	get := func(pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return "/graphql?" + v.Encode()
	}
	persisted := graphql.Options{Persisted: 70}
	for _, c := range []struct {
		name, method, target, text string
		upgrade                    bool
		o                          graphql.Options
		want                       httplimit.Price
	}{
		{name: "one", text: `{"query":"{me{name}}"}`, want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "spaces", text: " \r\n{ \"query\" : \"{me{name}}\" }\t", want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "escapes", text: `{"qu\u0065ry":"{m\u0065{n\u0061me}}"}`, want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "variables", text: `{"query":"query($n:Int){users(first:$n){id}}","variables":{"n":7}}`,
			want: httplimit.Price{Cost: 8, Parts: 1}},
		{name: "nulls", text: `{"query":"{me{id}}","variables":null,"operationName":null,"extensions":null}`,
			want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "an operation", text: `{"query":"query A{me{id}} query B{users{id}}","operationName":"B"}`,
			want: httplimit.Price{Cost: 11, Parts: 1}},
		{name: "several at the root", text: `{"query":"{a:me{id} b:me{id}}"}`,
			want: httplimit.Price{Cost: 3, Parts: 1, Many: true}},
		{name: "with its hash", text: `{"query":"{me{id}}","extensions":` + hashed("{me{id}}") + `}`,
			want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "an array", text: `[{"query":"{me{id}}"},{"query":"{users(first:4){id}}"}]`,
			want: httplimit.Price{Cost: 7, Parts: 2}},
		{name: "another parameter", target: "/graphql?trace=1", text: `{"query":"{me{id}}"}`,
			want: httplimit.Price{Cost: 2, Parts: 1}},

		{name: "dear", text: `{"query":"{users(first:1000){id}}"}`, want: httplimit.Price{Fault: body.Costly}},
		{name: "dear together", text: `[{"query":"{users(first:600){id}}"},{"query":"{users(first:600){id}}"}]`,
			want: httplimit.Price{Fault: body.Costly}},
		{name: "long together", text: `[` + strings.Repeat(`{"query":"{me{id}}"},`, 4) + `{"query":"{me{id}}"}]`,
			o: graphql.Options{MaxTokens: 29}, want: httplimit.Price{Fault: body.Many}},
		{name: "as long as may be", text: `[` + strings.Repeat(`{"query":"{me{id}}"},`, 4) + `{"query":"{me{id}}"}]`,
			o: graphql.Options{MaxTokens: 30}, want: httplimit.Price{Cost: 10, Parts: 5}},
		{name: "one more", text: `[` + strings.Repeat(`{"query":"{me{id}}"},`, 5) + `{"query":"{me{id}}"}]`,
			o: graphql.Options{MaxTokens: 30}, want: httplimit.Price{Fault: body.Many}},
		{name: "many together", text: `[` + strings.Repeat(`{"query":"{me{id}}"},`, 10) + `{"query":"{me{id}}"}]`,
			want: httplimit.Price{Fault: body.Many}},
		{name: "no array", text: `[{"query":"{me{id}}"},{"query":"{me{id}}"}]`, o: graphql.Options{MaxParts: 1},
			want: httplimit.Price{Fault: body.Many}},
		{name: "nothing together", text: `[]`, want: httplimit.Price{Fault: body.Empty}},
		{name: "an array in an array", text: `[[{"query":"{me{id}}"}]]`, want: httplimit.Price{Fault: body.Kind}},

		{name: "twice", text: `{"query":"{me{id}}","query":"{users{id}}"}`, want: httplimit.Price{Fault: body.Twice}},
		{name: "twice, null first", text: `{"query":null,"query":"{users{id}}"}`,
			want: httplimit.Price{Fault: body.Twice}},
		{name: "twice, escaped", text: `{"query":"{me{id}}","qu\u0065ry":"{users{id}}"}`,
			want: httplimit.Price{Fault: body.Twice}},
		{name: "in capitals", text: `{"query":"{me{id}}","Query":"{users{id}}"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "to a zero byte", text: `{"query":"{me{id}}","variables\u0000":{}}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "variables twice", text: `{"query":"{me{id}}","variables":{},"variables":{"n":1}}`,
			want: httplimit.Price{Fault: body.Twice}},
		{name: "variables as text", text: `{"query":"{me{id}}","variables":"{}"}`,
			want: httplimit.Price{Fault: body.Kind}},
		{name: "a number", text: `{"query":7}`, want: httplimit.Price{Fault: body.Kind}},
		{name: "an ID beside it", text: `{"query":"{me{id}}","documentId":"abc"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "another hash", text: `{"query":"{me{id}}","extensions":` + hashed("{users{id}}") + `}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "two hashes", text: `{"query":"{me{id}}","extensions":{"persistedQuery":{"sha256Hash":"a","sha256Hash":"b"}}}`,
			want: httplimit.Price{Fault: body.Twice}},
		{name: "two persisted", text: `{"query":"{me{id}}","extensions":{"PersistedQuery":{},"persistedQuery":null}}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "broken off", text: `{"query":"{me{id}}"`, want: httplimit.Price{Fault: body.Syntax}},
		{name: "more behind it", text: `{"query":"{me{id}}"}{"query":"{users{id}}"}`,
			want: httplimit.Price{Fault: body.Syntax}},
		{name: "a mark before it", text: "\ufeff" + `{"query":"{me{id}}"}`, want: httplimit.Price{Fault: body.Kind}},
		{name: "nothing", text: ``, want: httplimit.Price{Fault: body.Empty}},
		{name: "in both", target: "/graphql?query=%7Bme%7Bid%7D%7D", text: `{"query":"{me{id}}"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "in both, in part", target: "/graphql?variables=%7B%7D", text: `{"query":"{me{id}}"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "its operation in both", target: "/graphql?operationName=A",
			text: `{"query":"query A{me{id}} query B{users{id}}","operationName":"A"}`,
			want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "another operation", target: "/graphql?operationName=B",
			text: `{"query":"query A{me{id}} query B{users{id}}","operationName":"A"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "an operation of an array", target: "/graphql?operationName=A",
			text: `[{"query":"query A{me{id}}","operationName":"A"}]`, want: httplimit.Price{Fault: body.Alike}},
		{name: "an operation twice", target: "/graphql?operationName=A&operationName=B",
			text: `{"query":"query A{me{id}} query B{users{id}}","operationName":"A"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "an ID in the query", target: "/graphql?id=7", text: `{"query":"{me{id}}"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "odd in the query", target: "/graphql?query[]=x", text: `{"query":"{me{id}}"}`,
			want: httplimit.Price{Fault: body.Alike}},

		{name: "a hash", text: `{"extensions":` + hashed("{me{id}}") + `}`, want: httplimit.Price{Fault: body.Stored}},
		{name: "no document", text: `{"query":"","documentId":"abc"}`, want: httplimit.Price{Fault: body.Stored}},
		{name: "a hash that counts", text: `{"extensions":` + hashed("{me{id}}") + `}`, o: persisted,
			want: httplimit.Price{Cost: 70, Parts: 1, Many: true}},
		{name: "an ID that counts", text: `{"documentId":"abc","variables":{}}`, o: persisted,
			want: httplimit.Price{Cost: 70, Parts: 1, Many: true}},

		{name: "GET", method: "GET", target: get("query", "{users(first:3){id}}"),
			want: httplimit.Price{Cost: 4, Parts: 1}},
		{name: "HEAD", method: "HEAD", target: get("query", "{users(first:3){id}}"),
			want: httplimit.Price{Cost: 4, Parts: 1}},
		{name: "GET, variables", method: "GET", target: get("query", "query($n:Int){users(first:$n){id}}", "variables",
			` {"n":5} `, "operationName", "", "key", "k"), want: httplimit.Price{Cost: 6, Parts: 1}},
		{name: "GET, null", method: "GET", target: get("query", "{me{id}}", "variables", " null "),
			want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "GET, twice", method: "GET", target: get("query", "{me{id}}", "query", "{users{id}}"),
			want: httplimit.Price{Fault: body.Twice}},
		{name: "GET, alike", method: "GET", target: get("query", "{me{id}}", "Query", "{users{id}}"),
			want: httplimit.Price{Fault: body.Alike}},
		{name: "GET, in brackets", method: "GET", target: get("query", "{me{id}}", "variables[n]", "9"),
			want: httplimit.Price{Fault: body.Alike}},
		{name: "GET, semicolons", method: "GET", target: "/graphql?x=1;query=%7Bme%7Bid%7D%7D",
			want: httplimit.Price{Fault: body.Syntax}},
		{name: "GET, an ID beside it", method: "GET", target: get("query", "{me{id}}", "documentId", "x"),
			want: httplimit.Price{Fault: body.Alike}},
		{name: "GET, text for variables", method: "GET", target: get("query", "{me{id}}", "variables", "7"),
			want: httplimit.Price{Fault: body.Kind}},
		{name: "GET, a body", method: "GET", target: get("query", "{me{id}}"), text: `{"query":"{users{id}}"}`,
			want: httplimit.Price{Fault: body.Alike}},
		{name: "GET, a hash", method: "GET", target: get("extensions", hashed("{me{id}}")),
			want: httplimit.Price{Fault: body.Stored}},
		{name: "GET, something else", method: "GET", target: "/graphql?x=1", want: httplimit.Price{Fault: body.Stored}},
		{name: "GET, a page", method: "GET", target: "/graphql"},

		{name: "upgrade", method: "GET", target: "/graphql", upgrade: true, want: httplimit.Price{Fault: body.Media}},
		{name: "upgrade that passes", method: "GET", target: "/graphql?token=x", upgrade: true,
			o: graphql.Options{Upgrades: true}},
		{name: "upgrade with a document", method: "GET", target: get("query", "{me{id}}"), upgrade: true,
			o: graphql.Options{Upgrades: true}, want: httplimit.Price{Cost: 2, Parts: 1}},
		{name: "upgrade with odd names", method: "GET", target: "/graphql?Query=%7Bme%7D", upgrade: true,
			o: graphql.Options{Upgrades: true}, want: httplimit.Price{Fault: body.Alike}},
		{name: "upgrade with an ID", method: "GET", target: "/graphql?documentId=x", upgrade: true,
			o: graphql.Options{Upgrades: true}, want: httplimit.Price{Fault: body.Stored}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.method == "" {
				c.method = http.MethodPost
			}
			if c.target == "" {
				c.target = "/graphql"
			}
			r := httptest.NewRequest(c.method, c.target, nil)
			if c.upgrade {
				r.Header.Set("Upgrade", "websocket")
			}
			got := newPricer(t, c.o).Price(r, c.target, []byte(c.text))
			if (got.Why == "") != (got.Fault == body.None) {
				t.Errorf("the fault %v says %q", got.Fault, got.Why)
			}
			if got.Why = ""; got != c.want {
				t.Errorf("got %+v (%v), want %+v (%v)", got, got.Fault, c.want, c.want.Fault)
			}
		})
	}
}

// FuzzPrice: what a body with a price holds is what a server finds in it that takes names in any case, the last
// of two (encoding/json into a struct), and one that takes them to the letter (into a map); what such a
// document costs alone is what the request does.
func FuzzPrice(f *testing.F) {
	for _, text := range []string{
		`{"query":"{me{name}}"}`, `{"query":"query A($n:Int){users(first:$n){id}}","variables":{"n":7},"operationName":"A"}`,
		`{"query":"{me{id}}","Query":"{users{id}}"}`, `{"query":"{me{id}}","extensions":` + hashed("{me{id}}") + `}`,
		`{"qu\u0065ry":"{me{id}}","variables":null}`, `{"query":"{nodes(ids:[1,2]){id}}","variables":{"a":[1]}}`,
	} {
		f.Add(text)
	}
	p := newPricer(f, graphql.Options{})
	f.Fuzz(func(t *testing.T, text string) {
		price := p.Price(httptest.NewRequest("POST", "/graphql", nil), "/graphql", []byte(text))
		if price.Fault != body.None || strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "[") {
			return
		}
		var loose struct {
			Query         string
			OperationName string
			Variables     json.RawMessage
		}
		var strict map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &loose) != nil || json.Unmarshal([]byte(text), &strict) != nil {
			t.Fatalf("%q costs %d, and a server cannot read it", text, price.Cost)
		}
		var query, operation string
		_ = json.Unmarshal(strict["query"], &query)
		_ = json.Unmarshal(strict["operationName"], &operation)
		if query != loose.Query || operation != loose.OperationName ||
			string(strict["variables"]) != string(loose.Variables) {
			t.Fatalf("%q costs %d, and servers find different documents in it", text, price.Cost)
		}
		if string(loose.Variables) == "null" {
			loose.Variables = nil
		}
		if c, err := p.Document(query, operation, loose.Variables); err != nil || c.Tokens != price.Cost {
			t.Fatalf("%q costs %d, and its document %d, %v", text, price.Cost, c.Tokens, err)
		}
	})
}
