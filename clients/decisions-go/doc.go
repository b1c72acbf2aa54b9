// Package decisions is a client of Headgate's decision service: it asks whether requests may pass, and says what
// they have cost. It is written by oapi-codegen from serve/decisions/openapi.yaml, which the service has at
// /v1/openapi.yaml; docs/generated-clients.md has examples.
package decisions
