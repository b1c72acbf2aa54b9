package telemetry

import (
	"encoding/json"
	"math"
	"strconv"
	"sync"
	"time"
)

// Reference aggregates as the published code of Farkiani, Liu and Crowley does (Rethinking HTTP API Rate Limiting,
// IEEE CCNC 2026), for clients that speak its JSON. Reports and 429s are counted in 15 parts of 2 s, clients in 6 of
// 10 s, and only parts that are over count. It signs nothing and its answers are longer than reports, so a Server
// gives them to clients on the same machine alone. It is safe for concurrent use.
type Reference struct {
	rate float64 // requests a minute, as answers say

	mu    sync.Mutex
	start time.Time
	// The part that is not over has room beside those that count.
	requests [16]referencePart           // guarded by mu
	clients  [7]map[json.Number]struct{} // guarded by mu
	numbers  [7]int64                    // guarded by mu: of which part clients are
}

// referencePart is what happened in 2 s.
type referencePart struct{ number, sent, refused int64 }

// maxReferenceClients bounds the clients of one part.
const maxReferenceClients = 10_000

// NewReference returns an empty one that begins at now; perMinute is the rate that its answers name.
func NewReference(perMinute float64, now time.Time) *Reference {
	r := &Reference{rate: perMinute, start: now}
	for i := range r.requests {
		r.requests[i].number = -1
	}
	for i := range r.numbers {
		r.numbers[i] = -1
	}
	return r
}

// referenceReport is a report: type is stat, or cong after a 429.
type referenceReport struct {
	Type string      `json:"type"`
	ID   json.Number `json:"id"`
	Sent int64       `json:"sent"`
}

// referenceAnswer is the answer to every report.
type referenceAnswer struct {
	TotalRequests int64   `json:"total_requests"`
	ActiveClients int     `json:"active_clients"`
	Reported429   int64   `json:"reported_429"`
	TokenRate     float64 `json:"token_rate"`
}

// Answer takes a report and appends the answer to reply; nothing if it is none.
func (r *Reference) Answer(now time.Time, message, reply []byte) []byte {
	var report referenceReport
	if json.Unmarshal(message, &report) != nil || report.Type != "stat" && report.Type != "cong" || report.Sent < 0 ||
		report.Sent > fastest*60 {
		return reply
	}
	if id, err := strconv.ParseInt(string(report.ID), 10, 64); err != nil || id < math.MinInt32 {
		return reply
	}
	answer, err := json.Marshal(r.take(now, report))
	if err != nil {
		return reply
	}
	return append(reply, answer...)
}

func (r *Reference) take(now time.Time, report referenceReport) referenceAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := max(0, now.Sub(r.start))
	part, clients := int64(at/(2*time.Second)), int64(at/(10*time.Second))

	answer := referenceAnswer{TokenRate: r.rate}
	for _, p := range r.requests {
		if p.number >= 0 && p.number < part && p.number >= part-15 {
			answer.TotalRequests += p.sent
			answer.Reported429 += p.refused
		}
	}
	active := map[json.Number]struct{}{}
	for i, n := range r.numbers {
		if n >= 0 && n < clients && n >= clients-6 {
			for id := range r.clients[i] {
				active[id] = struct{}{}
			}
		}
	}
	answer.ActiveClients = max(1, len(active))

	p := &r.requests[part%16]
	if p.number != part {
		*p = referencePart{number: part}
	}
	p.sent += report.Sent
	if report.Type == "cong" {
		p.refused++
	}
	if i := clients % 7; r.numbers[i] != clients {
		r.numbers[i], r.clients[i] = clients, map[json.Number]struct{}{}
	}
	if known := r.clients[clients%7]; len(known) < maxReferenceClients {
		known[report.ID] = struct{}{}
	}
	return answer
}
