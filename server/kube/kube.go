// Package kube keeps rules in Kubernetes: objects of kind RateLimitPolicy in a namespace are a source of rules, and
// are told what became of them.
//
// It speaks to the API server over net/http: what it needs is a list, a watch, a patch and an event.
package kube

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
)

// CRD is the definition of RateLimitPolicy (apiextensions.k8s.io/v1), in YAML.
//
//go:embed crd.yaml
var CRD []byte

// Of RateLimitPolicy.
const (
	group   = "headgate.io"
	version = "v1alpha1"
	plural  = "ratelimitpolicies"
	kind    = "RateLimitPolicy"
)

// object is a RateLimitPolicy.
type object struct {
	Metadata struct {
		Name              string    `json:"name"`
		Namespace         string    `json:"namespace"`
		UID               string    `json:"uid"`
		ResourceVersion   string    `json:"resourceVersion"`
		Generation        int64     `json:"generation"`
		CreationTimestamp time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status status          `json:"status"`
}

// name is what messages call it.
func (o *object) name() string { return kind + " " + o.Metadata.Namespace + "/" + o.Metadata.Name }

// document is what o says, as a file of rules would. An error names all of its faults.
func (o *object) document() (policy.Document, error) {
	if len(o.Spec) == 0 {
		return policy.Document{}, fmt.Errorf("%s: spec is missing, want one with rules", o.name())
	}
	return file.Decode(o.Spec, o.name())
}

// dnsLabel is a name in Kubernetes that stands in a host's (RFC 1123).
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// IsName reports whether s may be the name of a namespace or a service.
func IsName(s string) bool { return dnsLabel.MatchString(s) }
