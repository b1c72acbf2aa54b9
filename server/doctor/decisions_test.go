package doctor_test

import (
	"testing"

	"github.com/headgate-io/headgate/server/doctor"
)

func TestDecisions(t *testing.T) {
	s := newSite(t)
	s.lacks("decisions.ratelimit")
	s.conf.Decisions.GRPC = "127.0.0.1:8083"
	s.conf.Decisions.RateLimit = []string{s.write("limits.yaml",
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")}
	s.want(doctor.Options{}, "decisions.ratelimit", doctor.OK, "limits: 1")
	s.want(doctor.Options{}, "decisions.from", doctor.OK, "127.0.0.0/8")
	s.write("limits.yaml", "domain: d\ndescriptors: [{key: a, rate_limit: {unit: fortnight}}]\n")
	s.want(doctor.Options{}, "decisions.ratelimit", doctor.Failure, `limits.yaml:2: unit is "fortnight"`)
	s.conf.Decisions.RateLimitOverrides = []string{"127.0.0.1"}
	s.want(doctor.Options{}, "decisions.ratelimit_overrides", doctor.Note, "any limit for anybody")
	s.conf.Decisions.RateLimitMerge = true
	s.write("limits.yaml", "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"+
		"---\ndomain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	s.want(doctor.Options{}, "decisions.ratelimit", doctor.OK, "limits: 2")
	s.conf.Decisions.From = []string{"8.0.0.0/5"}
	s.want(doctor.Options{}, "decisions.from", doctor.Failure, "more than any network of proxies")
	s.conf.Decisions.Listen = "10.0.0.1:8082"
	s.want(doctor.Options{}, "decisions.listen", doctor.Note, "in the clear")
	s.lacks("decisions.grpc")
	s.conf.Decisions.RESP, s.conf.Decisions.RESPPasswordFile = "127.0.0.1:8084",
		s.write("password", "a password of some length\n")
	s.want(doctor.Options{}, "decisions.resp_password_file", doctor.OK, "password")

	// Where nothing but descriptors is asked about, neither endpoints nor rules are missed.
	s.conf.Decisions.Listen, s.conf.Listen, s.conf.Upstream, s.conf.Routes, s.conf.OpenAPI = "", "none", "", nil, nil
	s.lacks("endpoints")
	s.lacks("db")
}
