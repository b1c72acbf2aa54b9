package main

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
)

// What issuers of tokens put into a subject stays one field, and is no formula.
func TestUsageInCSV(t *testing.T) {
	var out strings.Builder
	names := []string{"k_1", "=1+2", "+1", "-1", "@x", "a,b", "a\"b", "a\nb", "\ttab", ""}
	var rows []admin.UsageRow
	for _, name := range names {
		rows = append(rows, admin.UsageRow{
			Day:      "2026-11-25",
			Kind:     "token",
			ID:       name,
			Hash:     "3f1c",
			Project:  name,
			Admitted: 1,
			Denied:   2,
			Tokens:   3,
		})
	}
	if err := writeUsageCSV(&out, rows); err != nil {
		t.Fatal(err)
	}
	read, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil || len(read) != len(rows)+1 {
		t.Fatalf("%d records, %v, want %d", len(read), err, len(rows)+1)
	}
	for i, record := range read[1:] {
		want := names[i]
		if strings.IndexAny(want, "=+-@\t") == 0 {
			want = "'" + want
		}
		caller := want
		if caller == "" {
			caller = "3f1c"
		}
		if !slices.Equal(record, []string{"2026-11-25", "token", caller, want, "1", "2", "3"}) {
			t.Errorf("record %d is %q, want %q", i, record, want)
		}
	}
}
