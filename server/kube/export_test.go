package kube

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/policy"
)

// Merge makes one document of objects in JSON.
func Merge(texts ...string) (doc policy.Document, version string, conflicts map[string][]string, err error) {
	m, err := merged0(texts)
	if err != nil {
		return doc, "", nil, err
	}
	conflicts = map[string][]string{}
	for o, lost := range m.lost {
		conflicts[o.Metadata.Name] = lost
	}
	return m.doc, m.version, conflicts, m.err
}

// Statuses is what objects say then, by their names.
func Statuses(texts []string, lint func(policy.Document) policy.Problems, inForce bool, failed string, at time.Time) (
	map[string]string, error) {
	m, err := merged0(texts)
	if err != nil {
		return nil, err
	}
	now := InForce{Error: failed}
	if inForce {
		now.Version = m.version
	}
	all := map[string]string{}
	for o, s := range m.statuses(lint, now, at) {
		text, _ := json.Marshal(s)
		all[o.Metadata.Name] = string(text)
		o.event(s.Conditions[0])
	}
	return all, nil
}

func merged0(texts []string) (*merged, error) {
	objects := make([]*object, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &objects[i]); err != nil {
			return nil, err
		}
		if objects[i] == nil {
			objects[i] = &object{}
		}
	}
	return merge("kubernetes:x", objects), nil
}

// Apply takes an event over.
func (s *Source) Apply(kind, object string) error {
	s.mu.Lock()
	if s.objects == nil {
		s.objects = map[string]*kubeObject{}
	}
	s.mu.Unlock()
	_, err := s.apply(event{kind, json.RawMessage(object)})
	return err
}

// Patient has a Source wait a minute for each answer, on a machine that has no time for it.
func (s *Source) Patient() *Source {
	s.client.patience = time.Minute
	s.client.http.Transport.(*http.Transport).ResponseHeaderTimeout = time.Minute
	return s
}

type kubeObject = object
