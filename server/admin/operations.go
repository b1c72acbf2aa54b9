package admin

import (
	"net/http"
	"slices"

	"github.com/headgate-io/headgate/server/record"
)

// access is who may call an operation, as openapi.yaml says it in
// x-headgate-role.
type access string

const (
	anybody        access = "none" // no token is asked for
	readers        access = "read"
	writers        access = "write"
	granters       access = "grant"
	writersOrGrant access = "write or grant" // what exactly, the operation looks at itself
	everyRole      access = "all"            // only who has all roles
)

// allows reports whether somebody with some roles may call.
func (a access) allows(may func(record.Role) bool) bool {
	switch a {
	case anybody:
		return true
	case writersOrGrant:
		return may(record.RoleWrite) || may(record.RoleGrant)
	case everyRole:
		return !slices.ContainsFunc(record.Roles, func(r record.Role) bool { return !may(r) })
	}
	return may(record.Role(a))
}

// operation is one thing that can be asked of the door. openapi.yaml describes
// the same ones, to callers; a test compares the two.
type operation struct {
	id     string // operationId
	method string // GET stands for HEAD too
	path   string
	access access
	query  []string // parameters that it takes; those ending in … several times
	hint   string   // what else to say about a parameter that it does not take

	// changes: something may be different afterwards, so the call is written
	// down before it is made, and not made if it cannot be.
	changes bool

	serve func(*Door, http.ResponseWriter, *http.Request)
}

// operations are all there are.
var operations = []operation{
	{id: "getHealth", method: "GET", path: "/healthz", access: anybody, serve: (*Door).health},
	{id: "getReadiness", method: "GET", path: "/readyz", access: anybody, serve: (*Door).ready},
	{
		id:     "getMetrics",
		method: "GET",
		path:   "/metrics",
		access: readers,
		query:  []string{"name[]…"},
		serve:  (*Door).metrics,
	},
	{id: "getDescription", method: "GET", path: "/v1/openapi.yaml", access: readers, serve: (*Door).description},

	{
		id:     "listPolicies",
		method: "GET",
		path:   "/v1/policies",
		access: readers,
		query:  []string{"in", "limit", "cursor"},
		serve:  (*Door).listPolicies,
	},
	{
		id:      "setPolicy",
		method:  "PUT",
		path:    "/v1/policies",
		access:  writersOrGrant,
		changes: true,
		query:   []string{"why", "by"},
		serve:   (*Door).setPolicy,
	},
	{id: "deletePolicy", method: "DELETE", path: "/v1/policies", access: writersOrGrant, changes: true,
		query: []string{"endpoint", "project", "tier", "subject", "temporary", "why", "by"},
		serve: (*Door).deletePolicy},
	{id: "getPolicy", method: "GET", path: "/v1/policies/one", access: readers,
		query: []string{"endpoint", "project", "tier", "subject", "temporary"}, serve: (*Door).getPolicy},
	{
		id:      "applyPolicies",
		method:  "POST",
		path:    "/v1/policies/apply",
		access:  writersOrGrant,
		changes: true,
		serve:   (*Door).applyPolicies,
	},
	{
		id:     "lintDatabase",
		method: "GET",
		path:   "/v1/policies/lint",
		access: readers,
		query:  []string{"ignore…"},
		serve:  (*Door).lintDatabase,
	},
	{
		id:     "lintPolicies",
		method: "POST",
		path:   "/v1/policies/lint",
		access: readers,
		query:  []string{"ignore…"},
		serve:  (*Door).lint,
	},
	{id: "reload", method: "POST", path: "/v1/reload", access: writers, serve: (*Door).reload},

	{
		id:     "listProjects",
		method: "GET",
		path:   "/v1/projects",
		access: readers,
		query:  []string{"project", "limit", "cursor"},
		serve:  (*Door).listProjects,
	},
	{
		id:      "setProject",
		method:  "PUT",
		path:    "/v1/projects",
		access:  writers,
		changes: true,
		query:   []string{"why", "by"},
		serve:   (*Door).setProject,
	},
	{
		id:      "deleteProject",
		method:  "DELETE",
		path:    "/v1/projects",
		access:  writers,
		changes: true,
		query:   []string{"project", "why", "by"},
		serve:   (*Door).deleteProject,
	},

	{
		id:     "listVersions",
		method: "GET",
		path:   "/v1/versions",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).listVersions,
	},
	{
		id:     "getVersion",
		method: "GET",
		path:   "/v1/versions/{id}",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).getVersion,
	},
	{
		id:     "listVersionPolicies",
		method: "GET",
		path:   "/v1/versions/{id}/policies",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).listVersionPolicies,
	},
	{
		id:     "diffVersions",
		method: "GET",
		path:   "/v1/versions/{id}/diff",
		access: readers,
		query:  []string{"from", "limit", "cursor"},
		serve:  (*Door).diffVersions,
	},
	{
		id:      "rollbackVersion",
		method:  "POST",
		path:    "/v1/versions/{id}/rollback",
		access:  writers,
		changes: true,
		serve:   (*Door).rollbackVersion,
	},

	{
		id:     "explainByQuery",
		method: "GET",
		path:   "/v1/explain",
		access: readers,
		query:  []string{"method", "target", "peer", "header…", "user", "project", "identifier", "parts", "cost"},
		serve:  (*Door).explain,
	},
	{id: "explain", method: "POST", path: "/v1/explain", access: readers, serve: (*Door).explain},

	{id: "getBuckets", method: "GET", path: "/v1/buckets", access: readers, serve: (*Door).getBuckets,
		query: []string{"endpoint", "subject", "key", "project", "tier", "address", "certificate", "token", "user",
			"signed_agent", "identifier", "of…"},
		hint: "POST /v1/buckets/inspect takes a request's peer and headers"},
	{id: "inspectBuckets", method: "POST", path: "/v1/buckets/inspect", access: readers, serve: (*Door).inspectBuckets},
	{
		id:      "resetBucket",
		method:  "POST",
		path:    "/v1/buckets/reset",
		access:  granters,
		changes: true,
		serve:   (*Door).resetBucket,
	},
	{
		id:      "grantBucket",
		method:  "POST",
		path:    "/v1/buckets/grant",
		access:  granters,
		changes: true,
		serve:   (*Door).grantBucket,
	},
	{
		id:     "listAudit",
		method: "GET",
		path:   "/v1/audit",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).listAudit,
	},

	{id: "getBudgets", method: "POST", path: "/v1/budgets", access: readers, serve: (*Door).budgets},
	{
		id:     "getActivity",
		method: "GET",
		path:   "/v1/activity",
		access: readers,
		query:  []string{"limit", "reveal"},
		serve:  (*Door).activity,
	},
	{
		id:     "getActivitySeries",
		method: "GET",
		path:   "/v1/activity/series",
		access: readers,
		query:  []string{"rule…"},
		serve:  (*Door).activitySeries,
	},
	{
		id:     "getAnomalies",
		method: "GET",
		path:   "/v1/anomalies",
		access: readers,
		query:  []string{"limit", "reveal"},
		serve:  (*Door).anomalies,
	},
	{
		id:     "getUsage",
		method: "GET",
		path:   "/v1/usage",
		access: readers,
		query:  []string{"from", "to", "reveal"},
		serve:  (*Door).usage,
	},
	{id: "drawRule", method: "POST", path: "/v1/draw", access: readers, serve: (*Door).draw},
	{id: "tryRules", method: "POST", path: "/v1/try", access: readers, serve: (*Door).try},
	{
		id:     "listRequests",
		method: "GET",
		path:   "/v1/requests",
		access: readers,
		query:  []string{"state", "project", "limit", "cursor"},
		serve:  (*Door).listRequests,
	},
	{id: "getRequest", method: "GET", path: "/v1/requests/{id}", access: readers, serve: (*Door).showRequest},
	{
		id:      "approveRequest",
		method:  "POST",
		path:    "/v1/requests/{id}/approve",
		access:  granters,
		changes: true,
		serve:   (*Door).approveRequest,
	},
	{
		id:      "declineRequest",
		method:  "POST",
		path:    "/v1/requests/{id}/decline",
		access:  granters,
		changes: true,
		serve:   (*Door).declineRequest,
	},

	{
		id:     "listFleet",
		method: "GET",
		path:   "/v1/fleet",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).listFleet,
	},

	{
		id:     "listKeys",
		method: "GET",
		path:   "/v1/keys",
		access: readers,
		query:  []string{"project", "limit", "cursor"},
		serve:  (*Door).listKeys,
	},
	{id: "createKey", method: "POST", path: "/v1/keys", access: writers, changes: true, serve: (*Door).createKey},
	{
		id:      "rotateKey",
		method:  "POST",
		path:    "/v1/keys/{id}/rotate",
		access:  writers,
		changes: true,
		serve:   (*Door).rotateKey,
	},
	{
		id:      "revokeKey",
		method:  "POST",
		path:    "/v1/keys/{id}/revoke",
		access:  writers,
		changes: true,
		serve:   (*Door).revokeKey,
	},

	{
		id:     "listCalls",
		method: "GET",
		path:   "/v1/calls",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).listCalls,
	},
	{
		id:     "listTokens",
		method: "GET",
		path:   "/v1/tokens",
		access: readers,
		query:  []string{"limit", "cursor"},
		serve:  (*Door).listTokens,
	},
	{
		id:      "createToken",
		method:  "POST",
		path:    "/v1/tokens",
		access:  everyRole,
		changes: true,
		serve:   (*Door).createToken,
	},
	{
		id:      "revokeToken",
		method:  "POST",
		path:    "/v1/tokens/{name}/revoke",
		access:  everyRole,
		changes: true,
		serve:   (*Door).revokeToken,
	},
}
