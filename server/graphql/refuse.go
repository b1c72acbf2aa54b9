package graphql

import (
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/problem"
)

// responseMedia is the type of answers in GraphQL over HTTP (draft, section 4). Clients that do not ask for it
// take JSON.
const responseMedia = "application/graphql-response+json"

// codes are for clients that branch on them; the names are those that others use, where there are any.
var codes = map[body.Fault]string{
	body.Schema: "GRAPHQL_VALIDATION_FAILED",
	body.Costly: "COST_LIMIT_EXCEEDED",
	body.Depth:  "OPERATION_TOO_DEEP",
	body.Many:   "OPERATION_TOO_LARGE",
	body.Stored: "PERSISTED_QUERY_NOT_SUPPORTED",
	body.Syntax: "GRAPHQL_PARSE_FAILED",
}

// Refuse answers a request that Price found a fault of, with status 400 and an error of GraphQL. It is for
// httplimit.Priced.
func Refuse(w http.ResponseWriter, r *http.Request, p httplimit.Price) bool {
	if p.Why == "" {
		return false
	}
	code := codes[p.Fault]
	if code == "" {
		code = "BAD_REQUEST"
	}
	media := "application/json"
	for _, line := range r.Header["Accept"] {
		if strings.Contains(line, responseMedia) {
			media = responseMedia
		}
	}
	problem.Write(w, r, problem.Details{Status: http.StatusBadRequest, ContentType: media, Body: []byte(
		`{"errors":[{"message":` + problem.Quote(p.Why) + `,"extensions":{"code":"` + code + `"}}]}` + "\n")})
	return true
}
