package doctor_test

import (
	"testing"

	"github.com/headgate-io/headgate/server/doctor"
)

func TestMethodsThatFrameworksReplace(t *testing.T) {
	for _, c := range []struct {
		name, routes, unknown string
		told                  bool
	}{
		{"beside a POST", "POST /a\nDELETE /a\n", "reject", true},
		{"without a POST", "POST /a\nDELETE /a/{id}\n", "reject", false},
		{"where unknown methods pass", "POST /a\nDELETE /a/{id}\n", "limit", true},
		{"only reads", "GET /a\nHEAD /b\n", "limit", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			s.conf.Routes = []string{s.write("other.txt", c.routes)}
			s.conf.Unknown = c.unknown
			if c.told {
				s.want(doctor.Options{}, "endpoints", doctor.Note, "_method")
				return
			}
			s.lacks("endpoints")
		})
	}
}
