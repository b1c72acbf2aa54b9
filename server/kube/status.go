package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// status is RateLimitPolicy.status.
type status struct {
	ObservedGeneration int64       `json:"observedGeneration"`
	Rules              int         `json:"rules"`
	FindingCount       int         `json:"findingCount"`
	Findings           []finding   `json:"findings"`
	Conditions         []condition `json:"conditions"`
}

// finding is one of lint.
type finding struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Rule     *int   `json:"rule,omitempty"`
	Message  string `json:"message"`
}

// condition is a metav1.Condition.
type condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	ObservedGeneration int64     `json:"observedGeneration"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

const (
	maxFindings = 20
	maxMessage  = 1000
)

// InForce is what is known of the rules that are in force.
type InForce struct {
	Version string // of the document, as Version reported it
	Error   string // why there is none newer; empty if there is no reason
}

// Report tells each object what became of it: Accepted, whether its rules can be used; Conflicted, whether an older
// object has some of them already; Programmed, whether they are in force; and the findings of lint. lint compiles a
// document as this process does. What an object says already is not written again, so that any number of gateways may
// report the same. When Accepted or Programmed changes, an event says so too.
func (s *Source) Report(ctx context.Context, lint func(policy.Document) policy.Problems, now InForce) error {
	s.mu.Lock()
	if s.objects == nil {
		s.mu.Unlock()
		return nil
	}
	m := s.mergedLocked()
	s.mu.Unlock()
	var errs []error
	for o, next := range m.statuses(lint, now, s.now()) {
		if reflect.DeepEqual(next, o.Status) {
			continue
		}
		if err := s.client.patch(ctx, o.Metadata.Name, next); err != nil {
			errs = append(errs, fmt.Errorf("status of %s: %w", o.name(), err))
			continue
		}
		for _, c := range next.Conditions {
			if before := o.Status.condition(c.Type); c.Type == "Conflicted" ||
				before.Status == c.Status && before.Reason == c.Reason {
				continue
			}
			if err := s.client.tell(ctx, o.event(c)); err != nil {
				errs = append(errs, fmt.Errorf("event about %s: %w", o.name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// statuses is what each object is to say.
func (m *merged) statuses(lint func(policy.Document) policy.Problems, now InForce, at time.Time) map[*object]status {
	found := map[*object][]finding{}
	wrong := map[*object]bool{}
	anyError := m.err != nil
	if m.err == nil {
		for _, p := range lint(m.doc) {
			anyError = anyError || p.Severity == policy.Error
			if p.Accepted != "" || p.Rule < 0 || p.Rule >= len(m.owner) {
				continue // of nobody's alone
			}
			at := m.owner[p.Rule]
			p.Source, p.Where = "", ""
			found[at.of] = append(found[at.of], finding{p.Severity.String(), p.Code, &at.rule,
				clipped(p.Error(), maxMessage)})
			wrong[at.of] = wrong[at.of] || p.Severity == policy.Error
		}
	}
	all := make(map[*object]status, len(m.objects))
	for _, o := range m.objects {
		findings := found[o]
		slices.SortStableFunc(findings, func(a, b finding) int { return rank(a.Severity) - rank(b.Severity) })
		st := status{ObservedGeneration: o.Metadata.Generation, Rules: m.rules[o], FindingCount: len(findings),
			Findings: findings[:min(len(findings), maxFindings)]}
		add := func(kind string, yes bool, reason, message string) {
			c := condition{kind, "False", reason, clipped(message, maxMessage), o.Metadata.Generation,
				at.UTC().Truncate(time.Second)}
			if yes {
				c.Status = "True"
			}
			if before := o.Status.condition(kind); before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
			st.Conditions = append(st.Conditions, c)
		}
		accepted := m.faults[o] == nil && !wrong[o]
		switch {
		case m.faults[o] != nil:
			add("Accepted", false, "Invalid", m.faults[o].Error())
		case wrong[o]:
			add("Accepted", false, "Invalid", "some rules cannot be used; see findings")
		default:
			add("Accepted", true, "Accepted", "all rules can be used")
		}
		if lost := m.lost[o]; len(lost) > 0 {
			add("Conflicted", true, "OlderObjectWins", strings.Join(lost, "; "))
		} else {
			add("Conflicted", false, "NoConflicts", "no older object has the same rules")
		}
		switch {
		case !accepted:
			add("Programmed", false, "Invalid", "the rules that were in force before stay")
		case anyError:
			add("Programmed", false, "OtherInvalid", "another object of the namespace cannot be used, so the rules "+
				"that were in force before stay")
		case now.Version == m.version:
			add("Programmed", true, "Programmed", "in force")
		case now.Error != "":
			add("Programmed", false, "Refused", now.Error)
		default:
			add("Programmed", false, "Pending", "not in force yet")
		}
		if st.Findings == nil {
			st.Findings = []finding{}
		}
		if !accepted || anyError {
			st.Rules = 0
		}
		all[o] = st
	}
	return all
}

func rank(severity string) int { return slices.Index([]string{"error", "warning", "note"}, severity) }

func (s *status) condition(kind string) condition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return condition{}
}

// event says that a condition changed. Its name is the same for all gateways that notice, so that there is one.
func (o *object) event(c condition) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %v", o.Metadata.UID, c.Type, c.Status, c.Reason,
		c.ObservedGeneration, c.LastTransitionTime.Unix()))
	kindOf := "Normal"
	if c.Status != "True" && c.Reason != "Pending" {
		kindOf = "Warning"
	}
	name := o.Metadata.Name
	body, _ := json.Marshal(map[string]any{ // what is in it can be written
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata": map[string]any{
			"name":      strings.TrimRight(name[:min(len(name), 200)], ".-") + "." + hex.EncodeToString(sum[:8]),
			"namespace": o.Metadata.Namespace,
		},
		"eventTime":           c.LastTransitionTime.UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
		"reportingController": "headgate.io/headgate", "reportingInstance": "headgate",
		"action": "Reconcile", "reason": c.Reason, "type": kindOf, "note": clipped(c.Message, maxMessage),
		"regarding": map[string]any{"apiVersion": group + "/" + version, "kind": kind, "name": name,
			"namespace": o.Metadata.Namespace, "uid": o.Metadata.UID},
	})
	return body
}
