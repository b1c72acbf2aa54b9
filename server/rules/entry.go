package rules

import (
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/server/record"
)

// ChangeEntry is a change as JSON has it: of a rule, or of one project's tier.
type ChangeEntry struct {
	Before      *Row   `json:"before,omitempty"`
	After       *Row   `json:"after,omitempty"`
	Project     string `json:"project,omitempty"`
	TierBefore  string `json:"tier_before,omitempty"`
	TierAfter   string `json:"tier_after,omitempty"`
	FaultBefore string `json:"fault_before,omitempty"` // of a row that was no rule
	FaultAfter  string `json:"fault_after,omitempty"`
}

// Row is a rule of a policy file that need not be whole: of a row that is no rule
// it has what can be read.
type Row struct {
	Endpoint    string           `json:"endpoint"`
	Project     string           `json:"project,omitempty"`
	Tier        string           `json:"tier,omitempty"`
	Limit       int64            `json:"limit,omitempty"`
	Per         file.Seconds     `json:"per,omitempty"`
	Burst       int64            `json:"burst,omitempty"`
	Subject     policy.Whom      `json:"subject,omitzero"`
	Algorithm   policy.Algorithm `json:"algorithm,omitempty"`
	Mode        policy.Mode      `json:"mode,omitempty"`
	Scope       policy.Scope     `json:"scope,omitempty"`
	OnStoreLoss policy.StoreLoss `json:"on_store_loss,omitempty"`
	CountWhen   policy.Answers   `json:"count_when,omitempty"`
	Penalty     policy.Penalty   `json:"penalty,omitempty"`
	Refusal     policy.Refusal   `json:"refusal,omitempty"`
	Priority    policy.Priority  `json:"priority,omitempty"`
	Expires     time.Time        `json:"expires,omitzero"`
	Name        string           `json:"name,omitempty"`

	EnforcePercent int64 `json:"enforce_percent,omitempty"`
}

// ChangeEntries are changes as JSON has them.
func ChangeEntries(changes []record.Change) []ChangeEntry {
	list := make([]ChangeEntry, len(changes))
	for i, c := range changes {
		list[i] = ChangeEntry{rowOf(c.Before), rowOf(c.After), c.Project, c.TierBefore, c.TierAfter,
			c.FaultBefore, c.FaultAfter}
	}
	return list
}

func rowOf(r *policy.Rule) *Row {
	if r == nil {
		return nil
	}
	row := Row(Entries([]policy.Rule{*r})[0])
	return &row
}

// Rule is the rule that a row stands for, if it is whole.
func (r Row) Rule() policy.Rule {
	return file.Document{Rules: []file.Entry{file.Entry(r)}}.Policy("").Rules[0]
}

// lastTime is the last that JSON can write. Rules may end later by SQL; they are
// not loaded, and can be seen and mended.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Entries are rules as policy files have them, in UTC.
func Entries(list []policy.Rule) []file.Entry {
	entries := file.From(policy.Document{Rules: list}).Rules
	for i := range entries {
		if !entries[i].Expires.IsZero() {
			entries[i].Expires = entries[i].Expires.UTC()
			if entries[i].Expires.After(lastTime) {
				entries[i].Expires = lastTime
			}
		}
	}
	return entries
}
