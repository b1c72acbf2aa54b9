package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

func TestSignedAgents(t *testing.T) {
	const on = "origins: [https://api.example]\nsigned_agents: {directories: [{origin: https://agent.example}]"
	for _, c := range [][2]string{
		{on + "}", ""},
		{on + ", nonce: required, tier: '', max_age: 5m}", ""},
		{"signed_agents: {tier: bots}", ""},
		{"origins: [https://api.example]\n" +
			"signed_agents: {private: true, directories: [{origin: 'http://127.0.0.1:7000'}]}", ""},
		{"signed_agents: {directories: [{origin: https://agent.example}]}", `origins is "", want`},
		{on + ", nonce: perhaps}", `signed_agents.nonce is "perhaps", want optional or required`},
		{on + ", max_age: 25h}", `signed_agents.max_age is "25h0m0s", want`},
		{on + ", leeway: 11m}", `signed_agents.leeway is "11m0s", want`},
		{on + ", refresh: 1ms}", `signed_agents.refresh is "1ms", want`},
		{on + ", max_stale: 1s}", `signed_agents.max_stale is "1s", want`},
		{on + ", tier: ' a'}", `signed_agents.tier is " a", want`},
		{"signed_agents: {directories: [{tier: gold}]}", `signed_agents.directories[0].origin is "", want https://HOST or`},
		{"signed_agents: {directories: [{origin: agent.example}]}", `directories[0].origin is "agent.example", want https://HOST or`},
		{"signed_agents: {directories: [{origin: 'https://user:pass%word@agent.example'}]}",
			`directories[0].origin is "…@agent.example", want https://HOST or`},
		{"signed_agents: {directories: [{origin: 'https://user:password@agent.example'}]}",
			`directories[0].origin is "…@agent.example", want https://HOST or`},
		{"signed_agents: {directories: [{origin: https://agent.example/x}]}", `directories[0].origin is "https://agent.example/x"`},
		{"signed_agents: {directories: [{origin: 'https://*.example'}]}", `directories[0].origin is "https://*.example"`},
		{"signed_agents: {directories: [{origin: http://agent.example}]}", `directories[0].origin is "http://agent.example", want https`},
		{"signed_agents: {directories: [{origin: 'http://127.0.0.1:7000'}]}", `want https, or private: true`},
		{"signed_agents: {directories: [{origin: https://a.example}, {origin: 'https://A.example:443'}]}",
			`directories[1].origin is "https://A.example:443", want another one than directories[0]`},
		{"signed_agents: {directories: [{origin: https://a.example, project: 'x '}]}",
			`directories[0].project is "x ", want`},
		{"signed_agents: {directories: [" + strings.Repeat("{origin: https://a.example}, ", 65) + "]}", `directories is "65 of them", want at most 64`},
		{on + "}\ntokens: {failures: 0}", `tokens.failures is "0", want`},
	} {
		conf, err := read(t, whole+c[0]+"\n")
		if err == nil {
			err = conf.Complete()
		}
		if (c[1] == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q", c[0], err, c[1])
		}
	}
	conf, err := read(t, whole+on[:len(on)-1]+
		", {origin: https://b.example, tier: gold, project: acme}, {origin: https://c.example}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	s := &conf.SignedAgents
	if got := s.TierNames(); !reflect.DeepEqual(got, []string{"signed_agent", "gold"}) || !s.On() ||
		!s.InProjects() ||
		s.MaxAge != time.Hour ||
		s.TierOf(config.AgentDirectory{}) != "signed_agent" {
		t.Errorf("%+v has the tiers %q", s, got)
	}
}
