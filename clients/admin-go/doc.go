// Package admin is a client of Headgate's admin API: rules and their history, API keys, buckets, and what a running
// gateway knows. It is written by oapi-codegen from server/admin/openapi.yaml, which a gateway has at
// /v1/openapi.yaml; docs/admin-api.md has an example.
package admin
